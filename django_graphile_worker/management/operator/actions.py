"""``add``, and the actions on jobs that the admin has, too: ``retry``, ``cancel``, ``delete`` and others.

``ACTIONS`` has the actions that change jobs by their ids, each with its function of the API.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api, registry
from django_graphile_worker.api.add import logged_names
from django_graphile_worker.api.change import CancelResult, cancel_by_key, cancel_jobs, retry_jobs, run_next, run_now
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.job_options import OPTIONS, JobOption, Kind
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import verb
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted, job_line
from django_graphile_worker.management.operator.jobs import chosen_criteria
from django_graphile_worker.management.operator.verb import Options, Verb, did_you_mean
from django_graphile_worker.sql.inspection import job_list
from django_graphile_worker.sql.inspection.error_groups import error_groups
from django_graphile_worker.sql.inspection.job_list import Criteria, State
from django_graphile_worker.sql.install.catalog import refuse_breaking_migration
from django_graphile_worker.sql.job_actions import changes

# What is said of a job that an action has left as it was.
STATES = {
    State.READY: "is due already",
    State.LIMITED: "is due already, and waits for a limit",
    State.SCHEDULED: "is not due yet",
    State.RETRYING: "is not due yet",
    State.FAILED: "has failed permanently",
    State.RUNNING: "is running",
}
# The number of jobs that one transaction changes: small enough that no worker waits for it.
BATCH = 1_000

Place = Mapping[str, Any]


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
            kind = _kind_of(option)
            parser.add_argument(f"--{option.argument}", dest=option.name, help=option.help, **kind)

    def run(self, console: Console, options: Options) -> None:
        name = options["task"]
        with open_queue(**console.place) as queue:
            refuse_breaking_migration(queue.cursor, schema=queue.schema)
        known = registry.tasks.get(name)
        # add_job() does not log this name: the console shows the warning below.
        logged_names.add(name)
        values = {option: options[option] for option in OPTIONS}
        job = api.add_job(known or name, verb.payload_from(options["payload"]), **values, **console.place)
        if known is None:
            hint = did_you_mean(name, registry.tasks.identifiers())
            console.warn(f"This project has no task {name!r}: the job waits for a worker that has it.{hint}")
        if console.is_json:
            console.dump(dataclasses.asdict(job))
            return
        # A job that was replaced has a revision.
        what = "Already exists:" if job.existed else "Replaced" if job.revision else "Added"
        console.done(f"{what} {job_line(job, console.now())}")


def _kind_of(option: JobOption) -> dict[str, Any]:
    """Return how argparse takes an option of a job."""
    match option.kind:
        case Kind.CHOICE:
            return {"choices": [value for value, _ in option.choices]}
        case Kind.TEXTS:
            return {"metavar": option.metavar, "action": "append"}
        case Kind.NUMBER:
            return {"metavar": option.metavar, "type": verb.whole}
        case Kind.TIME:
            return {"metavar": option.metavar, "type": verb.run_at}
        case Kind.TEXT:
            return {"metavar": option.metavar}


def _add_ids(parser: CommandParser, nargs: str) -> None:
    parser.add_argument("job_ids", nargs=nargs, type=verb.job_id, metavar="ID", help="The ids of the jobs.")


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobAction(Verb):
    """A verb that changes jobs by their ids: those that it can change, then it raises an error about the others."""

    name: str
    summary: str
    description: str
    examples: Sequence[str] = ("42", "42 43 44")
    # What is said of each job that was changed.
    done: str
    # Why it may have left a job in one of its states.
    why_left: str = "was running a moment ago: try again"
    # The function of the API.
    change: Callable[..., list[Job]]
    # The options that the function takes, as argparse does.
    arguments: Mapping[str, Mapping[str, Any]] = dataclasses.field(default_factory=dict)

    @property
    def states(self) -> tuple[State, ...]:
        """The states of the jobs that it changes."""
        return changes.STATES[self.name.replace("-", "_")]

    def add_arguments(self, parser: CommandParser) -> None:
        _add_ids(parser, "+")
        for flag, argument in self.arguments.items():
            parser.add_argument(flag, **argument)

    def values(self, options: Options) -> dict[str, Any]:
        """Return the values of the options for the function."""
        return {name: options[name] for name in (flag[2:].replace("-", "_") for flag in self.arguments)}

    def run(self, console: Console, options: Options) -> None:
        ids = list(dict.fromkeys(options["job_ids"]))
        jobs = self.change(ids, **self.values(options), **console.place)
        self.report(console, jobs)
        if complaint := self.complaint(console, ids, jobs):
            raise CommandError(complaint)

    def report(self, console: Console, jobs: Sequence[Job]) -> None:
        if console.is_json:
            console.dump([dataclasses.asdict(job) for job in jobs])
            return
        now = console.now()
        for job in jobs:
            console.done(f"{self.done} {job_line(job, now)}")

    def complaint(self, console: Console, ids: Sequence[int], changed: Sequence[Job]) -> str:
        """Return why jobs were not changed; empty if all were."""
        left = [each for each in ids if each not in {job.id for job in changed}]
        if not left:
            return ""
        with console.reading() as (cursor, schema, _):
            states = {row.id: row.state for row in job_list.rows(cursor, left, schema=schema)}
        reasons = [f"#{each} {self._reason(states.get(each))}" for each in left]
        were = "was" if len(left) == 1 else "were"
        names = " or ".join(state.value for state in self.states)
        return (
            f"{len(left)} of {counted(len(ids), 'job')} {were} not changed: {'; '.join(reasons)}. {self.name} changes "
            f"jobs that are {names}."
        )

    def _reason(self, state: State | None) -> str:
        if state is None:
            return "does not exist (completed and deleted jobs leave no row)"
        return self.why_left if state in self.states else STATES[state]


class Reschedule(JobAction):
    """It also warns of jobs that will not run."""

    def run(self, console: Console, options: Options) -> None:
        if all(value is None for value in self.values(options).values()):
            raise CommandError(f"One of {', '.join(self.arguments)} is required.")
        super().run(console, options)

    def report(self, console: Console, jobs: Sequence[Job]) -> None:
        spent = [f"#{job.id}" for job in jobs if job.attempts >= job.max_attempts]
        if spent:
            console.warn(f"{', '.join(spent)} will still not run: no attempts left. Set --attempts 0, too.")
        super().report(console, jobs)


class Delete(JobAction):
    """It also takes the keys of jobs."""

    def add_arguments(self, parser: CommandParser) -> None:
        _add_ids(parser, "*")
        parser.add_argument(
            "--key",
            action="append",
            dest="job_keys",
            default=[],
            metavar="KEY",
            help="Delete the job with this key; may be given several times.",
        )

    def run(self, console: Console, options: Options) -> None:
        ids = list(dict.fromkeys(options["job_ids"]))
        if not ids and not options["job_keys"]:
            raise CommandError("Ids of jobs or --key are required.")
        by_key = {key: api.remove_job(key, **console.place) for key in options["job_keys"]}
        removed = [job for job in by_key.values() if job is not None]
        deleted = self.change(ids, **console.place)
        self.report(console, [*deleted, *removed])
        for job in removed:
            if job.was_running:
                console.warn(f"#{job.id} is running and will finish; it has lost its key, and is not retried.")
        missing = [f"There is no job with the key {key!r}." for key, job in by_key.items() if job is None]
        complaints = [*missing, self.complaint(console, ids, deleted)]
        if any(complaints):
            raise CommandError(" ".join(filter(None, complaints)))


class Retry(JobAction):
    """It also chooses failed jobs by their task or their error."""

    def add_arguments(self, parser: CommandParser) -> None:
        _add_ids(parser, "*")
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

    def values(self, options: Options) -> dict[str, Any]:
        return {} if options["payload"] is None else {"payload": verb.payload_from(options["payload"])}

    def run(self, console: Console, options: Options) -> None:
        is_choosing = bool(options["task"] or options["error"] or options["all"])
        if is_choosing == bool(options["job_ids"]):
            raise CommandError("Either ids of jobs, or --task, --error or --all, are required.")
        if not is_choosing:
            if options["dry_run"]:
                raise CommandError("--dry-run needs --task, --error or --all.")
            super().run(console, options)
            return
        if options["payload"] is not None:
            raise CommandError("--payload needs ids of jobs.")
        ids = list(_chosen_ids(console, options))
        count = len(ids)
        if not options["dry_run"]:
            # Each batch is a transaction of its own.
            batches = (ids[start : start + BATCH] for start in range(0, len(ids), BATCH))
            count = sum(len(self.change(batch, **console.place)) for batch in batches)
        if console.is_json:
            console.dump({"jobs": count, "dry_run": options["dry_run"]})
        else:
            console.done(f"{counted(count, 'job')} {'would' if options['dry_run'] else 'will'} be tried again.")


def _chosen_ids(console: Console, options: Options) -> Iterator[int]:
    """Find all jobs before the first is changed.

    Then none is missed because it changed its state meanwhile, and none that fails again is retried twice.
    """
    with console.reading() as (cursor, schema, _):
        chosen = chosen_criteria(cursor, console, options, schema=schema)
        if chosen is not None and options["error"] is not None:
            names = {group.name for group in error_groups(cursor, schema=schema)}
            chosen = _with_error(console, chosen, options["error"], names)
        if chosen is None:
            return
        yield from job_list.all_job_ids(cursor, chosen, schema=schema)


def _with_error(console: Console, chosen: Criteria, error: str, names: set[str]) -> Criteria | None:
    """Return the criteria with the names of the error; None, after a warning, if no job has failed with it."""
    meant = tuple(name for name in names if name == error or name.endswith(f".{error}"))
    if meant:
        return dataclasses.replace(chosen, error_names=meant)
    hint = did_you_mean(error, {name.rpartition(".")[2] for name in names} | names)
    console.warn(f"No job has failed with {error!r}.{hint}")
    return None


class Cancel(Verb):
    name = "cancel"
    summary = "Remove jobs that wait, and stop jobs that run."
    description = (
        "Delete jobs that wait, and have workers stop jobs that run. A cancelled job is not retried. The results and "
        "the history keep who cancelled it, and why. A job that a worker of Node.js runs cannot be stopped."
    )
    examples = ("42", '42 43 --reason "The customer is gone."', "--key report:7 --by maria")

    def add_arguments(self, parser: CommandParser) -> None:
        _add_ids(parser, "*")
        parser.add_argument(
            "--key", action="append", dest="job_keys", metavar="KEY", help="The key of a job. It can be repeated."
        )
        parser.add_argument("--reason", default="", metavar="TEXT", help="Why; kept in the results and the history.")
        verb.add_by(parser)

    def run(self, console: Console, options: Options) -> None:
        ids, keys = options["job_ids"], list(dict.fromkeys(options["job_keys"] or ()))
        if not ids and not keys:
            raise CommandError("Ids of jobs or --key are required.")
        why = {"reason": options["reason"], "by": verb.name_of_user(options), **console.place}
        by_key = {key: cancel_by_key(key, **why) for key in keys}
        results = [cancel_jobs(ids, **why), *by_key.values()]
        found = {
            field.name: sorted(set(chain.from_iterable(getattr(each, field.name) for each in results)))
            for field in dataclasses.fields(CancelResult)
        }
        without_job = [key for key, each in by_key.items() if each == CancelResult()]
        if console.is_json:
            console.dump(found | {"keys_without_job": without_job})
            return
        for fate, (write, sentence) in _FATES.items():
            if found[fate]:
                ids_of_fate = ", ".join(f"#{each}" for each in found[fate])
                write(console, sentence.format(f"{counted(len(found[fate]), 'job')} ({ids_of_fate})"))
        for key in without_job:
            console.warn(f"No job has the key {key!r}.")


_FATES: dict[str, tuple[Callable[[Console, str], None], str]] = {
    "removed": (Console.done, "Removed {}."),
    "stopping": (Console.done, "Stopping {}: the workers are told."),
    "unstoppable": (
        Console.warn,
        "A worker of Node.js runs {}, and cannot be told to stop. If it fails, it is not retried.",
    ),
    "ended": (Console.warn, "Not cancelled, because it has ended: {}."),
    "unknown": (Console.warn, "Not cancelled, because there is no such job, or no more: {}."),
}


def _number(kind: Callable[[str], int], text: str) -> dict[str, Any]:
    return {"type": kind, "metavar": "N", "help": text}


ACTIONS = (
    JobAction(
        name="run-now",
        summary="Make waiting jobs due now.",
        description="Scheduled jobs, and jobs that wait for their next attempt, become due. Their attempts, their "
        "priority and their order stay. For failed jobs use retry. Running jobs are not changed.",
        done="Due now:",
        change=run_now,
    ),
    JobAction(
        name="run-next",
        summary="Move due jobs before all others.",
        description="Due jobs get a priority one lower than that of every other job that waits. A job of a queue still "
        "waits until the queue is free, and a limited job for its limit. Running jobs are not changed.",
        done="Next:",
        why_left="is before all other jobs already",
        change=run_next,
    ),
    Retry(
        name="retry",
        summary="Try failed jobs again, now and with all their attempts.",
        description="Retry the jobs with these ids, or all permanently failed jobs that --task, --error (as errors "
        "lists it) or --all selects; with --state retrying, jobs that wait for their next attempt. Running jobs are "
        "not changed.",
        examples=(
            "42 43",
            "42 --payload '{\"order\": 1}'",
            "--task send_receipt",
            "--error TimeoutError --dry-run",
            "--all",
            "--all --state retrying",
        ),
        done="To be tried again:",
        change=retry_jobs,
    ),
    Reschedule(
        name="reschedule",
        summary="Change when, how often and with which priority jobs run.",
        description="Options that are not given leave their values unchanged. A failed job that gets a time gets all "
        "its attempts again, unless --attempts or --max-attempts say otherwise. Running jobs are not changed.",
        examples=("42 --run-at +1h", "42 43 --run-at +1h --priority 5", "42 --run-at 2027-01-01T08:00"),
        done="Rescheduled",
        change=api.reschedule_jobs,
        arguments={
            "--run-at": {
                "type": verb.run_at,
                "metavar": "TIME",
                "help": "Run at this time: now, +5m, or a time like 2026-05-01T12:00.",
            },
            "--priority": _number(verb.whole, "Set the priority; lower numbers run first."),
            "--attempts": _number(verb.not_negative, "Set the number of attempts made so far."),
            "--max-attempts": _number(verb.positive, "Set the number of attempts allowed."),
        },
    ),
    JobAction(
        name="fail",
        summary="Mark jobs as permanently failed.",
        description="The attempts of waiting jobs are used up, and the jobs are kept for inspection. The reason is "
        "added to the error that a job has. Failed jobs and running jobs are not changed.",
        examples=("42", '42 43 --reason "The customer is gone."'),
        done="Permanently failed",
        change=lambda ids, reason, **place: api.permanently_fail_jobs(ids, reason, **place),
        arguments={"--reason": {"metavar": "TEXT", "help": "Add this text to last_error."}},
    ),
    Delete(
        name="delete",
        summary="Delete jobs as if they had succeeded.",
        description="Waiting and failed jobs are deleted without being run. Running jobs are not changed; one that is "
        "named by its key finishes, without the key, and is not retried. To stop running jobs use cancel.",
        examples=("42", "42 43 44", "--key search-index"),
        done="Deleted",
        change=api.complete_jobs,
    ),
)
