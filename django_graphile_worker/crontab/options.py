"""The options of a crontab line: ``?id=…&fill=…``."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_plus

from django_graphile_worker.crontab.errors import MistakeCollector, Position
from django_graphile_worker.crontab.time_phrases import EXPECTED_TIME_PHRASE, parse_time_phrase
from django_graphile_worker.crontab.zones import load_zone
from django_graphile_worker.job_options import (
    LARGEST_MAX_ATTEMPTS,
    LARGEST_PRIORITY,
    MAX_JOB_KEY_LENGTH,
    MAX_QUEUE_NAME_LENGTH,
    SMALLEST_PRIORITY,
    JobKeyMode,
    valid_flags,
    valid_job_key,
    valid_max_attempts,
    valid_priority,
    valid_queue_name,
)

LONGEST_IDENTIFIER = 512
_IDENTIFIER = re.compile(rf"[_a-zA-Z][-_a-zA-Z0-9]{{0,{LONGEST_IDENTIFIER - 1}}}")
_QUEUE = re.compile(r"[-a-zA-Z0-9_:]+")
_DIGITS = re.compile(r"[0-9]{1,9}")
_WHOLE_NUMBER = re.compile(r"-?[0-9]{1,9}")


@dataclass(frozen=True, slots=True)
class Option:
    """An option: the attribute of the item that it sets, and how its value is read."""

    attribute: str
    read: Callable[[str], Any]
    expected: str


def _like(expression: re.Pattern[str], convert: Callable[[str], Any]) -> Callable[[str], Any]:
    def read(text: str) -> Any:
        if not expression.fullmatch(text):
            raise ValueError(text)
        return convert(text)

    return read


def _read_job_key_mode(text: str) -> JobKeyMode:
    mode = JobKeyMode(text)
    if mode is JobKeyMode.UNSAFE_DEDUPE:
        raise ValueError(text)
    return mode


def _read_zone(text: str) -> str:
    return load_zone(text).key


OPTIONS = {
    "id": Option(
        "identifier",
        _like(_IDENTIFIER, str),
        "an identifier of letters, digits, '_' and '-' that starts with a letter or '_'",
    ),
    "fill": Option("backfill_period", parse_time_phrase, EXPECTED_TIME_PHRASE),
    "max": Option(
        "max_attempts",
        _like(_DIGITS, lambda text: valid_max_attempts(int(text))),
        f"a number of attempts from 1 to {LARGEST_MAX_ATTEMPTS}",
    ),
    "queue": Option(
        "queue_name",
        _like(_QUEUE, valid_queue_name),
        f"a queue name of 1 to {MAX_QUEUE_NAME_LENGTH} letters, digits, '_', '-' and ':'",
    ),
    "jobKey": Option("job_key", valid_job_key, f"a job key of 1 to {MAX_JOB_KEY_LENGTH} characters"),
    "jobKeyMode": Option("job_key_mode", _read_job_key_mode, "'replace' or 'preserve_run_at'"),
    "priority": Option(
        "priority",
        _like(_WHOLE_NUMBER, lambda text: valid_priority(int(text))),
        f"a whole number from {SMALLEST_PRIORITY} to {LARGEST_PRIORITY}",
    ),
    # graphile-worker does not have these two.
    "tz": Option("time_zone", _read_zone, "an IANA time zone like Europe/Paris"),
    "flags": Option("flags", lambda text: valid_flags(text.split(",")), "flags separated by commas, like slow,remote"),
}


def read_options(text: str, collector: MistakeCollector, at: Position) -> tuple[dict[str, Any], dict[str, int]]:
    """Return the attributes that ``?a=1&b=2`` sets, and the offset of each value in the text."""
    values: dict[str, Any] = {}
    offsets: dict[str, int] = {}
    if text == "?":
        collector.add(f"options like ?fill=2d&max=10 (known: {', '.join(OPTIONS)})", text, at)
    offset = 1
    for pair in text[1:].split("&"):
        if pair:
            _read_option(pair, offset, values, offsets, collector, at)
        offset += len(pair) + 1
    return values, offsets


def _read_option(
    pair: str, offset: int, values: dict[str, Any], offsets: dict[str, int], collector: MistakeCollector, at: Position
) -> None:
    written_key, _, written_value = pair.partition("=")
    key, value = unquote_plus(written_key), unquote_plus(written_value)
    option = OPTIONS.get(key)
    if option is None:
        collector.add(f"one of the options {', '.join(OPTIONS)}", written_key, at.shifted(offset))
        return
    if option.attribute in offsets:
        collector.add(f"the option {key!r} once", pair, at.shifted(offset))
        return
    offsets[option.attribute] = value_offset = offset + len(written_key) + 1
    try:
        values[option.attribute] = option.read(value)
    except ValueError as error:
        # The error of a time zone suggests a similar name; the other options have one fixed sentence.
        expected = str(error) if key == "tz" else option.expected
        collector.add(f"{key} to be {expected}", written_value, at.shifted(value_offset))
