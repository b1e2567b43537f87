"""What the parts of a worker call: for each part one class, which implements the Protocol that the part defines.

A part does not import the parts that it reports to. The Protocol beside each part lists its reports and questions; the
class here passes them on to the other parts. ``recovery_callbacks`` has the class of the recovery.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from django_graphile_worker import signals
from django_graphile_worker.worker.identity import about_this_process
from django_graphile_worker.worker.other_workers import wake_other_workers
from django_graphile_worker.worker.outcomes import Cancelled, Outcome
from django_graphile_worker.worker.parts import Parts

if TYPE_CHECKING:
    from datetime import datetime

    from django_graphile_worker.pause_type import Pause
    from django_graphile_worker.sql.control import ReadPause, RequestedStop
    from django_graphile_worker.worker.control.pause_endings import PauseEndings
    from django_graphile_worker.worker.control.stops import Stops
    from django_graphile_worker.worker.database.connection import Database
    from django_graphile_worker.worker.execution.job_run import JobRun
    from django_graphile_worker.worker.scheduling.scheduler import Scheduler


class ReleaserCallbacks:
    """The ``ReleaseEvents`` of a worker: counts and reports outcomes, and wakes the fetcher for claimable jobs."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def released(self, outcomes: Sequence[Outcome]) -> None:
        parts = self._parts
        parts.statistics_buffer.add(outcomes, parts.directory.identifier_of)
        parts.events.jobs_released(outcomes)
        if parts.task_reports is not None:
            parts.task_reports.released(outcomes)

    def settled(self, outcomes: Sequence[Outcome]) -> None:
        self._parts.held.forget([outcome.claim for outcome in outcomes])
        if self._parts.limited is not None:
            self._parts.limited.ended.free([outcome.claim for outcome in outcomes])
        if self._parts.progress is not None:
            self._parts.progress.settled([outcome.claim.id for outcome in outcomes])

    def claim_lost(self, outcome: Outcome) -> None:
        if self._parts.task_reports is not None:
            self._parts.task_reports.claim_lost(outcome)
        self._parts.events.claim_lost(outcome)

    def cancelled(self, outcome: Cancelled) -> None:
        self._parts.events.job_cancelled(outcome)

    def retry_scheduled(self, seconds: float) -> None:
        # Later retries are found by polling.
        if seconds < self._parts.settings.poll_interval:
            self._parts.fetcher.expect(seconds)

    def queues_freed(self, queue_ids: set[int]) -> None:
        self._parts.claimer.note_freed_queues(queue_ids)
        self._parts.wake_fetcher()

    def queues_released(self, queue_ids: Sequence[int]) -> None:
        if self._parts.limited is not None:
            self._parts.limited.ended.free_queues(queue_ids)

    def jobs_returned(self, count: int) -> None:
        self._parts.wake_fetcher()
        if count and self._parts.settings.notify:
            # This worker may have no free slot, or may be about to stop.
            wake_other_workers(self._parts.release_database, count)

    def queues_paused(self, pauses: Sequence[Pause]) -> None:
        self._parts.events.work_paused(pauses)


