"""``add``, and the verbs that change jobs: ``ACTIONS`` has them, each with its function of the API."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import api, registry
from django_graphile_worker.api.add import logged_names
from django_graphile_worker.api.change import CancelResult, cancel_by_key, cancel_jobs, retry_jobs, run_next, run_now
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.crontab.parser import Json5Error, parse_json5
from django_graphile_worker.job_options import OPTIONS, JobOption, Kind
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.arguments import Argument, job_id, number, pair, time
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import both, counted
from django_graphile_worker.management.operator.jobs import chosen_criteria
from django_graphile_worker.management.operator.verb import BY, Options, Verb, did_you_mean, name_of_user
from django_graphile_worker.sql.inspection import job_list
from django_graphile_worker.sql.inspection.error_groups import error_groups
from django_graphile_worker.sql.inspection.job_list import State
from django_graphile_worker.sql.install.catalog import refuse_breaking_migration
from django_graphile_worker.sql.job_actions import changes
from django_graphile_worker.text import quoted

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
KEY = Argument("--key", "KEY", "The key of a job; may be given several times.", action="append", dest="job_keys")
FAILURES: Any = {"choices": ("failed", "retrying"), "default": "failed"}


def _argument_of(option: JobOption) -> Argument:
    more: dict[Kind, dict[str, Any]] = {
        Kind.CHOICE: {"choices": [value for value, _ in option.choices]},
        Kind.TEXTS: {"action": "append"},
        Kind.PAIRS: {"action": "append", "kind": pair},
        Kind.NUMBER: {"kind": number()},
        Kind.TIME: {"kind": time},
    }
    metavar = "" if option.kind is Kind.CHOICE else option.metavar
    return Argument(f"--{option.argument}", metavar, option.help, dest=option.name, **more.get(option.kind, {}))


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
    arguments = (
        Argument("task", "TASK", "The identifier of the task."),
        Argument("payload", "PAYLOAD", "The payload as JSON or JSON5; - reads it from standard input.", nargs="?"),
        *(_argument_of(option) for option in OPTIONS.values()),
    )

    def run(self, console: Console, options: Options) -> None:
        name = options["task"]
        with open_queue(**console.place) as queue:
            refuse_breaking_migration(queue.cursor, schema=queue.schema)
        known = registry.tasks.get(name)
        # add_job() does not log this name: the console shows the warning below.
        logged_names.add(name)
        values = {option: options[option] for option in OPTIONS}
        values["headers"] = dict(values["headers"] or {})
        job = api.add_job(known or name, _payload_from(options["payload"]), **values, **console.place)
        if known is None:
            hint = did_you_mean(name, registry.tasks.identifiers())
            console.warn(f"This project has no task {name!r}: the job waits for a worker that has it.{hint}")
        if console.is_json:
            console.dump(dataclasses.asdict(job))
            return
        # A job that was replaced has a revision.
        what = "Already exists:" if job.existed else "Replaced" if job.revision else "Added"
        console.done(f"{what} {_line(job, console.now())}")


def _payload_from(text: str | None) -> Any:
    """Parse a payload as JSON, or as JSON5 if it is not JSON; read it from standard input if the text is ``-``."""
    if text is None:
        return None
    source = "payload" if text != "-" else "payload from standard input"
    if text == "-":
        text = sys.stdin.read()
    try:
        return parse_json5(text)
    except RecursionError:
        raise CommandError(f"{source}: the value is nested too deeply.") from None
    except Json5Error as error:
        raise CommandError(
            f"{source}: expected JSON or JSON5 (quoted for the shell, like '{{\"order\": 1}}'), "
            f"got {quoted(text)}: {error}."
        ) from None


def _line(job: Job, now: datetime) -> str:
    """Return ``send_receipt #42: run at 2026-05-01 12:00:00 (in 5 m), 0 of 25 attempts used``."""
    parts = [f"run at {both(job.run_at, now)}", f"{job.attempts} of {job.max_attempts} attempts used"]
    parts += [f"queue {job.queue_name}"] if job.queue_name else []
    parts += [f"key {job.key}"] if job.key else []
    return f"{job.task_identifier} #{job.id}: {', '.join(parts)}"


