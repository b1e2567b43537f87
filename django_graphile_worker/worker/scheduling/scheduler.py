"""The service that fires what is due: schedules of the database, and items of the crontab in the code.

A round reads what is due, decides in Python, and fires. Nothing is locked while this process computes, and nothing that
it remembers decides whether a tick is fired: whichever process dies or pauses, the next round of any worker finds the
true state in the database. What another session has locked is still due, or was fired, when the next round reads it.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import psycopg
from django.conf import settings

from django_graphile_worker import signals
from django_graphile_worker.crontab.times import floor_minute
from django_graphile_worker.recurring import received
from django_graphile_worker.schedules.times import GivenUp
from django_graphile_worker.sql import events
from django_graphile_worker.sql.codecs import naive
from django_graphile_worker.sql.schedules import from_code, runs
from django_graphile_worker.sql.schedules.firing import (
    FIRST_WAIT,
    SHORT_WAIT,
    Decision,
    Due,
    DueItem,
    DueSchedule,
    Fired,
    fire,
    read_due,
)
from django_graphile_worker.sql.schedules.from_code import KnownCrontab
from django_graphile_worker.sql.schedules.listing import named_tasks
from django_graphile_worker.sql.session import forget_plans
from django_graphile_worker.worker.database.connection import WRONG_SERVER
from django_graphile_worker.worker.scheduling.decisions import (
    MAX_ITEMS_AT_ONCE,
    KnownTasks,
    decide_item,
    decide_schedule,
    last_done,
    parts_of,
)
from django_graphile_worker.worker.scheduling.items import HELD_WAIT, CrontabItems
from django_graphile_worker.worker.scheduling.yielding import RETRY_AFTER, Refusals, Yielding
from django_graphile_worker.worker.service import Service, jittered
from django_graphile_worker.worker.task_selection import any_task_finder

if TYPE_CHECKING:
    from django_graphile_worker.worker.database_worker import DatabaseWorker

# Seconds. A worker looks for what is due at least so often, whatever it has heard; with a crontab, four times a minute:
# a process does not notice that its machine was suspended.
LONGEST_WAIT = 60.0
LONGEST_WAIT_WITH_CRONTAB = 15.0
# Seconds after which a round ends and the next reads what is due now.
LONGEST_ROUND = 2.0
# Seconds until schedules that another session has locked are looked for again. They double.
LOCKED_WAIT = 0.4
LONGEST_LOCKED_WAIT = 2.0
# Seconds until a worker looks again whether the schedules of its tasks exist: another may have deleted them while this
# one was suspended.
WRITE_INTERVAL = 60.0
# Errors that are about no schedule: the server is gone, or read-only.
OF_ALL = (psycopg.OperationalError, *WRONG_SERVER)
# Errors that mostly are about no schedule: the role has no rights, the schema is not that of this version. But a
# trigger of the project may raise them for the jobs of one task.
MOSTLY_OF_ALL = (
    psycopg.InternalError,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.UndefinedTable,
    psycopg.errors.UndefinedFunction,
)

Part = TypeVar("Part")


class Tried(NamedTuple):
    """What a round has tried, how many of it no other session had locked or changed, and whether it tried all."""

    decisions: list[Decision]
    won: int
    is_whole: bool


class Scheduler(Service):
    """Fires what is due in one worker schema. Several workers share the work, through the database only."""

    name = "schedules"

    def __init__(self, worker: DatabaseWorker, *, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__(on_trouble=worker.reports.database_trouble)
        self._worker = worker
        self._schema = worker.settings.schema
        self._database = worker.database("schedules")
        self._clock = clock
        # When the next step begins by itself; None while a step is under way.
        self._due_at: float | None = None
        # When schedules are looked for by itself: not with each look for items of the crontab.
        self._schedules_due_at = -math.inf
        self._tasks = KnownTasks(worker.registry, any_task_finder(), clock=clock)
        self._yielding = Yielding(clock)
        self._refusals = Refusals(clock)
        self._locked_wait = LOCKED_WAIT
        self._has_begun = False
        self._has_written = False
        self._write_at = -math.inf
        self.items = CrontabItems(worker.cron_items, self._refusals)
        self._has_begun_items = False
        # When the next schedule is due, as the last round has found it.
        self.next_at: datetime | None = None

    @property
    def has_own_work(self) -> bool:
        """Whether the code of this worker says what to fire. Otherwise it starts when a schedule is expected."""
        return bool(self.items or self._worker.every)

    def expect(self, seconds: float) -> None:
        """Look for due schedules in so many seconds at the latest. Called with each read of what is asked."""
        self.start()
        expected_at, due_at = self._clock() + seconds, self._due_at
        self._schedules_due_at = min(self._schedules_due_at, expected_at)
        if due_at is None or expected_at < due_at:
            self.wake()

    def step(self) -> float:
        """Fire what is due; return the seconds until something is due."""
        self._due_at = None
        delay = min(self.fire_due(), LONGEST_WAIT_WITH_CRONTAB if self.items else LONGEST_WAIT)
        self._due_at = self._clock() + delay
        return delay

    def close(self) -> None:
        self._database.close()

    def fire_due(self) -> float:
        """Fire what is due; return the seconds until the next round."""
        if not self.items:
            return self._fire_schedules()
        try:
            until_item = self._fire_items()
        except Exception:
            # What is wrong with the crontab must not keep schedules from firing, and the other way round. If the
            # database is gone, they fail, too.
            with suppress(Exception):
                self._fire_schedules()
            raise
        return min(until_item, self._fire_schedules())

    def _fire_schedules(self) -> float:
        seconds = self._schedules_due_at - self._clock()
        if seconds > 0 and not self.was_called:
            return seconds
        # If this fails, the next round tries again.
        self._schedules_due_at = -math.inf
        seconds = self._fire_due_schedules()
        # A schedule that was expected meanwhile has called for the next round.
        self._schedules_due_at = self._clock() + min(seconds, LONGEST_WAIT)
        return seconds

    def _fire_due_schedules(self) -> float:
        if self._worker.every and self._clock() >= self._write_at:
            self._write_code_schedules()
        if not self._has_begun:
            self._report_unknown_tasks()
        if self._yielding.wait > 0:
            # Something else has called for this round.
            return self._yielding.wait
        began = self._clock()
        due = self._read()
        if self._yielding.is_of_others(due):
            return self._yielding.wait
        tried = self._fire_all(self._decisions_about(due.schedules, due.now), began, does_yield=True)
        has_lost = tried.won < len(tried.decisions) / 2
        is_next_at_once = self._yielding.note(due, has_lost=has_lost) or not tried.is_whole
        if self._yielding.wait > 0:
            return self._yielding.wait
        if is_next_at_once or (not has_lost and any(_is_still_due(decision, due.now) for decision in tried.decisions)):
            return 0.0
        return self._until_next(due, tried, began)

    def _fire_items(self) -> float:
        began = self._clock()
        now = self._worker.now()
        if now is None:
            with self._database.cursor() as cursor:
                now = from_code.database_now(cursor)
        try:
            if not self.items.has_begun(now):
                self._begin_items(now)
            tried = self._fire_all(self._decisions_about(self._read_items(now), now), began)
        except psycopg.errors.LockNotAvailable:
            # Another session is making the same items known. The schedules must not wait for it.
            return jittered(HELD_WAIT)
        wait = self.items.seconds_until_next(now)
        return max(wait - (self._clock() - began), 0.001) if tried.is_whole and wait > 0 else 0.0

    # Rows of the code.

    def _write_code_schedules(self) -> None:
        """Write the schedules of tasks with an interval. An interval that differs is that of newer or older code.

        The code that starts last wins, as a deploy expects.
        """
        worker = self._worker
        try:
            with self._database.cursor() as cursor:
                taken = from_code.write_every(
                    cursor, worker.every, schema=self._schema, with_changes=not self._has_written, now=worker.now()
                )
        except psycopg.errors.LockNotAvailable:
            # The next round tries again: the other schedules must not wait for whoever is changing one of these.
            return
        if taken and not self._has_written:
            worker.reports.send(signals.schedule_names_taken, names=tuple(taken))
        self._has_written = True
        self._write_at = self._clock() + WRITE_INTERVAL

    def _begin_items(self, now: datetime) -> None:
        """Make the items known, and find out when each is due."""
        names = list(self.items.by_name)
        known = self._known(names)
        if missing := [name for name in names if name not in known]:
            self._make_known(missing, since=self._worker.now())
            known = self._known(names)
        self.items.begin(known, now)
        if not self._has_begun_items:
            with self._database.cursor() as cursor:
                runs.forget_runs(cursor, schema=self._schema)
            self._worker.reports.send(signals.cron_started, items=tuple(self.items.by_name.values()))
            self._has_begun_items = True

    def _known(self, names: Iterable[str]) -> dict[str, KnownCrontab]:
        with self._database.cursor() as cursor:
            return from_code.known_crontabs(cursor, names, schema=self._schema)

    def _make_known(self, names: Sequence[str], since: datetime | None) -> None:
        """Make items known, all at once, or in parts if another session is adding some of them."""
        try:
            with self._database.cursor() as cursor:
                from_code.register(cursor, names, schema=self._schema, since=since)
        except psycopg.errors.LockNotAvailable:
            if len(names) == 1:
                raise
            for part in halves(names):
                self._make_known(part, since)

    # What is due.

    def _report_unknown_tasks(self) -> None:
        with self._database.cursor() as cursor:
            named = named_tasks(cursor, schema=self._schema)
        unknown = tuple(each.task for each in named if self._tasks.get(each.task) is None)
        if unknown:
            self._worker.reports.send(signals.schedule_tasks_not_found, tasks=unknown)
        self._has_begun = True

    def _read(self) -> Due:
        with self._database.cursor() as cursor:
            return read_due(
                cursor,
                schema=self._schema,
                max_schedules=self._yielding.max_schedules,
                unknown_tasks=self._tasks.unknown(),
                failing=self._refusals.left_out_schedules(),
                now=self._worker.now(),
                text=self._yielding.text,
            )

    def _read_items(self, now: datetime) -> Iterator[DueItem]:
        """Yield the items whose tick was not fired yet, in parts: a later part is read when the first was fired."""
        due = list(self.items.due(now).items())
        for start in range(0, len(due), MAX_ITEMS_AT_ONCE):
            ticks = dict(due[start : start + MAX_ITEMS_AT_ONCE])
            while ticks:
                with self._database.cursor() as cursor:
                    rows = from_code.unfired(cursor, ticks, schema=self._schema)
                yield from self.items.with_rows(ticks, rows)
                self._begin_anew([name for name, row in rows.items() if row is None], ticks, now)
                ticks = self.items.note_fired(ticks.keys() - rows.keys(), now)

    def _begin_anew(self, names: Iterable[str], ticks: Mapping[str, datetime], now: datetime) -> None:
        """Make items known whose rows were deleted by hand: they have missed nothing, and a tick of now is due."""
        minute = floor_minute(now)
        for name in names:
            try:
                self._make_known([name], minute if ticks[name] >= minute else now)
            except psycopg.errors.LockNotAvailable:
                self.items.hold(name)

    # What becomes of it.

    def _decisions_about(self, due: Iterable[DueSchedule | DueItem], now: datetime) -> Iterator[Decision]:
        for each in due:
            try:
                decision = self._decide(each, now)
            except Exception as error:  # of a definition without checks, or of a function of the project
                self._note_failure(each, error)
                continue
            if decision is None:
                # It is left to workers that know its task.
                continue
            if isinstance(each, DueItem):
                if decision.missed is not None and not each.is_held:
                    self._report_missed_of(each, decision.missed)
                if decision.jobs:
                    yield decision
                else:
                    self.items.note(each.key, decision.next_at)
            elif decision.task_is_unknown and each.is_from_code:
                # No worker has it in its code any more.
                with self._database.cursor() as cursor:
                    from_code.delete_every(cursor, each, schema=self._schema)
            else:
                yield decision

    def _decide(self, due: DueSchedule | DueItem, now: datetime) -> Decision | None:
        decision: Decision | None
        if isinstance(due, DueItem):
            decision = decide_item(due, now, self.items.look_ahead)
        else:
            is_ours = not due.is_from_code or due.name in self._worker.every
            decision = decide_schedule(due, self._tasks.get(due.task) if is_ours else None, now)
        if decision is None or not decision.jobs or not signals.pre_add_jobs.is_heard():
            return decision
        if isinstance(due, DueItem):
            item = due.item
            task, payload = item.task, json.dumps(item.payload or {})
            cron = item.match if isinstance(item.match, str) else None
            schedule = signals.FiringSchedule(item.name, cron, None, str(item.zone or "UTC"))
        else:
            task, payload, times = due.task, due.payload, due.definition
            schedule = signals.FiringSchedule(due.name, times.cron, times.interval, times.time_zone)
        place = self._worker.place
        jobs = received(
            decision.jobs, task, payload, database=place.using, installation=place.installation, schedule=schedule
        )
        return replace(decision, jobs=jobs)

    def _until_next(self, due: Due, tried: Tried, began: float) -> float:
        """Return the seconds until something is due, after a round that has read all that was due."""
        upcoming = [due.next_at, *(decision.next_at for decision in tried.decisions)]
        self.next_at = next_at = min((moment for moment in upcoming if moment is not None), default=None)
        rest = math.inf if next_at is None else (next_at - due.now).total_seconds() - (self._clock() - began)
        return min(max(rest, 0.0), self._refusals.until_retry(), self._until_unlocked(tried))

    def _until_unlocked(self, tried: Tried) -> float:
        """Return when to look again for schedules that other sessions had locked: they were fired, or are still due."""
        if tried.won == len(tried.decisions):
            self._locked_wait = LOCKED_WAIT
            return math.inf
        wait = self._locked_wait
        self._locked_wait = min(wait * 2, LONGEST_LOCKED_WAIT)
        return jittered(wait)

    # Firing.

    def _fire_all(self, decided: Iterable[Decision], began: float, *, does_yield: bool = False) -> Tried:
        """Fire part by part.

        A worker that finds that others have fired most of a part of the schedules computes no other: what is left is
        read again. The items of the crontab that others have locked are few, and are remembered.
        """
        decisions: list[Decision] = []
        won = 0
        for part in parts_of(decided, self._refusals):
            fired = self._fire_some(part, began)
            decisions += part
            won += fired
            if does_yield and fired < len(part) / 2:
                # Others are at it.
                return Tried(decisions, won, is_whole=True)
            if self._clock() - began > LONGEST_ROUND:
                return Tried(decisions, won, is_whole=False)
        return Tried(decisions, won, is_whole=True)

    def _fire_some(self, decisions: Sequence[Decision], began: float, wait: int = FIRST_WAIT) -> int:
        """Fire decisions in ever smaller parts: one that is refused, or whose job key is locked, delays no other.

        Return how many no other session had locked or changed.
        """
        worker = self._worker
        try:
            with self._database.cursor() as cursor:
                if isinstance(decisions[0].due, DueSchedule):
                    # Plans that were made while there were no runs and no jobs would read all of them for each one.
                    forget_plans(cursor)
                fired = fire(
                    cursor, decisions, schema=self._schema, notify=worker.settings.notify, now=worker.now(), wait=wait
                )
        except psycopg.Error as error:
            is_locked = isinstance(error, psycopg.errors.LockNotAvailable)
            if isinstance(error, OF_ALL) and not is_locked:
                raise
            # Each statement that finds a lock has waited for it.
            is_too_late = is_locked and self._clock() - began > LONGEST_ROUND
            if len(decisions) > 1 and not is_too_late:
                try:
                    return sum(self._fire_some(part, began, SHORT_WAIT) for part in halves(decisions))
                except psycopg.errors.InFailedSqlTransaction:
                    # The transaction of a test allows no other statement after the first error.
                    raise error from None
            is_news = False
            for decision in decisions:
                if is_locked:
                    self._refusals.note_lock(decision.due)
                else:
                    is_news = self._note_failure(decision.due, error)
            if is_news and isinstance(error, MOSTLY_OF_ALL):
                # The next round leaves this one out. If it fails as well, little was tried in vain.
                raise
            return len(decisions)
        self._note_fired(decisions, fired)
        return len(fired)

    def _note_fired(self, decisions: Iterable[Decision], fired: Mapping[int | str, Fired]) -> None:
        on_time: dict[datetime, list[str]] = {}
        for decision in decisions:
            due, done = decision.due, fired.get(decision.due.key)
            if done is not None:
                self._refusals.forget(due.key)
            if isinstance(due, DueSchedule):
                if done is not None:
                    self._report(due, decision, done)
            elif done is None:
                self.items.hold(due.key)
            else:
                self.items.note(due.key, decision.next_at)
                if len(decision.jobs) == 1 and not decision.jobs[0].is_late:
                    on_time.setdefault(decision.jobs[0].at, []).append(due.key)
                else:
                    ticks = tuple(_for_receivers(job.at) for job in decision.jobs)
                    self._worker.reports.send(signals.cron_backfilled, identifier=due.key, ticks=ticks)
        for tick, names in on_time.items():
            self._worker.reports.send(signals.cron_scheduled, identifiers=tuple(names), tick=_for_receivers(tick))

    def _report(self, due: DueSchedule, decision: Decision, done: Fired) -> None:
        send = self._worker.reports.send
        about = {"schedule_id": due.id, "name": due.name, "task": due.task}
        ticks = tuple(_for_receivers(job.at) for job in decision.jobs)
        if done.job_ids:
            send(signals.schedule_fired, **about, ticks=ticks[: len(done.job_ids)], job_ids=tuple(done.job_ids))
        if done.skipped:
            send(signals.schedule_skipped, **about, ticks=ticks[len(done.job_ids) :], reason="overlap")
        if decision.missed is not None and not decision.task_is_unknown:
            send(signals.schedule_missed, **about, **_as_arguments(decision.missed))

    def _report_missed_of(self, due: DueItem, missed: GivenUp) -> None:
        """Report ticks that get no job, in a statement of its own: the row of an item does not move past them.

        Of several workers, one does it, by the identity of the event.
        """
        last = due.last_execution
        event = events.NewEvent(
            kind="schedule_missed",
            subject=due.key,
            details={
                "name": due.key,
                "ticks": missed.number,
                "first_tick": missed.first.isoformat(),
                "last_tick": missed.last.isoformat(),
                "last_execution": None if last is None else last.isoformat(),
            },
            identity=last_done(due.known_since, last).isoformat(),
        )
        is_news = False
        with suppress(psycopg.Error), self._database.cursor() as cursor:
            is_news = events.add(cursor, event, schema=self._schema)
            if is_news:
                runs.note_missed(cursor, due.key, tick=missed.last, number=missed.number, schema=self._schema)
        if is_news:
            self._worker.reports.send(signals.cron_missed, identifier=due.key, **_as_arguments(missed))

    def _note_failure(self, due: DueSchedule | DueItem, error: Exception) -> bool:
        """Leave out what failed for a while; return whether that is news."""
        is_news = self._refusals.note_failure(due)
        if is_news:
            self._on_trouble(str(due), error, RETRY_AFTER)
        return is_news


def halves(parts: Sequence[Part]) -> tuple[Sequence[Part], Sequence[Part]]:
    middle = len(parts) // 2
    return parts[:middle], parts[middle:]


def _is_still_due(decision: Decision, now: datetime) -> bool:
    return decision.next_at is not None and decision.next_at <= now


def _as_arguments(missed: GivenUp) -> dict[str, Any]:
    first, last = _for_receivers(missed.first), _for_receivers(missed.last)
    return {"number": missed.number, "first_tick": first, "last_tick": last}


def _for_receivers(tick: datetime) -> datetime:
    """Return a time as the receivers of the project expect it: aware only with USE_TZ."""
    return tick if settings.USE_TZ else naive(tick)