class HeartbeatCallbacks:
    """The ``HeartbeatEvents`` of a worker: provides its row of the register, and changes its id on a lost lease."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def worker_id(self) -> str:
        return self._parts.worker_id

    def metadata(self) -> Mapping[str, Any]:
        parts = self._parts
        settings = parts.settings
        return {
            **about_this_process(parts.version),
            "database": parts.place.using,
            "installation": parts.place.installation,
            "schema": settings.schema,
            "concurrency": settings.concurrency,
            "tasks": sorted(parts.directory.tasks),
            "is_listening": parts.listener is not None and parts.listener.is_heard,
            "is_stopping": parts.is_stopping,
            "running": [
                {"job_id": job.claim.id, "task": job.task_identifier, "started_at": job.started_at}
                for job in parts.executor.running()
            ],
        }

    def proof_channel(self) -> str | None:
        settings = self._parts.settings
        return self._parts.proof_channel() if settings.listen and settings.notify else None

    def lease_lost(self) -> str:
        return self._parts.lose_lease()

    def registered(self, former_id: str | None) -> None:
        parts = self._parts
        about = {**about_this_process(parts.version), "concurrency": parts.settings.concurrency}
        parts.events.note_start(about, former_id=former_id, replaced=parts.replaced_process)
        if former_id is not None:
            # A clean-up may have deleted the names of the tasks while the worker was not registered.
            parts.directory.review_soon()
            parts.fetcher.wake()

    def stop_reason(self) -> str:
        return self._parts.stop_reason

    def read_control(self, database: Database, proof_channel: str | None) -> None:
        self._parts.control_reader.read(database, proof_channel)


class ControlCallbacks:
    """The ``ControlEvents`` of a worker."""

    def __init__(self, parts: Parts, stops: Callable[[], Stops], scheduler: Callable[[], Scheduler]) -> None:
        self._parts = parts
        # Build what stops runs, and what fires schedules, if it was not needed before.
        self._stops = stops
        self._scheduler = scheduler

    def worker_id(self) -> str:
        return self._parts.worker_id

    def stop(self, requests: Sequence[RequestedStop]) -> None:
        # Late import: most workers stop no run.
        from django_graphile_worker.worker.job_stop import Stop

        for job_id, token, reason, requested_by, _ in requests:
            self._stops().request(job_id, token, Stop(kind="cancelled", reason=reason, by=requested_by))

    def missed(self, requests: Sequence[RequestedStop]) -> None:
        for job_id, _, reason, requested_by, _ in requests:
            self._parts.events.cancellation_missed(job_id, reason=reason, cancelled_by=requested_by)

    def pauses_read(self, pauses: Sequence[ReadPause]) -> None:
        self._parts.pauses.update(pauses)

    def schedule_expected(self, seconds: float) -> None:
        # A worker that drains the queue ends before the next time.
        if self._parts.fires and not self._parts.is_draining:
            self._scheduler().expect(seconds)

    def now(self) -> datetime | None:
        return self._parts.now()


class PauseCallbacks:
    """The ``PauseEvents`` of a worker."""

    def __init__(self, parts: Parts, endings: Callable[[], PauseEndings]) -> None:
        self._parts = parts
        self._endings = endings

    def pauses_changed(self) -> None:
        self._parts.apply_pauses()

    def settle_pauses(self, seconds: float) -> None:
        self._endings().expect(seconds)

    def queue_is_unlocked(self) -> None:
        self._parts.heartbeat.read_control_soon()


class PoolCallbacks:
    """The ``PoolEvents`` of a worker: the executor runs a job, the releaser takes its outcome."""

    def __init__(self, parts: Parts) -> None:
        # The methods of the parts themselves: a method of this class would cost one more call for every job.
        self.run = parts.executor.run
        self.coroutine_tasks = parts.executor.coroutine_tasks
        self.start_job = parts.executor.start_job
        self.resume_job = parts.executor.resume_job
        self.may_begin = parts.may_begin
        self.refuse = parts.refuse
        self.on_outcome = parts.releaser.put
        self.on_queue_done = parts.releaser.release_queue
        self.on_wants_jobs = parts.wake_fetcher
        self.on_thread_end = parts.executor.thread_finished


class StopCallbacks:
    """The ``StopEvents`` of a worker: the executor knows the runs, the pool their threads."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.running = parts.executor.runs
        self.is_running = parts.executor.is_running
        self.set_abort = parts.executor.request_stop
        self.stop_coroutine = parts.executor.event_loop.stop
        self.leave_coroutine = parts.executor.event_loop.leave
        self.may_begin = parts.may_begin
        self.check_begin = parts.check_begin

    def ended_without_thread(self, run: JobRun, thread_id: int) -> None:
        parts = self._parts
        outcome = parts.executor.end_without_thread(run)
        parts.releaser.put_urgently(outcome)
        with parts.slots.removal_lock:
            rest = parts.slots.replace_thread(thread_id)
            if rest is not None:
                # The other jobs of the queue: this worker may stop soon, and another can run them now.
                parts.return_jobs([rest])
        parts.events.send(signals.thread_left_behind, job=run.job, duration=outcome.duration)
        parts.on_thread_left()


class FetcherCallbacks:
    """The ``FetchEvents`` of a worker."""

    def __init__(self, parts: Parts) -> None:
        self.may_claim = parts.may_claim
        self.return_jobs = parts.return_jobs
        self.on_claiming = parts.events.claim_started
        self.on_nothing_claimed = parts.events.nothing_claimed
        self.on_claimed = parts.events.jobs_claimed
        self.on_trouble = parts.events.database_trouble
        self.on_close = parts.claimer.close


class ListenerCallbacks:
    """The ``ListenEvents`` of a worker: the heartbeat sends the proof that notifications arrive."""

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self.channel = parts.proof_channel
        self.sender = parts.sender
        self.request_proof = parts.heartbeat.wake
        self.on_connecting = parts.events.listening_starting
        self.on_listening = parts.events.listening_started
        self.on_lost = parts.events.listening_lost
        self.on_control = parts.heartbeat.read_control_soon

    def on_reconnected(self) -> None:
        # A migration may have been announced meanwhile.
        self.on_migration()

    def on_migration(self) -> None:
        # Recovery checks the version of the schema.
        self._parts.schema_version.check_soon()
        self._parts.recovery.wake()
