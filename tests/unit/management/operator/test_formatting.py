"""Tables and times."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.core.management.color import color_style, no_style
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.formatting import Columns, capped, facts, table

NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


def _table(*rows: dict[str, Any], columns: Columns | None = None, width: int | None = None) -> list[str]:
    return table(rows, columns or tuple(rows[0]), NOW, no_style(), width=width).splitlines()


def test_columns__have_the_names_of_values_and_their_texts() -> None:
    rows: tuple[dict[str, Any], ...] = (
        {
            "id": 1,
            "is_paused": True,
            "mean_seconds": 1.5,
            "tasks": ["a", "b"],
            "run_at": NOW,
            "last_error": "x.E: no\n",
        },
        {"id": 100, "is_paused": False, "mean_seconds": None, "tasks": [], "run_at": None, "last_error": None},
    )
    assert _table(*rows) == [
        "ID   IS PAUSED  MEAN   TASKS  RUN AT  LAST ERROR",
        "1    yes        1.5 s  a, b   now     E: no",
        "100  no         -      -      -       -",
    ]


def test_column__may_be_a_function_of_the_values() -> None:
    columns = ("id", ("TRIED", lambda job: f"{job['tried']}/25"), capped("waiting"))
    row = {"id": 1, "tried": 3, "waiting": 1000, "is_capped": True}
    assert _table(row, columns=columns)[1] == "1   3/25   1000+"


def test_states__have_colours_that_take_no_place() -> None:
    text = table([{"id": 1, "state": "failed", "key": "k"}], ("id", "state", "key"), NOW, color_style(force_color=True))
    assert re.sub(r"\x1b\[[0-9;]*m", "", text) == "ID  STATE   KEY\n1   failed  k"
    assert re.search(r"\x1b\[[0-9;]*mfailed", text)


def test_terminal__cuts_long_cells_and_lines() -> None:
    row = {"id": "12345678901234567890", "task": "t" * 60, "key": "k" * 10, "error": "e" * 50}
    assert _table(row, width=80)[1] == f"12345678901234567890  {'t' * 39}…  {'k' * 10}  {'e' * 4}"


def test_terminal__leaves_empty_columns_out() -> None:
    row = {"id": 1, "task": "task", "key": ""}
    assert "KEY" not in _table(row, width=80)[0]
    assert "KEY" in _table(row)[0]


@given(
    rows=st.lists(st.tuples(st.integers(1, 2**63 - 1), st.text(max_size=80), st.text(max_size=80)), min_size=1),
    width=st.integers(1, 200),
)
def test_any_rows__keep_their_ids_and_stay_within_the_terminal(rows: list[tuple[int, str, str]], width: int) -> None:
    lines = _table(*({"id": number, "state": state, "key": key} for number, state, key in rows), width=width)
    assert all(line.isprintable() for line in lines)
    assert max(map(len, lines)) <= width
    if width >= 19:
        assert all(line.startswith(str(number)) for line, (number, *_) in zip(lines[1:], rows, strict=True))


def test_facts__are_aligned_without_empty_ones() -> None:
    values = {"a": 1, "waits_because": ["x", "y"], "key": None, "limit": {"n": 1}, "run_at": NOW}
    assert facts(values, NOW, no_style()).splitlines() == [
        "a              1",
        "waits because  x",
        "waits because  y",
        'limit          {"n": 1}',
        "run at         2026-05-01 12:00:00 (now)",
    ]


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (0.3, "now"),
        (-0.3, "now"),
        (1, "in 1 s"),
        (59.6, "in 1 m"),
        (299.9, "in 5 m"),
        (-180, "3 m ago"),
        (-3 * 3600 - 5, "3 h ago"),
        (86_400 * 3, "in 3 d"),
        (86_400 * 800, "in 2 y"),
    ],
)
def test_relative(seconds: float, told: str) -> None:
    assert formatting.relative(NOW + timedelta(seconds=seconds), NOW) == told


def test_absolute__is_in_the_current_time_zone() -> None:
    with timezone.override("Europe/Paris"):
        assert formatting.both(NOW, NOW) == "2026-05-01 14:00:00 (now)"


def test_naive_times__are_those_of_a_project_without_time_zones(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    assert formatting.iso(datetime(2026, 5, 1, 21, 0)) == "2026-05-01T12:00:00+00:00"  # noqa: DTZ001
