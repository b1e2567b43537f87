"""The queue on one screen: ``status``, also as a health check."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.crontab.phrases import format_phrase
from django_graphile_worker.management.operator import tables, times, values
from django_graphile_worker.management.operator.desk import Desk
from django_graphile_worker.management.operator.fleet import running_jobs, worker_state
from django_graphile_worker.management.operator.tables import Cell
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.inspection import counts, overview
from django_graphile_worker.sql.inspection.counts import Count
from django_graphile_worker.sql.inspection.criteria import STATES, Criteria, State
from django_graphile_worker.sql.inspection.holders import Holder, holders

# Above this share of the NOTIFY queue something is wrong: it is mostly empty.
FULL_NOTIFY_QUEUE = 0.1
DEFAULT_AGE = timedelta(minutes=5)
# Nobody acts differently on eleven thousand than on ten.
CAP = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The queue at one moment."""

    now: datetime
    counts: dict[State, Count]
    earliest: dict[State, datetime | None]
    holders: Sequence[Holder]
    # How full the server's queue of notifications is, from 0 to 1.
    notify_queue_usage: float = 0.0

    @property
    def waiting_seconds(self) -> float:
        """How long the oldest ready job has been due."""
        due = self.earliest[State.READY]
        return 0.0 if due is None else max(0.0, (times.aware(self.now) - times.aware(due)).total_seconds())

    def workers(self, *states: str) -> list[Holder]:
        return [holder for holder in self.holders if worker_state(holder) in states]

    @property
    def listeners(self) -> int:
        return sum(holder.metadata.get("is_listening") is True for holder in self.workers("alive", "stopping"))

    @property
    def running(self) -> int:
        return sum(len(running_jobs(holder)) for holder in self.workers("alive", "stopping"))


def read_status(desk: Desk) -> Status:
    with desk.reading() as (cursor, schema, now):
        return Status(
            now=now,
            counts=counts.count_states(cursor, Criteria(), schema=schema, most=CAP),
            earliest={state: counts.earliest(cursor, state, schema=schema) for state in STATES},
            holders=holders(cursor, schema=schema),
            notify_queue_usage=overview.notify_queue_usage(cursor),
        )


class ShowStatus(Verb):
    name = "status"
    aliases = ("stats",)
    summary = "Show the queue on one screen; with --check, tell by the exit code whether it is well."
    description = (
        f"Counts jobs by state (up to {CAP:,} each), and workers. With --check it fails, and says why, when "
        "fewer workers are alive than --min-workers, when a job has been ready for longer than --max-age, when "
        "more jobs than --max-failed have failed for good, or when a silent worker still holds jobs."
    )
    examples = ("", "--check", "--check --max-age 15m --max-failed 100 --min-workers 2", "--json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--check", action="store_true", help="Exit with 1 when the queue is not well.")
        parser.add_argument(
            "--max-age",
            type=values.period,
            default=DEFAULT_AGE,
            metavar="PERIOD",
            help="With --check: how long a ready job may wait (default: 5m).",
        )
        parser.add_argument(
            "--min-workers",
            type=values.not_negative,
            default=1,
            metavar="N",
            help="With --check: how many workers must be alive (default: 1).",
        )
        parser.add_argument(
            "--max-failed",
            type=values.not_negative,
            metavar="N",
            help="With --check: how many jobs may have failed for good (default: any number).",
        )

    def run(self, desk: Desk, options: Options) -> None:
        status = read_status(desk)
        problems = find_problems(status, options)
        if desk.is_json:
            desk.dump(_as_dict(status, problems))
        else:
            desk.say(_as_text(desk, status))
        if options["check"] and problems:
            raise CommandError(f"Expected a healthy queue, got: {'; '.join(problems)}.")


def find_problems(status: Status, options: Options) -> list[str]:
    """What is wrong, in words."""
    problems = []
    alive, wanted = len(status.workers("alive")), options["min_workers"]
    if alive < wanted:
        problems.append(f"{alive} workers alive instead of {wanted}")
    if status.waiting_seconds > options["max_age"].total_seconds():
        waited, allowed = times.span(status.waiting_seconds), format_phrase(options["max_age"])
        problems.append(f"a job has been ready for {waited}, longer than {allowed}")
    failed, allowed_failures = status.counts[State.FAILED].number, options["max_failed"]
    if allowed_failures is not None and failed > allowed_failures:
        problems.append(f"{_shown(status.counts[State.FAILED])} permanently failed jobs, more than {allowed_failures}")
    holding = [holder for holder in status.workers("silent") if holder.jobs or holder.queues]
    if holding:
        problems.append(f"{len(holding)} silent workers hold jobs (sweep takes them back)")
    if status.notify_queue_usage > FULL_NOTIFY_QUEUE:
        share = f"{status.notify_queue_usage:.0%}"
        problems.append(f"the server's NOTIFY queue is {share} full (a session listens in a long transaction)")
    return problems


def _shown(count: Count) -> str:
    return f"{count.number}{'+' if count.is_more else ''}"


def _as_text(desk: Desk, status: Status) -> str:
    style, found = desk.style, status.counts
    alive, silent = len(status.workers("alive")), len(status.workers("silent"))
    ready, scheduled, running, retrying, failed = (_shown(found[state]) for state in _ORDER)
    oldest = f", the oldest for {times.span(status.waiting_seconds)}" if found[State.READY].number else ""
    following = status.earliest[State.SCHEDULED]
    return tables.facts(
        [
            ("ready", f"{ready}{oldest}"),
            ("scheduled", f"{scheduled}{f', the next {times.both(following, status.now)}' if following else ''}"),
            ("running", f"{running} held by workers; {status.running} say they run"),
            ("retrying", Cell(retrying, style.WARNING if found[State.RETRYING].number else None)),
            ("permanently failed", Cell(failed, style.ERROR if found[State.FAILED].number else None)),
            ("workers alive", Cell(str(alive), style.SUCCESS if alive else style.ERROR)),
            ("workers listening", str(status.listeners)),
            ("workers stopping", str(len(status.workers("stopping")))),
            ("workers silent", Cell(str(silent), style.ERROR if silent else None)),
            ("other holders", str(len(status.workers("unregistered")))),
        ]
    )


_ORDER = (State.READY, State.SCHEDULED, State.RUNNING, State.RETRYING, State.FAILED)


def _as_dict(status: Status, problems: Sequence[str]) -> dict[str, Any]:
    return {
        "now": status.now,
        "healthy": not problems,
        "problems": list(problems),
        "oldest_ready_seconds": status.waiting_seconds,
        "jobs": {
            state.value: {
                "count": status.counts[state].number,
                "is_capped": status.counts[state].is_more,
                "earliest": status.earliest[state],
            }
            for state in _ORDER
        },
        "workers": {
            **{state: len(status.workers(state)) for state in ("alive", "stopping", "silent", "unregistered")},
            "listening": status.listeners,
        },
    }
