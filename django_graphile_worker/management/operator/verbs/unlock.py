"""``unlock``: unlock the jobs and queues of workers that have ended."""

from __future__ import annotations

from collections.abc import Sequence

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.management.operator.worker_states import has_fresh_heartbeat, worker_state
from django_graphile_worker.sql.inspection.lock_holders import Holder, holders
from django_graphile_worker.text import shown

# The most locks to count for a worker: more than a worker can hold.
MOST_LOCKS = 1_000_000

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
            console.say(console.style.SUCCESS(f"Unlocked {shown(holder.id)}: {_held(holder)}."))
        if any(not holder.is_registered for holder in found):
            console.warn("Unregistered workers send no heartbeat: this command cannot check that they have ended.")

    def _find(self, console: Console, worker_ids: Sequence[str]) -> list[Holder]:
        with console.reading() as (cursor, schema, _):
            found = holders(cursor, worker_ids, schema=schema, most_locks=MOST_LOCKS)
            missing = [each for each in worker_ids if each not in {holder.id for holder in found}]
            every_holder = holders(cursor, schema=schema) if missing else []
        if missing:
            hint = did_you_mean(missing[0], [holder.id for holder in every_holder])
            names = ", ".join(map(repr, missing))
            raise CommandError(f"Expected workers that hold jobs or queues, got {names}; none was unlocked.{hint}")
        return found


def _held(holder: Holder) -> str:
    return f"{counted(holder.jobs, 'job')} and {counted(holder.queues, 'queue')}"


def _refusal(alive: Sequence[Holder]) -> str:
    found = ", ".join(f"{shown(holder.id)} ({worker_state(holder)}, {_held(holder)})" for holder in alive)
    return (
        f"Expected workers that have ended, got some with a recent heartbeat: {found}. {RISK} Stop them first, "
        "or use --force. None was unlocked."
    )
