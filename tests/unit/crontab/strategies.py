"""Crontabs made up by Hypothesis."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from hypothesis import strategies as st

from django_graphile_worker.crontab import CronItem
from django_graphile_worker.crontab.fields import DATE, HOUR, MINUTE, MONTH, WEEKDAY, Field
from django_graphile_worker.crontab.patterns import SHORTHANDS, parse_pattern
from django_graphile_worker.exceptions import CrontabError

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_"
ZONES = ("Europe/Paris", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu", "UTC")


@st.composite
def parts(draw: st.DrawFn, kind: Field) -> str:
    largest = 7 if kind is WEEKDAY else kind.largest
    form = draw(st.sampled_from(["*", "number", "number", "range", "step", "range step", "name"]))
    first = draw(st.integers(kind.smallest, largest - 1))
    last = draw(st.integers(first + 1, largest))
    step = draw(st.integers(1, 70))
    if form == "name" and kind.names:
        name = draw(st.sampled_from(sorted(kind.names)))
        return draw(st.sampled_from([name, name.lower()]))
    written = {"*": "*", "range": f"{first}-{last}", "step": f"*/{step}", "range step": f"{first}-{last}/{step}"}
    return written.get(form, str(draw(st.integers(kind.smallest, largest))))


def fields(kind: Field) -> st.SearchStrategy[str]:
    return st.lists(parts(kind), min_size=1, max_size=3).map(",".join)


def _is_possible(text: str) -> bool:
    try:
        parse_pattern(text)
    except CrontabError:
        return False
    return True


def patterns() -> st.SearchStrategy[str]:
    five = st.tuples(*(fields(kind) for kind in (MINUTE, HOUR, DATE, MONTH, WEEKDAY))).map(" ".join)
    return (five | st.sampled_from(sorted(SHORTHANDS))).filter(_is_possible)


def names(more: str) -> st.SearchStrategy[str]:
    rest = st.text(LETTERS + "0123456789" + more, max_size=12)
    return st.tuples(st.sampled_from(LETTERS), rest).map("".join)


# What PostgreSQL can store: no NUL, no half of a surrogate pair.
texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda children: st.lists(children, max_size=3) | st.dictionaries(texts, children, max_size=3),
    max_leaves=8,
)


@st.composite
def items(draw: st.DrawFn) -> CronItem:
    """Items as a line of a crontab can hold them, with every default filled in."""
    task = draw(names("-:/"))
    return CronItem(
        task=task,
        match=draw(patterns()),
        payload=draw(st.none() | st.dictionaries(texts, json_values, max_size=3)),
        identifier=draw(st.just(task) | names("-")),
        backfill_period=draw(st.integers(0, 10**9).map(lambda seconds: timedelta(seconds=seconds))),
        max_attempts=draw(st.none() | st.integers(1, 32_767)),
        queue_name=draw(st.none() | st.text(LETTERS + "-:0123456789", min_size=1, max_size=12)),
        priority=draw(st.none() | st.integers(-32_768, 32_767)),
        job_key=draw(st.none() | texts.filter(bool)),
        job_key_mode=draw(st.sampled_from([None, "replace", "preserve_run_at"])),
        flags=draw(
            st.none()
            | st.lists(texts.filter(lambda text: text and "," not in text), min_size=1, max_size=3, unique=True).map(
                tuple
            )
        ),
        time_zone=draw(st.none() | st.sampled_from(ZONES)),
    )
