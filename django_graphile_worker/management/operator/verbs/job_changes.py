"""The verbs that add and change jobs: ``add``, ``cancel``, ``complete``, ``retry`` and others."""

from __future__ import annotations

import getpass
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from itertools import chain
from typing import ClassVar

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api, registry
from django_graphile_worker.api.add import logged_names
from django_graphile_worker.api.change import CancelResult, cancel_by_key, cancel_jobs, retry_jobs, run_next, run_now
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.job_options import OPTIONS
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.arguments import did_you_mean
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted, job_as_dict, job_line
from django_graphile_worker.management.operator.lookups import chosen_criteria
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection.error_groups import error_groups
from django_graphile_worker.sql.inspection.job_search import search
from django_graphile_worker.sql.inspection.job_search.criteria import Criteria
from django_graphile_worker.sql.install.catalog import refuse_breaking_migration


class ChangeByIds(Verb):
    """A verb that takes ids of jobs. It changes the jobs that it can, then raises an error about the others."""

    done: str
    # The states to which the verb does not apply, each with the reason; running jobs have theirs here.
    unsuited: ClassVar[Mapping[str, str]] = {}

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_ids", nargs="+", type=arguments.job_id, metavar="ID", help="The ids of the jobs.")

    def run(self, console: Console, options: Options) -> None:
        job_ids = list(dict.fromkeys(options["job_ids"]))
        changed = self.change(job_ids, console, options)
        self._report(console, changed)
        left = [job_id for job_id in job_ids if job_id not in {job.id for job in changed}]
        if left:
            raise CommandError(self._complaint(console, job_ids, left))

    @abstractmethod
    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        """Change these jobs, except for running jobs; return the changed jobs."""

    def _report(self, console: Console, changed: Sequence[Job]) -> None:
        if console.is_json:
            console.dump([job_as_dict(job) for job in changed])
            return
        now = console.now()
        for job in changed:
            console.say(console.style.SUCCESS(f"{self.done} {job_line(job, now)}"))

    def _complaint(self, console: Console, job_ids: Sequence[int], left: Sequence[int]) -> str:
        with console.reading() as (cursor, schema, _):
            states = {row.id: row.state for row in search.rows(cursor, left, schema=schema)}
        whys = [f"#{job_id} {self._why_left(states.get(job_id))}" for job_id in left]
        were = "was" if len(left) == 1 else "were"
        return f"{len(left)} of {counted(len(job_ids), 'job')} {were} not changed: {'; '.join(whys)}."

    def _why_left(self, state: str | None) -> str:
        if state is None:
            return "does not exist (completed and removed jobs are deleted)"
        if state == "running":
            return "is running"
        return self.unsuited.get(state) or f"was running a moment ago and is {state} now: try again"


