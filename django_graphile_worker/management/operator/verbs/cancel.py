"""``cancel``: remove jobs that wait, and stop jobs that run."""

from __future__ import annotations

import getpass
from collections.abc import Sequence
from dataclasses import asdict
from itertools import chain

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.api.change import CancelResult, cancel_by_key, cancel_jobs
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.verb import Options, Verb


class Cancel(Verb):
    name = "cancel"
    summary = "Remove jobs that wait, and stop jobs that run."
    description = (
        "Delete jobs that wait, and have workers stop jobs that run. A cancelled job is not retried. The results and "
        "the history keep who cancelled it, and why. A job that a worker of Node.js runs cannot be stopped."
    )
    examples = ("42", '42 43 --reason "The customer is gone."', "--key report:7 --by maria")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_ids", nargs="*", type=arguments.job_id, metavar="ID", help="The ids of the jobs.")
        parser.add_argument(
            "--key", action="append", dest="job_keys", metavar="KEY", help="The key of a job. It can be repeated."
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="Why; kept in the results and the history.")
        parser.add_argument("--by", metavar="NAME", help="Who; by default the user of the operating system.")

    def run(self, console: Console, options: Options) -> None:
        ids, keys = options["job_ids"], list(dict.fromkeys(options["job_keys"] or ()))
        if not ids and not keys:
            raise CommandError("Expected ids of jobs, or --key, got neither.")
        by = _user() if options["by"] is None else options["by"]
        why = {"reason": options["reason"], "by": by, **console.place}
        by_key = {key: cancel_by_key(key, **why) for key in keys}
        found = _joined([cancel_jobs(ids, **why), *by_key.values()])
        without_job = [key for key, each in by_key.items() if each == CancelResult()]
        if console.is_json:
            console.dump(asdict(found) | {"keys_without_job": without_job})
        else:
            self._report(console, found, without_job)

    def _report(self, console: Console, found: CancelResult, without_job: Sequence[str]) -> None:
        if found.removed:
            console.say(console.style.SUCCESS(f"Removed {_named(found.removed)}."))
        if found.stopping:
            console.say(console.style.SUCCESS(f"Stopping {_named(found.stopping)}: the workers are told."))
        if found.unstoppable:
            console.warn(
                f"A worker of Node.js runs {_named(found.unstoppable)}, and cannot be told to stop. If it fails, it is "
                "not retried."
            )
        if found.ended:
            console.warn(f"Not cancelled, because it has ended: {_named(found.ended)}.")
        if found.unknown:
            console.warn(f"Not cancelled, because there is no such job, or no more: {_named(found.unknown)}.")
        for key in without_job:
            console.warn(f"No job has the key {key!r}.")


def _joined(results: Sequence[CancelResult]) -> CancelResult:
    fields = CancelResult.__dataclass_fields__
    return CancelResult(
        **{name: tuple(sorted(set(chain.from_iterable(getattr(each, name) for each in results)))) for name in fields}
    )


def _named(job_ids: Sequence[int]) -> str:
    """Return ``2 jobs (#42, #43)``."""
    return f"{counted(len(job_ids), 'job')} ({', '.join(f'#{each}' for each in job_ids)})"


def _user() -> str:
    """Return the name of the user of the operating system; in a container there may be none."""
    try:
        return getpass.getuser()
    except (KeyError, OSError):
        return ""