@dataclasses.dataclass(frozen=True, kw_only=True)
class JobAction(Verb):
    """A verb that changes jobs by their ids: those that it can change, then it raises an error about the others."""

    name: str
    summary: str
    description: str
    examples: Sequence[str] = ("42", "42 43 44")
    # What is said of each job that was changed.
    done: str = ""
    # Why it may have left a job in one of its states.
    why_left: str = "was running a moment ago: try again"
    # The function of the API, and the one that takes the key of a job, if there is one.
    change: Callable[..., Any]
    change_by_key: Callable[..., Any] | None = None
    # Their parameters.
    arguments: Sequence[Argument] = ()
    needs_ids: bool = True

    def add_arguments(self, parser: CommandParser) -> None:
        Argument("job_ids", "ID", "The ids of the jobs.", job_id, nargs="+" if self.needs_ids else "*").add_to(parser)
        if self.change_by_key is not None:
            KEY.add_to(parser)
        super().add_arguments(parser)

    def values(self, options: Options) -> dict[str, Any]:
        """Return the values of the options for the functions."""
        return {argument.dest: options[argument.dest] for argument in self.arguments}

    def run(self, console: Console, options: Options) -> None:
        ids, keys = list(dict.fromkeys(options["job_ids"])), list(dict.fromkeys(options.get("job_keys") or ()))
        if not ids and not keys:
            raise CommandError("Ids of jobs or --key are required.")
        values = self.values(options) | console.place
        by_key = {key: self.change_by_key(key, **values) for key in keys} if self.change_by_key else {}
        self.report(console, ids, self.change(ids, **values), by_key)

    def report(self, console: Console, ids: Sequence[int], changed: Any, by_key: Mapping[str, Any]) -> None:
        found = [job for job in by_key.values() if job is not None]
        jobs: list[Job] = [*changed, *found]
        if console.is_json:
            console.dump([dataclasses.asdict(job) for job in jobs])
        else:
            now = console.now()
            for job in jobs:
                console.done(f"{self.done} {_line(job, now)}")
        for job in found:
            if job.was_running:
                console.warn(f"#{job.id} is running and will finish; it has lost its key, and is not retried.")
        missing = [f"There is no job with the key {key!r}." for key, job in by_key.items() if job is None]
        left = [each for each in ids if each not in {job.id for job in changed}]
        if missing or left:
            raise CommandError(" ".join([*missing, *([self._complaint(console, left, len(ids))] if left else [])]))

    def _complaint(self, console: Console, left: Sequence[int], number: int) -> str:
        """Return why jobs were not changed."""
        changed_states = changes.STATES[self.name.replace("-", "_")]
        with console.reading() as (cursor, schema, _):
            states = {row.id: row.state for row in job_list.rows(cursor, left, schema=schema)}
        reasons = []
        for each in left:
            state = states.get(each)
            if state is None:
                reason = "does not exist (completed and deleted jobs leave no row)"
            else:
                reason = self.why_left if state in changed_states else STATES[state]
            reasons.append(f"#{each} {reason}")
        were = "was" if len(left) == 1 else "were"
        names = " or ".join(state.value for state in changed_states)
        return (
            f"{len(left)} of {counted(number, 'job')} {were} not changed: {'; '.join(reasons)}. {self.name} changes "
            f"jobs that are {names}."
        )


class Reschedule(JobAction):
    """It needs an option, and warns of jobs that will not run."""

    def values(self, options: Options) -> dict[str, Any]:
        values = super().values(options)
        if all(value is None for value in values.values()):
            raise CommandError(f"One of {', '.join(each.names[0] for each in self.arguments)} is required.")
        return values

    def report(self, console: Console, ids: Sequence[int], changed: Any, by_key: Mapping[str, Any]) -> None:
        spent = [f"#{job.id}" for job in changed if job.attempts >= job.max_attempts]
        if spent:
            console.warn(f"{', '.join(spent)} will still not run: no attempts left. Set --attempts 0, too.")
        super().report(console, ids, changed, by_key)