class Add(Verb):
    name = "add"
    summary = "Add a job."
    description = (
        "Options that are not given have the defaults of the task. A task that this project does not have is accepted "
        "with a warning: other workers may have it."
    )
    examples = (
        "send_receipt '{\"order\": 1}'",
        "send_receipt '{order: 1}' --run-at +5m --queue mail --priority 5",
        "rebuild_index - --key index --key-mode preserve_run_at < payload.json",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", help="The identifier of the task.")
        parser.add_argument(
            "payload",
            nargs="?",
            metavar="PAYLOAD",
            help="The payload as JSON or JSON5; - reads it from standard input (default: {}).",
        )
        for option in OPTIONS.values():
            kind = arguments.of_option(option)
            parser.add_argument(f"--{option.argument}", dest=option.name, help=option.help, **kind)

    def run(self, console: Console, options: Options) -> None:
        name = options["task"]
        known = registry.tasks.get(name)
        self._refuse_newer_schema(console)
        # add_job() does not log this name: the console shows the warning below.
        logged_names.add(name)
        job = self._add(console, options)
        if known is None:
            hint = arguments.did_you_mean(name, registry.tasks.identifiers())
            console.warn(f"This project has no task {name!r}: the job waits for a worker that has it.{hint}")
        if console.is_json:
            console.dump(job_as_dict(job))
            return
        console.say(console.style.SUCCESS(f"{_what_happened(job)} {job_line(job, console.now())}"))

    def _refuse_newer_schema(self, console: Console) -> None:
        with open_queue(**console.place) as queue:
            refuse_breaking_migration(queue.cursor, schema=queue.schema)

    def _add(self, console: Console, options: Options) -> Job:
        return api.add_job(
            registry.tasks.get(options["task"]) or options["task"],
            arguments.payload(options["payload"]),
            **{name: options[name] for name in OPTIONS},
            **console.place,
        )


def _what_happened(job: Job) -> str:
    """Return a word for the effect of add_job(): a job that was replaced has a revision."""
    if job.existed:
        return "Already exists:"
    return "Replaced" if job.revision else "Added"


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
            raise CommandError("Ids of jobs or --key are required.")
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


class Complete(ChangeByIds):
    name = "complete"
    aliases = ("delete",)
    summary = "Delete jobs as if they had succeeded."
    description = "Waiting and failed jobs are deleted without being run. Running jobs are not changed."
    examples = ("42", "42 43 44")
    done = "Deleted"

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return api.complete_jobs(job_ids, **console.place)


class Fail(ChangeByIds):
    name = "fail"
    summary = "Mark jobs as permanently failed."
    description = (
        "The attempts of waiting jobs are used up, and the jobs are kept for inspection. The reason is added to the "
        "error that a job has. Failed jobs and running jobs are not changed."
    )
    examples = ("42", '42 43 --reason "The customer is gone."')
    done = "Permanently failed"
    unsuited = {"failed": "has failed permanently already"}

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument("--reason", metavar="TEXT", help="Add this text to last_error.")

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return api.permanently_fail_jobs(job_ids, options["reason"], **console.place)


class Remove(Verb):
    name = "remove"
    summary = "Remove jobs by their keys."
    description = "Delete the job with each key. A running job finishes, without its key, and is not retried."
    examples = ("search-index", "report:7 report:8")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_keys", nargs="+", metavar="KEY", help="The keys of the jobs.")

    def run(self, console: Console, options: Options) -> None:
        found = {key: api.remove_job(key, **console.place) for key in dict.fromkeys(options["job_keys"])}
        jobs = [job for job in found.values() if job is not None]
        if console.is_json:
            console.dump([job_as_dict(job) for job in jobs])
        else:
            self._report(console, jobs)
        missing = [repr(key) for key, job in found.items() if job is None]
        if missing:
            raise CommandError(f"There is no job with the key {', '.join(missing)}.")

    def _report(self, console: Console, jobs: Sequence[Job]) -> None:
        now = console.now()
        for job in jobs:
            console.say(console.style.SUCCESS(f"Removed {job_line(job, now)}"))
            # A row that is returned without its key is still in the table: its worker runs the job.
            if job.key is None:
                console.warn(f"#{job.id} is running and will finish; it has lost its key, and is not retried.")


class Reschedule(ChangeByIds):
    name = "reschedule"
    summary = "Change when, how often and with which priority jobs run."
    description = (
        "Options that are not given leave their values unchanged. A failed job that gets a time gets all its attempts "
        "again, unless --attempts or --max-attempts say otherwise. Running jobs are not changed."
    )
    examples = ("42 --run-at +1h", "42 43 --run-at +1h --priority 5", "42 --run-at 2027-01-01T08:00")
    done = "Rescheduled"

    def add_arguments(self, parser: CommandParser) -> None:
        super().add_arguments(parser)
        parser.add_argument(
            "--run-at",
            type=arguments.run_at,
            metavar="TIME",
            help="Run at this time: now, +5m, or a time like 2026-05-01T12:00.",
        )
        parser.add_argument(
            "--priority", type=arguments.whole, metavar="N", help="Set the priority; lower numbers run first."
        )
        parser.add_argument(
            "--attempts", type=arguments.not_negative, metavar="N", help="Set the number of attempts made so far."
        )
        parser.add_argument(
            "--max-attempts", type=arguments.positive, metavar="N", help="Set the number of attempts allowed."
        )

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        changes = {name: options[name] for name in ("run_at", "priority", "attempts", "max_attempts")}
        if all(value is None for value in changes.values()):
            raise CommandError("One of --run-at, --priority, --attempts and --max-attempts is required.")
        jobs = api.reschedule_jobs(job_ids, **changes, **console.place)
        spent = [f"#{job.id}" for job in jobs if job.attempts >= job.max_attempts]
        if spent:
            console.warn(f"{', '.join(spent)} will still not run: no attempts left. Set --attempts 0, too.")
        return jobs


# The number of jobs that one transaction changes: small enough that no worker waits for it.
BATCH = 1_000


class Retry(ChangeByIds):
    name = "retry"
    summary = "Try failed jobs again, now and with all their attempts."
    description = (
        "Retry the jobs with these ids, or all permanently failed jobs that --task, --error (as errors lists it) or "
        "--all selects; with --state retrying, jobs that wait for their next attempt. Running jobs are not changed."
    )
    examples = (
        "42 43",
        "42 --payload '{\"order\": 1}'",
        "--task send_receipt",
        "--error TimeoutError --dry-run",
        "--all",
        "--all --state retrying",
    )
    done = "To be tried again:"
    unsuited = {
        "ready": "has not failed (run-next moves it to the front)",
        "limited": "has not failed, and waits for a limit",
        "scheduled": "has not failed (use run-now)",
    }

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_ids", nargs="*", type=arguments.job_id, metavar="ID", help="The ids of the jobs.")
        parser.add_argument("--task", metavar="TASK", help="Choose all failed jobs of this task identifier.")
        parser.add_argument("--error", metavar="ERROR", help="Choose all jobs that failed with this class of error.")
        parser.add_argument("--all", action="store_true", help="Choose all failed jobs.")
        parser.add_argument(
            "--state",
            choices=["failed", "retrying"],
            default="failed",
            help="Choose jobs in this state (default: failed).",
        )
        parser.add_argument(
            "--payload",
            metavar="PAYLOAD",
            help="Give the jobs this payload, as JSON or JSON5; - reads it from standard input. Only with ids.",
        )
        parser.add_argument("--dry-run", action="store_true", help="Only count the jobs that would be tried again.")

    def run(self, console: Console, options: Options) -> None:
        is_choosing = bool(options["task"] or options["error"] or options["all"])
        if is_choosing and options["job_ids"]:
            raise CommandError("Ids of jobs cannot be used with --task, --error or --all.")
        if not is_choosing and not options["job_ids"]:
            raise CommandError("Ids of jobs, or one of --task, --error and --all, are required.")
        if options["job_ids"]:
            super().run(console, options)
            return
        if options["payload"] is not None:
            raise CommandError("--payload needs ids of jobs.")
        criteria = self._criteria(console, options)
        count = 0 if criteria is None else sum(self._retry_all(console, criteria, options["dry_run"]))
        verb = "would be" if options["dry_run"] else "will be"
        if console.is_json:
            console.dump({"jobs": count, "dry_run": options["dry_run"]})
        else:
            console.say(console.style.SUCCESS(f"{counted(count, 'job')} {verb} tried again."))

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        if options["dry_run"]:
            raise CommandError("--dry-run needs --task, --error or --all.")
        given = {} if options["payload"] is None else {"payload": arguments.payload(options["payload"])}
        return retry_jobs(job_ids, **given, **console.place)

    def _criteria(self, console: Console, options: Options) -> Criteria | None:
        """Return the chosen criteria; None, after a warning, when the database has no such name."""
        with console.reading() as (cursor, schema, _):
            chosen = chosen_criteria(cursor, console, options, schema=schema)
            if chosen is None or options["error"] is None:
                return chosen
            names = {group.name for group in error_groups(cursor, schema=schema)}
        chosen_names = tuple(
            name for name in names if name == options["error"] or name.endswith(f".{options['error']}")
        )
        if not chosen_names:
            hint = did_you_mean(options["error"], {name.rpartition(".")[2] for name in names} | names)
            console.warn(f"No job has failed with {options['error']!r}.{hint}")
            return None
        return Criteria(state=chosen.state, tasks=chosen.tasks, error_names=chosen_names)

    def _retry_all(self, console: Console, criteria: Criteria, is_rehearsal: bool) -> Iterator[int]:
        """Retry batch by batch, each in a transaction of its own, and yield the number of jobs.

        The jobs are found before the first is changed: then none is missed because it changed its state meanwhile,
        and none that fails again is retried twice.
        """
        ids = self._ids(console, criteria)
        if is_rehearsal:
            yield len(ids)
            return
        for start in range(0, len(ids), BATCH):
            yield len(retry_jobs(ids[start : start + BATCH], **console.place))

    def _ids(self, console: Console, criteria: Criteria) -> list[int]:
        ids: list[int] = []
        after: str | None = None
        with console.reading() as (cursor, schema, _):
            while True:
                found = search.find(cursor, criteria, schema=schema, limit=BATCH, after=after)
                ids += found.ids
                after = found.next_token
                if after is None:
                    return ids


class RunNow(ChangeByIds):
    name = "run-now"
    summary = "Make waiting jobs due now."
    description = (
        "Scheduled jobs, and jobs that wait for their next attempt, become due. Their attempts, their priority and "
        "their order stay. For failed jobs use retry. Running jobs are not changed."
    )
    examples = ("42", "42 43 44")
    done = "Due now:"
    unsuited = {
        "ready": "is due already (run-next moves it to the front)",
        "limited": "is due already, and waits for a limit",
        "failed": "has failed permanently (use retry)",
    }

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return run_now(job_ids, **console.place)


class RunNext(ChangeByIds):
    name = "run-next"
    summary = "Move due jobs before all others."
    description = (
        "Due jobs get a priority one lower than that of every other job that waits. A job of a queue still waits until "
        "the queue is free, and a limited job for its limit. Running jobs are not changed."
    )
    examples = ("42", "42 43 44")
    done = "Next:"
    unsuited = {
        "ready": "is before all other jobs already",
        "limited": "is before all other jobs already",
        "scheduled": "is not due yet (use run-now)",
        "retrying": "is not due yet (use run-now)",
        "failed": "has failed permanently (use retry)",
    }

    def change(self, job_ids: Sequence[int], console: Console, options: Options) -> list[Job]:
        return run_next(job_ids, **console.place)
