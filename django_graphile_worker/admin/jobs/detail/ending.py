"""What became of a job that no longer exists: from its result, from the history, or from the admin's log."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.admin.models import DELETION, LogEntry
from django.utils.translation import gettext as _

from django_graphile_worker.admin import audit, error_summary, formatting
from django_graphile_worker.redaction import redact_text
from django_graphile_worker.results.reading import Result, ResultStatus
from django_graphile_worker.sql.inspection.past_attempts import HistoryRow
from django_graphile_worker.sql.results import HistoryOutcome

_CANCELLATION = re.compile(r"Cancelled(?: by (?P<by>.+?))?(?:: (?P<reason>.+)|\.)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a job ended: the class of its badge, a sentence, what else is known, and the time."""

    status: str
    sentence: str
    detail: str = ""
    at: Any = ""


def ending_of(
    kept: Result | None, last: HistoryRow | None, entries: Sequence[LogEntry], *, sees_payloads: bool
) -> Ending | None:
    """Return how a job ended; None if nothing tells."""
    deletion = next((entry for entry in entries if entry.action_flag == DELETION), None)
    ending = None
    if kept is not None:
        ending = _of_result(kept, deletion, sees_payloads)
    elif last is not None:
        ending = _of_attempt(last, deletion, sees_payloads)
    if ending is None and deletion is not None:
        ending = _deleted(deletion, deletion.action_time)
    return ending


def _of_result(kept: Result, deletion: LogEntry | None, sees_payloads: bool) -> Ending:
    if kept.status is ResultStatus.SUCCEEDED:
        return _succeeded(kept.last_started_at, kept.finished_at)
    if kept.status is ResultStatus.CANCELLED:
        return _cancelled(kept.cancelled_by or "", kept.cancel_reason or "", kept.finished_at, sees_payloads)
    if kept.status is ResultStatus.EXPIRED:
        return _expired(kept.finished_at)
    if kept.status is ResultStatus.FAILED:
        return _failed(kept.last_error, kept.finished_at, sees_payloads)
    return _deleted(deletion, kept.finished_at)


def _of_attempt(last: HistoryRow, deletion: LogEntry | None, sees_payloads: bool) -> Ending | None:
    """Return the ending that the last attempt of the history tells; None if the job waited for another attempt."""
    outcome = HistoryOutcome(last.outcome)
    if outcome is HistoryOutcome.SUCCEEDED:
        return _succeeded(last.started_at, last.ended_at)
    if outcome is HistoryOutcome.CANCELLED:
        found = _CANCELLATION.fullmatch(last.error or "")
        by, reason = (found["by"] or "", found["reason"] or "") if found else ("", last.error or "")
        return _cancelled(by, reason, last.ended_at, sees_payloads)
    if outcome is HistoryOutcome.EXPIRED:
        return _expired(last.ended_at)
    if outcome is HistoryOutcome.REMOVED_BY_OPERATOR:
        return _deleted(deletion, last.ended_at)
    if outcome in (HistoryOutcome.PERMANENTLY_FAILED, HistoryOutcome.FAILED_BY_OPERATOR) and deletion is None:
        return _failed(last.error, last.ended_at, sees_payloads)
    return None


def _succeeded(started_at: datetime | None, ended_at: datetime | None) -> Ending:
    at = formatting.relative_time(ended_at)
    if started_at is None or ended_at is None:
        return Ending("succeeded", _("Succeeded"), at=at)
    seconds = max((ended_at - started_at).total_seconds(), 0.0)
    return Ending("succeeded", _("Succeeded in %(duration)s") % {"duration": formatting.duration(seconds)}, at=at)


def _failed(error: str | None, ended_at: datetime | None, sees_payloads: bool) -> Ending:
    summary = error_summary.summarize(error, sees_payloads=sees_payloads).text
    return Ending("failed", _("Failed, then deleted"), summary, formatting.relative_time(ended_at))


def _cancelled(by: str, reason: str, ended_at: datetime | None, sees_payloads: bool) -> Ending:
    sentence = _("Cancelled by %(name)s") % {"name": by} if by else _("Cancelled")
    detail = reason if sees_payloads else redact_text(reason)
    return Ending("removed", sentence, detail, formatting.relative_time(ended_at))


def _expired(ended_at: datetime | None) -> Ending:
    return Ending("removed", _("Expired"), _("No worker had started it in time."), formatting.relative_time(ended_at))


def _deleted(deletion: LogEntry | None, at: datetime | None) -> Ending:
    if deletion is None:
        return Ending("removed", _("Deleted"), at=formatting.relative_time(at))
    sentence = _("Deleted by %(name)s") % {"name": deletion.user}
    return Ending("removed", sentence, audit.message_of(deletion), formatting.relative_time(deletion.action_time))