class Retry(JobAction):
    """It also chooses failed jobs by their task or their error."""

    def values(self, options: Options) -> dict[str, Any]:
        return {} if options["payload"] is None else {"payload": _payload_from(options["payload"])}

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
    error = options["error"]
    with console.reading() as (cursor, schema, _):
        chosen = chosen_criteria(cursor, console, options, schema=schema)
        if chosen is not None and error is not None:
            names = {group.name for group in error_groups(cursor, schema=schema)}
            meant = tuple(name for name in names if name == error or name.endswith(f".{error}"))
            if not meant:
                console.warn(f"No job has failed with {error!r}.")
                return
            chosen = dataclasses.replace(chosen, error_names=meant)
        if chosen is not None:
            yield from job_list.all_job_ids(cursor, chosen, schema=schema)


class Cancel(JobAction):
    """It says of each job what became of it, and also stops running jobs."""

    def values(self, options: Options) -> dict[str, Any]:
        return {"reason": options["reason"], "by": name_of_user(options)}

    def report(self, console: Console, ids: Sequence[int], changed: Any, by_key: Mapping[str, Any]) -> None:
        results = [changed, *by_key.values()]
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
        needs_ids=False,
        arguments=(
            Argument("--task", "TASK", "Choose all failed jobs of this task identifier."),
            Argument("--error", "ERROR", "Choose all jobs that failed with this class of error."),
            Argument("--all", "", "Choose all failed jobs."),
            Argument("--state", "", "Choose jobs in this state (default: failed).", **FAILURES),
            Argument("--payload", "PAYLOAD", "With ids: give the jobs this payload; - reads it from standard input."),
            Argument("--dry-run", "", "Only count the jobs that would be tried again."),
        ),
    ),
    Reschedule(
        name="reschedule",
        summary="Change when, how often and with which priority jobs run.",
        description="Options that are not given leave their values unchanged. A failed job that gets a time gets all "
        "its attempts again, unless --attempts or --max-attempts say otherwise. Running jobs are not changed.",
        examples=("42 --run-at +1h", "42 43 --run-at +1h --priority 5", "42 --run-at 2027-01-01T08:00"),
        done="Rescheduled",
        change=api.reschedule_jobs,
        arguments=(
            Argument("--run-at", "TIME", "Run at this time: now, +5m, or a time like 2026-05-01T12:00.", time),
            Argument("--priority", "N", "Set the priority; lower numbers run first.", number()),
            Argument("--attempts", "N", "Set the number of attempts made so far.", number(0)),
            Argument("--max-attempts", "N", "Set the number of attempts allowed.", number(1)),
        ),
    ),
    JobAction(
        name="fail",
        summary="Mark jobs as permanently failed.",
        description="The attempts of waiting jobs are used up, and the jobs are kept for inspection. The reason is "
        "added to the error that a job has. Failed jobs and running jobs are not changed.",
        examples=("42", '42 43 --reason "The customer is gone."'),
        done="Permanently failed",
        change=lambda ids, reason, **place: api.permanently_fail_jobs(ids, reason, **place),
        arguments=(Argument("--reason", "TEXT", "Add this text to last_error."),),
    ),
    JobAction(
        name="delete",
        summary="Delete jobs as if they had succeeded.",
        description="Waiting and failed jobs are deleted without being run. Running jobs are not changed; one that is "
        "named by its key finishes, without the key, and is not retried. To stop running jobs use cancel.",
        examples=("42", "42 43 44", "--key search-index"),
        done="Deleted",
        change=api.complete_jobs,
        change_by_key=api.remove_job,
        needs_ids=False,
    ),
    Cancel(
        name="cancel",
        summary="Remove jobs that wait, and stop jobs that run.",
        description="Delete jobs that wait, and have workers stop jobs that run. A cancelled job is not retried. The "
        "results and the history keep who cancelled it, and why. A job that a worker of Node.js runs cannot be "
        "stopped.",
        examples=("42", '42 43 --reason "The customer is gone."', "--key report:7 --by maria"),
        change=cancel_jobs,
        change_by_key=cancel_by_key,
        needs_ids=False,
        arguments=(Argument("--reason", "TEXT", "Why; kept in the results and the history.", default=""), BY),
    ),
)
