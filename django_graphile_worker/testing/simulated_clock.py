"""``clock()``: the time of a test, which stands still until the test moves it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from types import FunctionType
from typing import Any, cast

from django.conf import settings
from django.db.models.functions import Now
from django.utils import timezone

from django_graphile_worker import simulation
from django_graphile_worker.exceptions import GraphileWorkerError, InvalidJobError, InvalidTypeError

# The open clock.
current: Clock | None = None


class Clock:
    """The clock that ``clock()`` opens. ``now()`` is its time."""

    def __init__(self, start: datetime) -> None:
        # What the clock shows. While ``run_jobs()`` catches up, it is the time at which the job runs.
        self.shown = start
        # The time that the test has moved the clock to.
        self.target = start
        # By place: the time up to which ``run_jobs()`` has run everything, and what else it keeps from call to call.
        self.caught_up: dict[Any, datetime] = {}
        self.ticks: dict[Any, Any] = {}
        self.start = start

    def __call__(self) -> datetime:
        """Return the time, aware if ``USE_TZ`` is on."""
        return as_django_has_it(self.shown)

    def advance(self, delta: timedelta | None = None, /, **units: float) -> datetime:
        """Move the clock forward by a timedelta, or by its arguments: ``advance(days=3)``; return the new time."""
        return self.move_to(self.target + _delta(delta, units))

    def move_to(self, moment: datetime) -> datetime:
        """Move the clock forward to a time; return it."""
        new = _aware(moment)
        if self.shown != self.target:
            raise GraphileWorkerError("Only a test can move the clock, not a job. Return from the job first.")
        if new < self.target:
            raise InvalidJobError(
                f"The clock shows {self.target.isoformat()} and cannot move back to {new.isoformat()}: jobs have run "
                "since then. Open a clock at the earlier time, clock(at), in a test of its own."
            )
        self.shown = self.target = new
        return self()


@contextmanager
def clock(at: datetime | None = None) -> Iterator[Clock]:
    """Open a clock that starts at the present, or at ``at``, and stands still until the test moves it.

    Jobs that are added, run, retried or scheduled meanwhile follow it, and so do ``django.utils.timezone.now()`` and
    the database function ``Now()`` of Django.
    """
    global current
    if current is not None:
        raise GraphileWorkerError(
            f"A clock is open already, and shows {current.target.isoformat()}. Move it, with advance() or move_to()."
        )
    opened = Clock(datetime.now(UTC) if at is None else _aware(at))
    now = cast("FunctionType", timezone.now)
    code, as_postgresql = now.__code__, Now.as_postgresql
    current, simulation.now = opened, lambda: opened.shown
    # The code and not the name: models and other modules refer to the function itself.
    now.__code__ = moved_now.__code__
    Now.as_postgresql = moved_as_postgresql  # type: ignore[assignment, method-assign]
    try:
        yield opened
    finally:
        now.__code__ = code
        Now.as_postgresql = as_postgresql  # type: ignore[method-assign]
        current = simulation.now = None


def _delta(delta: timedelta | None, units: dict[str, float]) -> timedelta:
    if (delta is None) == (not units) or (delta is not None and not isinstance(delta, timedelta)):
        got = "both" if delta is not None and units else repr(delta)
        raise InvalidTypeError(f"advance(): expected a timedelta, or days=, hours=, minutes=, seconds=, got {got}.")
    moved = timedelta(**units) if delta is None else delta
    if moved < timedelta(0):
        raise InvalidJobError(
            f"advance(): the clock cannot move back by {moved}: jobs have run since then. "
            "Open a clock at an earlier time, clock(at), in a test of its own."
        )
    return moved


def _aware(moment: datetime) -> datetime:
    if not isinstance(moment, datetime):
        raise InvalidTypeError(f"clock: expected a datetime, got {moment!r}.")
    if timezone.is_naive(moment):
        moment = timezone.make_aware(moment, timezone.get_default_timezone())
    return moment.astimezone(UTC)


def as_django_has_it(moment: datetime) -> datetime:
    """Return an aware time as ``timezone.now()`` returns it: naive without ``USE_TZ``."""
    return moment if settings.USE_TZ else timezone.make_naive(moment, timezone.get_default_timezone())


def shown() -> datetime:
    """Return the time of the open clock."""
    assert simulation.now is not None
    return simulation.now()


def moved_now() -> datetime:
    """Return the time of the clock, in place of the present time of this process.

    This code runs in place of that of ``django.utils.timezone.now()``.
    """
    # Late import: it runs with the global names of another module.
    from django_graphile_worker.testing.simulated_clock import as_django_has_it, shown

    return as_django_has_it(shown())


def moved_as_postgresql(expression: Any, compiler: Any, connection: Any, **context: Any) -> tuple[str, list[Any]]:
    """Return the time of the clock as SQL, in place of the present time of the database."""
    return "%s::timestamptz", [shown().isoformat()]
