"""``run``, ``workers``, ``unlock`` and ``sweep``: the verbs about workers, and about what dead workers left behind."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser
from django.core.management.color import Style
from django.db import transaction

from django_graphile_worker import api, signals
from django_graphile_worker.api.connection import open_place
from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import Cell, Column, counted
from django_graphile_worker.management.operator.lookups import has_fresh_heartbeat, running_jobs, worker_state
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.management.options import add_worker_arguments
from django_graphile_worker.management.worker_command import WorkerCommand
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import recovery
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.sql.recovery import Exhausted
from django_graphile_worker.sql.workers import wake_workers
from django_graphile_worker.text import shown
from django_graphile_worker.worker.maintenance.recovery import BEATS_WATCHED, DeadWorkerDetector


class Workers(Verb):
    name = "workers"
    summary = "List workers and their jobs."
    description = (
        "List the workers of this package with their state: alive, stopping, or silent for longer than WORKER_TIMEOUT "
        "(other workers, or sweep, recover their jobs). Workers that hold jobs and do not register, such as those of "
        "graphile-worker for Node.js, come last."
    )
    examples = ("", "--json")

    def run(self, console: Console, options: Options) -> None:
        with console.reading() as (cursor, schema, now):
            found = holders(cursor, schema=schema)
        if console.is_json:
            console.dump([_worker_as_dict(holder) for holder in found])
        elif found:
            console.table(_WORKER_COLUMNS, [_worker_row(holder, now, console.style) for holder in found])
        else:
            console.note("No workers. Start one with: manage.py runworker")


_WORKER_COLUMNS = (
    Column("WORKER"),
    Column("STATE"),
    Column("HOST", gives_way=True),
    Column("PID", is_number=True),
    Column("SINCE", gives_way=True),
    Column("HEARTBEAT"),
    Column("LISTENS"),
    Column("RUNNING", is_number=True),
    Column("HOLDS JOBS"),
    Column("TASKS RUNNING", gives_way=True),
)


def _worker_row(holder: Holder, now: datetime, style: Style) -> list[Cell | str]:
    about = holder.metadata
    running = running_jobs(holder)
    since = holder.started_at or holder.oldest_lock
    heartbeat = holder.last_heartbeat_at
    return [
        holder.id,
        _state_cell(holder, style),
        str(about.get("host", "")),
        str(about.get("pid", "")),
        formatting.both(since, now),
        "-" if heartbeat is None else formatting.relative(heartbeat, now),
        _listens(about.get("is_listening")),
        str(len(running)) if holder.is_registered else "",
        _held(holder),
        ", ".join(sorted({str(job.get("task", "")) for job in running})),
    ]


def _listens(is_listening: object) -> str:
    return "" if is_listening is None else "yes" if is_listening is True else "no"


def _held(holder: Holder) -> str:
    return f"{counted(holder.jobs, 'job')}, {counted(holder.queues, 'queue')}" if holder.queues else str(holder.jobs)


def _state_cell(holder: Holder, style: Style) -> Cell:
    state = worker_state(holder)
    paints = {
        "alive": style.SUCCESS,
        "silent": style.ERROR,
        "stopping": style.WARNING,
        "unregistered": style.MIGRATE_LABEL,
    }
    return Cell(state, paints[state])


def _worker_as_dict(holder: Holder) -> dict[str, Any]:
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

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "worker_ids", nargs="+", metavar="WORKER", help="The ids of the workers, as workers lists them."
        )
        parser.add_argument("--force", action="store_true", help="Unlock workers with a recent heartbeat, too.")

    def run(self, console: Console, options: Options) -> None:
        worker_ids = list(dict.fromkeys(options["worker_ids"]))
        found = self._find(console, worker_ids)
        alive = [holder for holder in found if has_fresh_heartbeat(holder)]
        if alive and not options["force"]:
            raise CommandError(_refusal(alive))
        api.force_unlock_workers([holder.id for holder in found], **console.place)
        if console.is_json:
            console.dump([{"id": each.id, "freed_jobs": each.jobs, "freed_queues": each.queues} for each in found])
            return
        for holder in found:
            console.say(console.style.SUCCESS(f"Unlocked {shown(holder.id)}: {_holds(holder)}."))
        if any(not holder.is_registered for holder in found):
            console.warn("Unregistered workers send no heartbeat: this command cannot check that they have ended.")

    def _find(self, console: Console, worker_ids: Sequence[str]) -> list[Holder]:
        with console.reading() as (cursor, schema, _):
            found = holders(cursor, worker_ids, schema=schema, most_locks=MAX_LOCKS)
            missing = [each for each in worker_ids if each not in {holder.id for holder in found}]
            every_holder = holders(cursor, schema=schema) if missing else []
        if missing:
            hint = did_you_mean(missing[0], [holder.id for holder in every_holder])
            names = ", ".join(map(repr, missing))
            raise CommandError(f"No worker was unlocked: no jobs or queues are held by {names}.{hint}")
        return found


def _holds(holder: Holder) -> str:
    return f"{counted(holder.jobs, 'job')} and {counted(holder.queues, 'queue')}"


def _refusal(alive: Sequence[Holder]) -> str:
    found = ", ".join(f"{shown(holder.id)} ({worker_state(holder)}, {_holds(holder)})" for holder in alive)
    return f"These workers have a recent heartbeat: {found}. {RISK} Stop them first, or use --force. None was unlocked."


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

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only show what would be unlocked.")
        parser.add_argument(
            "--at-once",
            action="store_true",
            help="Do not watch silent workers first: for workers that have certainly ended.",
        )

    def run(self, console: Console, options: Options) -> None:
        dead = None if options["at_once"] else self._watch(console)
        swept = sweep(console.using, console.installation, dead, is_rehearsal=options["dry_run"])
        if console.is_json:
            console.dump({**swept._asdict(), "dry_run": options["dry_run"]})
            return
        self._report(console, swept, "Would unlock" if options["dry_run"] else "Unlocked")

    def _watch(self, console: Console) -> list[recovery.LateWorker]:
        def announce(silent: int, seconds: float) -> None:
            console.note(f"Watching {counted(silent, 'silent worker')} for {seconds:g} s, in case of a heartbeat ...")

        return watch_silent_workers(
            console.using, console.installation, timeout=console.settings.worker_timeout, on_begin=announce
        )

    def _report(self, console: Console, swept: Swept, verb: str) -> None:
        if not any(swept):
            console.say("Nothing to unlock: no dead worker, no stale lock.")
            return
        for worker_id in swept.dead_worker_ids:
            console.say(f"Dead: {shown(worker_id)}")
        of_dead = f"{counted(len(swept.job_ids), 'job')} and {counted(swept.queues, 'queue')} of dead workers"
        stale = f"{counted(swept.stale_jobs, 'job')} and {counted(swept.stale_queues, 'queue')} with stale locks"
        console.say(console.style.SUCCESS(f"{verb} {of_dead}, {stale}."))


def sweep(
    using: str | None,
    installation: str | None = None,
    dead: Sequence[recovery.LateWorker] | None = None,
    *,
    is_rehearsal: bool = False,
) -> Swept:
    """Recover the jobs and queues of dead workers in one transaction; for a rehearsal, roll it back.

    Without ``dead``, every worker that is silent at this moment counts as dead.
    """
    place = place_of(using, installation)
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
        unlocked = recovery.release_stale_locks(queue.cursor, schema=queue.schema, keeping=queue.keeping)
        unlocked_number = len(recovered.job_ids) + len(recovered.queue_ids) + unlocked.jobs + unlocked.queues
        if unlocked_number and settings.notify:
            wake_workers(queue.cursor, unlocked_number, schema=queue.schema)
        if is_rehearsal:
            transaction.set_rollback(True, using=queue.alias)
    queues = len(recovered.queue_ids)
    swept = Swept(recovered.dead_worker_ids, recovered.job_ids, queues, unlocked.jobs, unlocked.queues)
    if not is_rehearsal:
        _send_signals(swept, recovered.exhausted + unlocked.exhausted, place)
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


LOOK_INTERVAL = 1.0
# If two checks are further apart than this, in seconds, this process was suspended in between, and watching restarts.
MAX_GAP = 10.0

monotonic = time.monotonic
pause = time.sleep


def watch_silent_workers(
    using: str | None,
    installation: str | None = None,
    *,
    timeout: float,
    on_begin: Callable[[int, float], None],
) -> list[recovery.LateWorker]:
    """Watch until each silent worker has sent a heartbeat or is dead; return the dead workers.

    After a change of the database's clock, or a long outage of the database, all workers are silent by that clock until
    their next heartbeat. They are therefore watched for as long as each live worker needs to send a heartbeat.

    If there are silent workers, ``on_begin`` is called with their number and the seconds for which they are watched.
    """
    detector = DeadWorkerDetector(monotonic, longest_gap=MAX_GAP)
    is_begun = False
    while True:
        late = _late_workers(using, installation, timeout)
        dead = detector.find_dead(late)
        silent = [worker for worker in late if worker.is_silent]
        if len(dead) >= len(silent):
            return dead
        if not is_begun:
            on_begin(len(silent), BEATS_WATCHED * max(worker.heartbeat_seconds for worker in silent))
            is_begun = True
        pause(min(detector.until_next, LOOK_INTERVAL))


def _late_workers(using: str | None, installation: str | None, timeout: float) -> list[recovery.LateWorker]:
    place = place_of(using, installation)
    heartbeat = place.settings.heartbeat_interval
    with open_place(place) as queue:
        queue.refuse_hidden_tables()
        return recovery.read_fleet(queue.cursor, schema=queue.schema, timeout=timeout, heartbeat=heartbeat).late


class Run(Verb):
    name = "run"
    summary = "Run a worker: the same as runworker."
    description = "Run the jobs in the queue until stopped: for sites where another app has a command runworker."
    examples = ("", "-j 20 --processes 2", "--once")
    has_usual_options = False

    def add_arguments(self, parser: CommandParser) -> None:
        add_worker_arguments(parser)
        parser.add_argument("--skip-checks", action="store_true", help="Skip system checks.")

    def run(self, console: Console, options: Options) -> None:
        command = WorkerCommand(no_color=options["no_color"], force_color=options["force_color"])
        command.stdout, command.stderr, command.style = console.out, console.err, console.style
        # Django sets this on the command that it calls itself.
        command._called_from_command_line = console.owns_process
        rest = {name: value for name, value in options.items() if name not in {"verb", "stdout", "stderr"}}
        command.execute(**rest)
