"""The progress of a job or of an action as pages show it: a number, a bar, and an estimate of the time that is left."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from django.utils import formats, timezone
from django.utils.translation import gettext as _

from django_graphile_worker.admin import formatting
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.sql.progress import Progress

# Before these, the rate is that of the first steps only, and the estimate would jump.
SHORTEST_TIME = 3.0
SMALLEST_PART = 0.01


@dataclass(frozen=True, slots=True)
class ShownProgress:
    """A progress; `percent` is None without a total, and `remaining` is empty without a meaningful estimate."""

    percent: int | None
    amount: str
    message: str
    remaining: str


def shown_progress(
    progress: Progress | None,
    *,
    sees_payloads: bool,
    started_at: datetime | None = None,
    now: datetime | None = None,
) -> ShownProgress | None:
    """Return the progress of an attempt that started at this time, with the message that the user may see."""
    if progress is None:
        return None
    left = None
    if started_at is not None and progress.updated_at is not None:
        elapsed = (progress.updated_at - started_at).total_seconds()
        silent = ((now or timezone.now()) - progress.updated_at).total_seconds()
        left = seconds_left(progress.done, progress.total, elapsed, silent)
    return ShownProgress(
        percent=progress.percent,
        amount=_amount(progress.done, progress.total),
        message=progress.message if sees_payloads else redact_text(progress.message),
        remaining="" if left is None else _("about %(duration)s left") % {"duration": formatting.duration(left, 1)},
    )


def seconds_left(done: float, total: float | None, elapsed: float, silent: float = 0.0) -> float | None:
    """Return how long the rest takes at the rate so far; None if that would not be meaningful.

    ``elapsed`` is the time until the last report, ``silent`` the time since. When the last report is so old that the
    work should have ended, nothing is known.
    """
    if total is None or not 0 < done < total or elapsed < SHORTEST_TIME or done / total < SMALLEST_PART:
        return None
    left = (total - done) * elapsed / done - max(silent, 0.0)
    return left if left >= 1.0 else None


def _amount(done: float, total: float | None) -> str:
    if total is None:
        return _number(done)
    return _("%(done)s of %(total)s") % {"done": _number(done), "total": _number(total)}


def _number(value: float) -> str:
    return formats.number_format(value, 0 if value == int(value) else 1, force_grouping=True)
