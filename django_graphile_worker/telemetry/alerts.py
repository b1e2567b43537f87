"""What is told of problems, and when: facts, the state of before and a time in; news and the new state out. Pure.

An alert is told when it begins, again after REPEAT if its number has grown, and when it is over: when QUIET_ROUNDS
rounds did not find it. The state is JSON; all times in it are seconds since 1970, by the clock of the database.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from django_graphile_worker.setting_types import AlertSettings
from django_graphile_worker.text import readable_duration

# The form of the state. A state of another form counts as none: what fires is told once more.
VERSION = 1
# So many rounds must not find an alert before it is over: a condition that comes and goes is one alert.
QUIET_ROUNDS = 5
# "Usual" is an average of about so many seconds, and fewer jobs are never many.
USUAL_SECONDS = 86_400.0
FEWEST_MORE = 10
# So many kinds of errors are judged; a kind is one class of errors in one task.
MAX_ERRORS = 2_000
# Those that nothing failed with for so long are forgotten, and so are the oldest of too many.
FORGET_ERRORS = 30 * 86_400.0
MAX_KNOWN = 2 * MAX_ERRORS


class Kind(NamedTuple):
    """A kind of alert: the setting that switches it off, if any, what its end means, and the verb that shows more."""

    setting: str
    over: str
    look: str


NO_WORKER, PERMANENTLY_FAILED, NEW_ERROR, MORE_ERRORS = "no_worker", "permanently_failed", "new_error", "more_errors"
TOO_MANY_ERRORS = "too_many_errors"
SCHEDULES = ("schedule_late", "schedule_missed", "schedule_failing")
# In the order in which a message has them.
KINDS = {
    NO_WORKER: Kind("NO_WORKER", "A worker runs.", "workers"),
    "oldest_ready": Kind("OLDEST_READY", "Jobs start in time again.", "status"),
    PERMANENTLY_FAILED: Kind("PERMANENTLY_FAILED", "No such job is left.", "errors"),
    NEW_ERROR: Kind("NEW_ERROR", "No job waits after this error.", "errors"),
    MORE_ERRORS: Kind("MORE_ERRORS", "They are as many as usual.", "errors"),
    TOO_MANY_ERRORS: Kind("", "All of them are judged again.", "errors"),
    SCHEDULES[0]: Kind("SCHEDULES", "It is not late any more.", "schedules"),
    SCHEDULES[1]: Kind("SCHEDULES", "It has missed no time for a day.", "schedules"),
    SCHEDULES[2]: Kind("SCHEDULES", "It does not fail any more, or it is disabled.", "schedules"),
    "paused": Kind("PAUSED", "It is not paused any more.", "pause"),
    "old_transaction": Kind("OLD_TRANSACTION", "It has ended.", "doctor"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Condition:
    """Something that is wrong now."""

    kind: str
    # The task, the schedule, or what is paused; with the name of the error, if it is about one.
    subject: str = ""
    error: str = ""
    # A sentence without its period.
    text: str
    detail: str = ""
    since: float | None = None
    # What grows, for kinds that are told again when it has grown.
    number: int | None = None

    @property
    def key(self) -> str:
        return f"{self.kind}\n{self.subject}\n{self.error}"


class ErrorFacts(NamedTuple):
    """The jobs of a task that failed with one kind of error."""

    task: str
    name: str
    # Jobs that have failed permanently, or wait for their next attempt; and those that have failed permanently.
    number: int
    failed: int
    is_more: bool
    since: float
    detail: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What was read from the database in one round."""

    now: float
    errors: Sequence[ErrorFacts] = ()
    # Whether there are more of them: nothing is known of those that were not read.
    has_more_errors: bool = False
    # When the first of the live workers started; None if no worker is alive.
    alive_since: float | None = None
    # When a worker was alive before that, which may be after the last round; None if nothing tells it.
    lived_at: float | None = None
    # Conditions that need no state.
    others: Sequence[Condition] = ()
    # Kinds that could not be read: nothing is known of them, so they are not over either.
    unknown: Collection[str] = ()


BEGAN, GREW, OVER = "began", "grew", "over"


class News(NamedTuple):
    """News of an alert. ``more`` is by how much its number has grown since it was last told."""

    phase: str
    condition: Condition
    at: float
    more: int = 0


