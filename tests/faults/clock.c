/* Clocks, shifted by as many seconds as two numbers of eight bytes in a file say, now: the first for the time of day,
   the second for the clock of durations (CLOCK_MONOTONIC), which stands still while a machine is suspended. The clock
   that counts through a suspension (CLOCK_BOOTTIME) stays as it is. Loaded before the C library (LD_PRELOAD). */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile const int64_t *shifts;

__attribute__((constructor)) static void attach(void)
{
    const char *path = getenv("FAULT_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file >= 0) {
        void *page = mmap(NULL, 2 * sizeof(int64_t), PROT_READ, MAP_SHARED, file, 0);
        if (page != MAP_FAILED)
            shifts = page;
        close(file);
    }
}

static int64_t shift_of(clockid_t clock)
{
    if (!shifts)
        return 0;
    if (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)
        return shifts[0];
    return clock == CLOCK_MONOTONIC || clock == CLOCK_MONOTONIC_COARSE ? shifts[1] : 0;
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
    int result = (int) syscall(SYS_clock_gettime, clock, now);
    if (result == 0)
        now->tv_sec += shift_of(clock);
    return result;
}

/* Deadlines are given by the shifted clock, and the kernel waits by its own. */
static struct timespec by_the_kernels(clockid_t clock, const struct timespec *deadline)
{
    struct timespec moved = *deadline;
    moved.tv_sec -= shift_of(clock);
    return moved;
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *deadline)
{
    static int (*original)(sem_t *, clockid_t, const struct timespec *);
    if (!original)
        original = dlsym(RTLD_NEXT, "sem_clockwait");
    struct timespec moved = by_the_kernels(clock, deadline);
    return original(semaphore, clock, &moved);
}

int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *deadline)
{
    /* Python's conditions go by the monotonic clock. */
    static int (*original)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
    if (!original)
        original = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    struct timespec moved = by_the_kernels(CLOCK_MONOTONIC, deadline);
    return original(condition, mutex, &moved);
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
    struct timespec precise;
    (void) zone;
    if (clock_gettime(CLOCK_REALTIME, &precise) != 0)
        return -1;
    now->tv_sec = precise.tv_sec;
    now->tv_usec = precise.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *now)
{
    struct timespec precise;
    clock_gettime(CLOCK_REALTIME, &precise);
    if (now)
        *now = precise.tv_sec;
    return precise.tv_sec;
}
