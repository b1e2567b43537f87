"""``workers``, ``unlock`` and ``sweep``: the verbs about workers, and about what dead workers left behind."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from django.core.management.base import CommandError
from django.db import transaction

from django_graphile_worker import api, conf, signals
from django_graphile_worker.api.connection import open_place
from django_graphile_worker.management.arguments import Argument
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Column, Columns, Values, counted
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import recovery
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.recovery import Exhausted
from django_graphile_worker.sql.workers import wake_workers
from django_graphile_worker.text import shown
from django_graphile_worker.worker.maintenance.recovery import BEATS_WATCHED, DeadWorkerDetector

monotonic = time.monotonic
pause = time.sleep


def has_fresh_heartbeat(holder: Holder) -> bool:
    return holder.is_alive(conf.current().worker_timeout)


def worker_state(holder: Holder) -> str:
    """Return alive, stopping, silent, or unregistered: workers that do not register have no heartbeat."""
    if not holder.is_registered:
        return "unregistered"
    if not has_fresh_heartbeat(holder):
        return "silent"
    return "stopping" if holder.metadata.get("is_stopping") is True else "alive"


def _running_tasks(worker: Values) -> list[str]:
    """Return the tasks of the jobs that a worker reports as running."""
    running = worker["metadata"].get("running")
    jobs = [job for job in running if isinstance(job, dict)] if isinstance(running, list) else []
    return sorted({str(job.get("task", "")) for job in jobs})


def _reported(name: str) -> Column:
    """Return the column of a value that workers report of themselves."""
    return name.replace("_", " ").upper(), lambda worker: worker["metadata"].get(name)


WORKERS: Columns = (
    *("id", "state", _reported("host"), _reported("pid"), "started_at", "last_heartbeat_at", _reported("is_listening")),
    *("holds_since", "held_jobs", "held_queues", ("RUNNING", _running_tasks)),
)


def in_words(versions: Mapping[str, int]) -> str:
    """Return the versions with their numbers of workers, like "1.0.2 (3 workers), 1.1.0 (1 worker)"."""
    return ", ".join(f"{version} ({counted(number, 'worker')})" for version, number in versions.items())


class Workers(Verb):
    name = "workers"
    summary = "List workers and their jobs."
    description = (
        "List the workers of this package with their state: alive, stopping, or silent for longer than WORKER_TIMEOUT "
        "(other workers, or sweep, recover their jobs). Workers that hold jobs and do not register, such as those of "
        "graphile-worker for Node.js, come last. While workers of several versions run, as during a deploy, VERSION "
        "is listed, too."
    )
    examples = ("", "--json")

    def run(self, console: Console, options: Options) -> None:
        with console.reading() as (cursor, schema, now):
            found = holders(cursor, schema=schema)
        is_mixed = len({each.version for each in found if each.version}) > 1
        columns = (WORKERS[0], _reported("version"), *WORKERS[1:]) if is_mixed else WORKERS
        console.listing(map(_as_dict, found), columns, now, nothing="No workers. Start one with: manage.py runworker")


def _as_dict(holder: Holder) -> dict[str, Any]:
    return {
        "id": holder.id,
        "state": worker_state(holder),
        "started_at": holder.started_at,
        "last_heartbeat_at": holder.last_heartbeat_at,
        "holds_since": holder.oldest_lock,
        "held_jobs": holder.jobs,
        "held_queues": holder.queues,
        "metadata": holder.metadata,
    }


# The most locks to count for a worker: more than a worker can hold.
MAX_LOCKS = 1_000_000

RISK = (
    "If a worker still runs a job, the job runs a second time, at the same time, and the next job of its queue may "
    "start beside it."
)


class Unlock(Verb):
    name = "unlock"
    summary = "Unlock the jobs and queues of workers that have certainly ended."
    description = (
        f"Unlock all jobs and queues of these workers at once; attempts stay counted. {RISK} A worker with a recent "
        "heartbeat is therefore refused without --force. Workers of this package need no unlocking: other workers "
        "recover the jobs of a dead worker after WORKER_TIMEOUT, see sweep."
    )
    examples = ("worker-1a2b3c", "worker-1a2b3c worker-4d5e6f", "django-worker-0123456789abcdef01 --force")
    arguments = (
        Argument("worker_ids", "WORKER", "The ids of the workers, as workers lists them.", nargs="+"),
        Argument("--force", "", "Unlock workers with a recent heartbeat, too."),
    )

    def run(self, console: Console, options: Options) -> None:
        found = _find(console, list(dict.fromkeys(options["worker_ids"])))
        alive = [holder for holder in found if has_fresh_heartbeat(holder)]
        if alive and not options["force"]:
            names = ", ".join(f"{shown(each.id)} ({worker_state(each)}, {_holds(each)})" for each in alive)
            raise CommandError(
                f"These workers have a recent heartbeat: {names}. {RISK} Stop them first, or use --force. None was "
                "unlocked."
            )
        api.force_unlock_workers([holder.id for holder in found], **console.place)
        if console.is_json:
            console.dump([{"id": each.id, "freed_jobs": each.jobs, "freed_queues": each.queues} for each in found])
            return
        for holder in found:
            console.done(f"Unlocked {holder.id}: {_holds(holder)}.")
        if any(not holder.is_registered for holder in found):
            console.warn("Unregistered workers send no heartbeat: this command cannot check that they have ended.")


def _find(console: Console, worker_ids: Sequence[str]) -> list[Holder]:
    """Return the workers; raise CommandError if one of them holds nothing."""
    with console.reading() as (cursor, schema, _):
        found = holders(cursor, worker_ids, schema=schema, most_locks=MAX_LOCKS)
    missing = [each for each in worker_ids if each not in {holder.id for holder in found}]
    if missing:
        names = ", ".join(map(repr, missing))
        raise CommandError(f"No worker was unlocked: no jobs or queues are held by {names}.")
    return found


def _holds(holder: Holder) -> str:
    return f"{counted(holder.jobs, 'job')} and {counted(holder.queues, 'queue')}"


# More than all workers can hold. One statement recovers all jobs, because it also declares their worker dead.
MAX_RECOVERED = 1_000_000


class Swept(NamedTuple):
    """The dead workers, jobs and queues that a sweep has recovered, or would recover."""

    dead_worker_ids: tuple[str, ...]
    job_ids: tuple[int, ...]
    queues: int
    stale_jobs: int
    stale_queues: int


class Sweep(Verb):
    name = "sweep"
    summary = "Recover the jobs of dead workers now."
    description = (
        "Unlock the jobs and queues of workers that have sent no heartbeat for WORKER_TIMEOUT (the jobs get their "
        "attempt back), and remove locks of unregistered workers that are older than four hours. Every running worker "
        "does this regularly: use this verb if no worker runs, or if there is no time to wait for one. Silent workers "
        "are watched for two of their heartbeat intervals first, because after a change of the database's clock, or "
        "an outage of the database, live workers seem dead until their next heartbeat."
    )
    examples = ("--dry-run", "", "--at-once")
    arguments = (
        Argument("--dry-run", "", "Only show what would be unlocked."),
        Argument("--at-once", "", "Do not watch silent workers first: for workers that have certainly ended."),
    )

    def run(self, console: Console, options: Options) -> None:
        place, is_rehearsal = place_of(**console.place), options["dry_run"]
        swept = _sweep(place, None if options["at_once"] else _watch(console, place), is_rehearsal=is_rehearsal)
        if console.is_json:
            console.dump({**swept._asdict(), "dry_run": is_rehearsal})
        elif not any(swept):
            console.say("Nothing to unlock: no dead worker, no stale lock.")
        else:
            for worker_id in swept.dead_worker_ids:
                console.say(f"Dead: {shown(worker_id)}")
            of_dead = f"{counted(len(swept.job_ids), 'job')} and {counted(swept.queues, 'queue')} of dead workers"
            stale = f"{counted(swept.stale_jobs, 'job')} and {counted(swept.stale_queues, 'queue')} with stale locks"
            console.done(f"{'Would unlock' if is_rehearsal else 'Unlocked'} {of_dead}, {stale}.")


def _sweep(place: Place, dead: Sequence[recovery.LateWorker] | None, *, is_rehearsal: bool) -> Swept:
    """Recover the jobs and queues of dead workers in one transaction; for a rehearsal, roll it back.

    Without ``dead``, every worker that is silent at this moment counts as dead.
    """
    settings = place.settings
    with open_place(place) as queue, transaction.atomic(using=queue.alias):
        queue.refuse_hidden_tables()
        recovered = recovery.recover(
            queue.cursor,
            dead,
            schema=queue.schema,
            timeout=settings.worker_timeout,
            limit=MAX_RECOVERED,
            keeping=queue.keeping,
        )
        stale = recovery.release_stale_locks(queue.cursor, schema=queue.schema, keeping=queue.keeping)
        number = len(recovered.job_ids) + len(recovered.queue_ids) + stale.jobs + stale.queues
        if number and settings.notify:
            wake_workers(queue.cursor, number, schema=queue.schema)
        if is_rehearsal:
            transaction.set_rollback(True, using=queue.alias)
    queues = len(recovered.queue_ids)
    swept = Swept(recovered.dead_worker_ids, recovered.job_ids, queues, stale.jobs, stale.queues)
    if not is_rehearsal:
        _send_signals(swept, recovered.exhausted + stale.exhausted, place)
    return swept


def _send_signals(swept: Swept, exhausted: Sequence[Exhausted], place: Place) -> None:
    about: dict[str, Any] = {
        "sender": Sweep,
        "worker_id": "",
        "database": place.using,
        "installation": place.installation,
    }
    if swept.dead_worker_ids:
        signals.jobs_recovered.send_robust(**about, job_ids=swept.job_ids, dead_worker_ids=swept.dead_worker_ids)
    for each in exhausted:
        facts = {"job": each.job, "duration": each.seconds, "error": each.error}
        signals.job_permanently_failed.send_robust(**about, **facts)
    if swept.stale_jobs or swept.stale_queues:
        signals.stale_locks_released.send_robust(**about, jobs=swept.stale_jobs, queues=swept.stale_queues)


WATCH_INTERVAL = 1.0
# If two checks are further apart than this, in seconds, this process was suspended in between, and watching restarts.
MAX_GAP = 10.0


def _watch(console: Console, place: Place) -> list[recovery.LateWorker]:
    """Watch until each silent worker has sent a heartbeat or is dead; return the dead workers.

    After a change of the database's clock, or a long outage of the database, all workers are silent by that clock until
    their next heartbeat. They are therefore watched for as long as each live worker needs to send a heartbeat.
    """
    detector = DeadWorkerDetector(monotonic, longest_gap=MAX_GAP)
    is_begun = False
    while True:
        late = _late_workers(place)
        dead = detector.find_dead(late)
        silent = [worker for worker in late if worker.is_silent]
        if len(dead) >= len(silent):
            return dead
        if not is_begun:
            seconds = BEATS_WATCHED * max(worker.heartbeat_seconds for worker in silent)
            number = counted(len(silent), "silent worker")
            console.note(f"Watching {number} for {seconds:g} s, in case of a heartbeat ...")
            is_begun = True
        pause(min(detector.until_next, WATCH_INTERVAL))


def _late_workers(place: Place) -> list[recovery.LateWorker]:
    settings = place.settings
    with open_place(place) as queue:
        queue.refuse_hidden_tables()
        timeout, heartbeat = settings.worker_timeout, settings.heartbeat_interval
        return recovery.read_fleet(queue.cursor, schema=queue.schema, timeout=timeout, heartbeat=heartbeat).late
