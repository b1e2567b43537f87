"""``Progress``: how far a task has got, as a value."""

from __future__ import annotations

import math
from datetime import datetime

from django_graphile_worker.exceptions import InvalidJobError, InvalidTypeError
from django_graphile_worker.frozen import Frozen
from django_graphile_worker.text import storable_text

# A longer message is cut: it is text for a line below a bar.
LONGEST_MESSAGE = 500


class Progress(Frozen):
    """How far a task has got: ``done`` of ``total``. Without a total, only the number that is done is known."""

    done: float
    total: float | None = None
    message: str = ""
    # When it was stored; None for a value that is not stored yet.
    updated_at: datetime | None = None

    @property
    def fraction(self) -> float | None:
        """The part that is done, from 0 to 1; None without a total."""
        if self.total is None:
            return None
        return min(self.done / self.total, 1.0) if self.total else 1.0

    @property
    def percent(self) -> int | None:
        """The part that is done in whole percent, rounded down: 100 means that all of it is done."""
        return None if self.fraction is None else math.floor(self.fraction * 100)


def valid_progress(done: object, total: object = None, message: object = "") -> Progress:
    """Return the arguments of ``helpers.progress()`` as a value; raise for values that no progress can have."""
    if not isinstance(message, str):
        raise InvalidTypeError(f"progress: expected a message (str), got {message!r}.")
    return Progress(
        done=_number("done", done),
        total=None if total is None else _number("total", total),
        message=storable_text(message[:LONGEST_MESSAGE]),
    )


def _number(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InvalidTypeError(
            f"progress: expected {name} to be a number, got {value!r}. Write helpers.progress(3, 7, 'page 3 of 7')."
        )
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 0:
        raise InvalidJobError(f"progress: expected {name} to be a finite number of zero or more, got {value!r}.")
    return number
