"""The terms of a search, such as ``task:send_email``, and their text: links to the list of jobs are made of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, time
from typing import NamedTuple

from django.utils import timezone
from django.utils.dateparse import parse_date, parse_datetime
from django.utils.translation import gettext as _

from django_graphile_worker.crontab.times import parse_time_phrase
from django_graphile_worker.text import closest

MAX_LENGTH = 2_000
MAX_TERMS = 30
# The states of jobs that a worker has yet to run.
WAITING_STATES = "ready,limited,waiting"
# The conditions of a search for jobs. ``payload.`` is followed by a path.
NAMES = (
    "id", "key", "task", "label", "queue", "flag", "state", "priority", "attempts", "exception", "error", "payload",
    "worker", "limit", "created", "due",
)  # fmt: skip

_TOKEN = re.compile(
    r'(?P<minus>-)?(?:(?P<name>[a-z_]+(?:\.[^\s:"]+)?):)?(?:"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<plain>\S+))'
)


_ID = re.compile(r"#?[0-9]{1,19}", re.ASCII)


class SearchTerm(NamedTuple):
    """A condition of a search, such as ``task:send_email``; without a name, a word."""

    name: str
    value: str
    is_negative: bool = False

    def __str__(self) -> str:
        is_plain = bool(self.value) and not re.search(r'[\s"\\]', self.value)
        if is_plain and not self.name:
            # A word that would be read as a condition, as an id or as the opposite is quoted.
            name, colon, _rest = self.value.partition(":")
            is_plain = not (_ID.fullmatch(self.value) or self.value[0] == "-" or (colon and _is_condition(name, NAMES)))
        value = self.value if is_plain else '"' + re.sub(r'(["\\])', r"\\\1", self.value) + '"'
        return ("-" if self.is_negative else "") + (f"{self.name}:{value}" if self.name else value)


def join_terms(terms: Sequence[SearchTerm]) -> str:
    return " ".join(map(str, terms))


def waiting_in_queue(name: str) -> str:
    """Return the search for the jobs of a queue that no worker runs yet: what the pages count of a queue."""
    return join_terms([SearchTerm("queue", name), SearchTerm("state", WAITING_STATES)])


def parse_terms(text: str, names: Sequence[str] = NAMES, *, has_ids: bool = True) -> Iterator[SearchTerm]:
    """Yield the terms of a text whose conditions have these names. With ``has_ids``, a number is the id of a job."""
    for found in _TOKEN.finditer(text[:MAX_LENGTH].replace("\x00", "")):
        quoted, plain = found["quoted"], found["plain"]
        name = found["name"] or ""
        value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
        if not name and quoted is None and value.endswith(":") and _is_condition(value[:-1], names):
            name, value = value[:-1], ""
        if name and not _is_condition(name, names):
            # A colon inside a word, as in the job key order:4711.
            name, value = "", f"{name}:{value}"
        elif not name and quoted is None and has_ids and _ID.fullmatch(value):
            name, value = "id", value.removeprefix("#")
        yield SearchTerm(name, value, bool(found["minus"]))


def _is_condition(name: str, names: Sequence[str]) -> bool:
    """Return whether the text before a colon is the name of a condition, also if it is mistyped."""
    return closest(name.partition(".")[0], names, cutoff=0.75) is not None


def time_range(value: str, direction: int) -> tuple[datetime | None, datetime | None]:
    """Return the range of a duration before or after now, of a date or time, or of two of them."""
    try:
        period = parse_time_phrase(value) * direction
    except ValueError:
        first, separator, last = value.partition("..")
        return _time(first), _time(last if separator else first, is_end=True)
    now = timezone.now()
    return (now + period, now) if direction < 0 else (now, now + period)


def _time(text: str, *, is_end: bool = False) -> datetime | None:
    if not text:
        return None
    try:
        value, day = parse_datetime(text), parse_date(text)
    except ValueError:
        value = day = None
    if day is not None and "T" not in text:
        value = datetime.combine(day, time.max if is_end else time.min)
    if value is None or not 1 < value.year < 9999:
        raise ValueError(_("Write a time like 2h, 2026-01-31, 2026-01-31T08:00 or 2026-01-01..2026-01-31."))
    return value if timezone.is_aware(value) else timezone.make_aware(value)
