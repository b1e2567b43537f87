"""``sweep``: recover the jobs of dead workers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.management.base import CommandParser
from django.db import transaction

from django_graphile_worker import signals
from django_graphile_worker.api.connection import open_place
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.silent_workers import watch_silent_workers
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import recovery
from django_graphile_worker.sql.recovery import Exhausted
from django_graphile_worker.sql.workers import wake_workers
from django_graphile_worker.text import shown

# More than all workers can hold. One statement recovers all jobs, because it also declares their worker dead.
MOST_RECOVERED = 1_000_000


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
            limit=MOST_RECOVERED,
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