def usable(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a state that was stored, or none if it has another form."""
    return state if state.get("version") == VERSION else {}


def judge(facts: Facts, state: Mapping[str, Any], settings: AlertSettings) -> tuple[list[News], dict[str, Any]]:
    """Return the news, and the new state. What is in the state is told, or waits in it to be told."""
    now, firing = facts.now, dict(state.get("firing", {}))
    known = {key: dict(each) for key, each in state.get("known", {}).items()}
    # The clock of the database may have gone back.
    worker_seen_at = min(max(state.get("worker_seen_at", now), facts.lived_at or 0.0), now)
    found = [*facts.others, *_of_errors(facts, known, firing, state.get("judged_at", now), settings)]
    news: list[News] = []
    if NO_WORKER not in facts.unknown:
        found += _of_workers(facts, worker_seen_at, settings)
        if facts.alive_since is not None:
            news += _gap(facts, facts.alive_since, worker_seen_at, firing, settings)
            worker_seen_at = now
    read = {(each.task, each.name) for each in facts.errors}
    conditions = {
        each.key: _with_earliest_since(each, firing.get(each.key))
        for each in found
        if not _is_ignored(each.subject, settings.ignore)
    }
    for key, condition in conditions.items():
        entry = firing.get(key)
        news += _news_of(condition, entry, now, settings.repeat)
        told_at, told_number = now, condition.number
        if entry is not None and not (news and news[-1].condition is condition):
            told_at = entry["told_at"]
            # After some of the jobs were deleted, those that fail next count as more.
            told_number = None if told_number is None else min(told_number, entry["told_number"] or 0)
        began_at = now if entry is None else entry["began_at"]
        firing[key] = {
            **asdict(condition),
            "began_at": began_at,
            "seen_at": now,
            "told_at": told_at,
            "told_number": told_number,
        }
    for key, entry in list(firing.items()):
        is_quiet = now - entry["seen_at"] >= QUIET_ROUNDS * settings.interval
        if key not in conditions and is_quiet and not _is_unknown(entry, facts, read):
            del firing[key]
            news.append(News(OVER, condition_of(entry), now))
    for each in news:
        if each.condition.error and (entry := known.get(_error_key(each.condition.subject, each.condition.error))):
            entry["told_at"] = now
    return _merged(news), {
        "version": VERSION,
        "judged_at": now,
        "worker_seen_at": worker_seen_at,
        "firing": firing,
        "known": _remembered(known, now),
    }


def condition_of(entry: Mapping[str, Any]) -> Condition:
    """Return the condition of an alert that fires, as it was last seen."""
    return Condition(**{each.name: entry[each.name] for each in fields(Condition)})


def _with_earliest_since(condition: Condition, entry: Mapping[str, Any] | None) -> Condition:
    """Return an error with the earliest time that was read since its alert fires: each retry of a job moves it."""
    if not condition.error or condition.since is None or entry is None or entry["since"] is None:
        return condition
    return replace(condition, since=min(entry["since"], condition.since))


def _news_of(condition: Condition, entry: Mapping[str, Any] | None, now: float, repeat: float) -> Iterable[News]:
    if entry is None:
        yield News(BEGAN, condition, now)
    elif condition.number is not None and now - entry["told_at"] >= repeat:
        more = condition.number - (entry["told_number"] or 0)
        if more > 0:
            yield News(GREW, condition, now, more)


def _is_unknown(entry: Mapping[str, Any], facts: Facts, read: Collection[tuple[str, str]]) -> bool:
    is_missing = facts.has_more_errors and bool(entry["error"]) and (entry["subject"], entry["error"]) not in read
    return is_missing or entry["kind"] in facts.unknown


def _is_ignored(subject: str, patterns: Iterable[str]) -> bool:
    return any(fnmatchcase(subject, pattern) for pattern in patterns)


def _error_key(task: str, name: str) -> str:
    return f"{task}\n{name}"


def _of_errors(
    facts: Facts,
    known: dict[str, dict[str, Any]],
    firing: Mapping[str, Any],
    judged_at: float,
    settings: AlertSettings,
) -> Iterable[Condition]:
    """Yield the conditions of all kinds of errors, and note in ``known`` how many jobs each has."""
    now = facts.now
    if facts.has_more_errors:
        text = f"There are more than {len(facts.errors):,} kinds of errors: only the largest of them are judged"
        yield Condition(kind=TOO_MANY_ERRORS, subject="kinds of errors", text=text)
    for each in facts.errors:
        earlier = known.get(_error_key(each.task, each.name))
        about = Condition(
            kind=NEW_ERROR,
            subject=each.task,
            error=each.name,
            text=f"A new error in {each.task}: {each.name}, {_jobs(each.number, is_more=each.is_more)}",
            detail=each.detail,
            since=each.since,
        )
        if settings.permanently_failed and each.failed:
            text = f"{_jobs(each.failed, is_more=each.is_more)} of {each.task} failed permanently: {each.name}"
            yield replace(about, kind=PERMANENTLY_FAILED, text=text, number=each.failed)
        if settings.new_error and (earlier is None or about.key in firing):
            yield about
        usual = (earlier or {}).get("usual", each.number)
        if settings.more_errors is not None and each.number >= max(settings.more_errors * usual, FEWEST_MORE):
            jobs = _jobs(each.number, is_more=each.is_more)
            text = f"{jobs} of {each.task} fail with {each.name}, usually {usual:,.0f}"
            more = replace(about, kind=MORE_ERRORS, text=text, number=each.number)
            # A new error, and one that was told just now, usually becomes more.
            if more.key in firing or now - (earlier or {}).get("told_at", -math.inf) >= settings.repeat:
                yield more
        if earlier is None:
            known[_error_key(each.task, each.name)] = {"usual": each.number, "seen_at": now}
    if PERMANENTLY_FAILED not in facts.unknown:
        _note_usual(facts, known, max(now - judged_at, 0.0))


def _note_usual(facts: Facts, known: Mapping[str, dict[str, Any]], seconds: float) -> None:
    """Move the averages towards what was read; a number that may be too low lowers none."""
    numbers = {_error_key(each.task, each.name): each for each in facts.errors}
    weight = 1 - math.exp(-seconds / USUAL_SECONDS)
    for key, entry in known.items():
        found = numbers.get(key)
        is_exact = not (found.is_more if found else facts.has_more_errors)
        number = found.number if found else 0
        if is_exact or number > entry["usual"]:
            entry["usual"] = round(entry["usual"] + weight * (number - entry["usual"]), 3)
        if found:
            entry["seen_at"] = facts.now


def _jobs(number: int, *, is_more: bool) -> str:
    return f"{number:,}{'+' if is_more else ''} {'job' if number == 1 else 'jobs'}"


def _remembered(known: Mapping[str, dict[str, Any]], now: float) -> dict[str, dict[str, Any]]:
    kept = {key: each for key, each in known.items() if now - each["seen_at"] < FORGET_ERRORS}
    latest = sorted(kept, key=lambda key: -kept[key]["seen_at"])[:MAX_KNOWN]
    return {key: kept[key] for key in latest}


def _of_workers(facts: Facts, seen_at: float, settings: AlertSettings) -> Iterable[Condition]:
    missing = facts.now - seen_at
    if facts.alive_since is None and settings.no_worker is not None and missing >= settings.no_worker:
        text = f"No worker has been alive for {readable_duration(missing)}"
        yield Condition(kind=NO_WORKER, text=text, detail="Start one: manage.py runworker", since=seen_at)


def _gap(
    facts: Facts, alive_since: float, seen_at: float, firing: Mapping[str, Any], settings: AlertSettings
) -> Iterable[News]:
    """Yield the news that no worker was alive, which nobody could tell meanwhile: it is over when it is told."""
    missing = alive_since - seen_at
    has_been_told = any(entry["kind"] == NO_WORKER for entry in firing.values())
    if settings.no_worker is not None and missing >= settings.no_worker and not has_been_told:
        text = f"No worker was alive for {readable_duration(missing)}"
        yield News(OVER, Condition(kind=NO_WORKER, text=text, since=seen_at), facts.now)


def _merged(news: Sequence[News]) -> list[News]:
    """Return the news in the order of their kinds; of those that say the same of one error, the gravest."""
    order = {kind: place for place, kind in enumerate(KINDS)}
    found: dict[object, News] = {}
    for each in sorted(news, key=lambda each: order.get(each.condition.kind, 0)):
        condition = each.condition
        same = (condition.subject, condition.error) if condition.error else condition.key
        found.setdefault((each.phase, same), each)
    return list(found.values())
