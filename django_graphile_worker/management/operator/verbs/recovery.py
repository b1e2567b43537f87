"""Taking jobs from workers that are gone: ``unlock`` and ``sweep``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from django.core.management.base import CommandError, CommandParser
from django.db import transaction

from django_graphile_worker import api, signals
from django_graphile_worker.api.connection import open_place
from django_graphile_worker.escaping import shown
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.liveness import watch_the_silent
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.management.operator.verbs.workers import has_beaten_lately, worker_state
from django_graphile_worker.routing import Place, place_of
from django_graphile_worker.sql import recovery
from django_graphile_worker.sql.exhausted_jobs import Exhausted
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders

# More than a fleet can hold; in one go, because a worker is buried with the first of its jobs.
MOST_RECOVERED = 1_000_000

RISK = (
    "A job whose worker still runs it would be run a second time, at the same time, and beside it the next job of "
    "its queue."
)


class Unlock(Verb):
    name = "unlock"
    summary = "Take the jobs and queues from workers that are certainly gone."
    description = (
        f"Frees everything that these workers hold, at once; attempts stay counted. {RISK} So a worker whose "
        "heartbeat is fresh is refused without --force. Workers of this package need no unlocking: a dead one's jobs "
        "are taken back within WORKER_TIMEOUT, see sweep."
    )
    examples = ("worker-1a2b3c", "worker-1a2b3c worker-4d5e6f", "django-worker-0123456789abcdef01 --force")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("worker_ids", nargs="+", metavar="WORKER", help="Ids of workers, as workers lists them.")
        parser.add_argument("--force", action="store_true", help="Also if a worker has a fresh heartbeat.")

    def run(self, desk: Console, options: Options) -> None:
        worker_ids = list(dict.fromkeys(options["worker_ids"]))
        found = self._find(desk, worker_ids)
        alive = [holder for holder in found if has_beaten_lately(holder)]
        if alive and not options["force"]:
            raise CommandError(_refusal(alive))
        api.force_unlock_workers([holder.id for holder in found], **desk.place)
        if desk.is_json:
            desk.dump([{"id": each.id, "freed_jobs": each.jobs, "freed_queues": each.queues} for each in found])
            return
        for holder in found:
            desk.say(desk.style.SUCCESS(f"Unlocked {shown(holder.id)}: {_held(holder)}."))
        if any(not holder.is_registered for holder in found):
            desk.warn("Unregistered workers have no heartbeat that could tell that they are gone.")

    def _find(self, desk: Console, worker_ids: Sequence[str]) -> list[Holder]:
        with desk.reading() as (cursor, schema, _):
            found = holders(cursor, worker_ids, schema=schema, most_locks=MOST_RECOVERED)
            missing = [each for each in worker_ids if each not in {holder.id for holder in found}]
            everybody = holders(cursor, schema=schema) if missing else []
        if missing:
            hint = did_you_mean(missing[0], [holder.id for holder in everybody])
            names = ", ".join(map(repr, missing))
            raise CommandError(f"Expected workers that hold something, got {names}, who does not; none unlocked.{hint}")
        return found


def _held(holder: Holder) -> str:
    return f"{counted(holder.jobs, 'job')} and {counted(holder.queues, 'queue')}"


def _refusal(alive: Sequence[Holder]) -> str:
    whos = ", ".join(f"{shown(holder.id)} ({worker_state(holder)}, {_held(holder)})" for holder in alive)
    return (
        f"Expected workers that are gone, got some with a fresh heartbeat: {whos}. {RISK} Stop them first, "
        "or give --force. None was unlocked."
    )


class Swept(NamedTuple):
    """What a sweep found, and freed unless it was only to look."""

    dead_worker_ids: tuple[str, ...]
    job_ids: tuple[int, ...]
    queues: int
    stale_jobs: int
    stale_queues: int


class Sweep(Verb):
    name = "sweep"
    summary = "Take the jobs of dead workers back now."
    description = (
        "Does what every running worker does now and then: frees what workers hold that have not beaten for "
        "WORKER_TIMEOUT (their jobs get the attempt back), and what unregistered holders have held for four hours. "
        "For when no worker runs, or there is no time to wait for one. Silent workers are watched for two of their "
        "heartbeat intervals first: after the database's clock was set, or the database was away, the living seem "
        "dead until they beat again."
    )
    examples = ("--dry-run", "", "--at-once")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--dry-run", action="store_true", help="Only tell what would be freed.")
        parser.add_argument(
            "--at-once",
            action="store_true",
            help="Do not watch silent workers first: for when you know that they are gone.",
        )

    def run(self, desk: Console, options: Options) -> None:
        dead = None if options["at_once"] else self._watch(desk)
        swept = sweep(desk.using, desk.installation, dead, is_rehearsal=options["dry_run"])
        if desk.is_json:
            desk.dump({**swept._asdict(), "dry_run": options["dry_run"]})
            return
        self._tell(desk, swept, "Would free" if options["dry_run"] else "Freed")

    def _watch(self, desk: Console) -> list[recovery.LateWorker]:
        def tell(silent: int, seconds: float) -> None:
            desk.note(f"Watching {counted(silent, 'silent worker')} for {seconds:g} s, in case of a beat after all ...")

        return watch_the_silent(desk.using, desk.installation, timeout=desk.settings.worker_timeout, on_begin=tell)

    def _tell(self, desk: Console, swept: Swept, verb: str) -> None:
        if not any(swept):
            desk.say("Nothing to free: no dead worker, no stale lock.")
            return
        for worker_id in swept.dead_worker_ids:
            desk.say(f"Dead: {shown(worker_id)}")
        of_dead = f"{counted(len(swept.job_ids), 'job')} and {counted(swept.queues, 'queue')} of dead workers"
        stale = f"{counted(swept.stale_jobs, 'job')} and {counted(swept.stale_queues, 'queue')} with stale locks"
        desk.say(desk.style.SUCCESS(f"{verb} {of_dead}, {stale}."))


def sweep(
    using: str | None,
    installation: str | None = None,
    dead: Sequence[recovery.LateWorker] | None = None,
    *,
    is_rehearsal: bool = False,
) -> Swept:
    """Free what the dead hold, in one transaction; a rehearsal does it too, and takes it back.

    Without ``dead``, everybody is who is silent at this moment.
    """
    place = place_of(using, installation)
    settings = place.settings
    with open_place(place) as queue, transaction.atomic(using=queue.alias):
        queue.refuse_blindness()
        recovered = recovery.recover(
            queue.cursor, dead, schema=queue.schema, timeout=settings.worker_timeout, limit=MOST_RECOVERED
        )
        unlocked = recovery.release_stale_locks(queue.cursor, schema=queue.schema)
        freed = len(recovered.job_ids) + len(recovered.queue_ids) + unlocked.jobs + unlocked.queues
        if freed and settings.notify:
            recovery.wake_workers(queue.cursor, freed, schema=queue.schema)
        if is_rehearsal:
            transaction.set_rollback(True, using=queue.alias)
    freed_queues = len(recovered.queue_ids)
    swept = Swept(recovered.dead_worker_ids, recovered.job_ids, freed_queues, unlocked.jobs, unlocked.queues)
    if not is_rehearsal:
        _announce(swept, recovered.exhausted + unlocked.exhausted, place)
    return swept


def _announce(swept: Swept, exhausted: Sequence[Exhausted], place: Place) -> None:
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
