"""Tables and times."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.formatting import Cell, Row, facts, table


def test_columns__are_aligned_numbers_to_the_right() -> None:
    rows: list[Row] = [{"ID": 1, "TASK": "a", "TRIED": "3/25"}, {"ID": 100, "TASK": "long", "TRIED": None}]
    assert table(rows).splitlines() == [
        " ID  TASK  TRIED",
        "  1  a      3/25",
        "100  long      -",
    ]


def test_colours__take_no_place() -> None:
    painted = table([{"ID": 1, "TASK": Cell("a", lambda text: f"<{text}>"), "KEY": "k"}])
    assert painted.splitlines()[1] == " 1  <a>     k"


def test_terminal__cuts_long_cells_and_lines() -> None:
    row = {"ID": "12345678901234567890", "TASK": "t" * 60, "KEY": "k" * 10, "ERROR": "e" * 50}
    assert table([row], width=80).splitlines()[1] == f"12345678901234567890  {'t' * 39}…  {'k' * 10}  eee…"


def test_terminal__leaves_empty_columns_out() -> None:
    rows: list[Row] = [{"ID": 1, "TASK": "task", "KEY": ""}]
    assert "KEY" not in table(rows, width=80)
    assert "KEY" in table(rows)


@given(
    rows=st.lists(st.tuples(st.integers(1, 2**63 - 1), st.text(max_size=80), st.text(max_size=80)), min_size=1),
    width=st.integers(1, 200),
)
def test_any_rows__keep_their_ids_and_stay_within_the_terminal(rows: list[tuple[int, str, str]], width: int) -> None:
    listed = table([{"ID": number, "TASK": task, "KEY": key} for number, task, key in rows], width=width)
    assert all(character.isprintable() or character == "\n" for character in listed)
    assert max(map(len, listed.splitlines())) <= width
    if width >= 19:
        assert all(str(number) in listed for number, *_ in rows)


def test_facts__are_aligned() -> None:
    assert facts([("a", "1"), ("long", "")], indent="  ").splitlines() == ["  a     1", "  long  -"]


NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


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
    assert formatting.both(None, NOW) == "-"


def test_naive_times__are_those_of_a_project_without_time_zones(settings: Any) -> None:
    settings.TIME_ZONE = "Asia/Tokyo"
    assert formatting.iso(datetime(2026, 5, 1, 21, 0)) == "2026-05-01T12:00:00+00:00"  # noqa: DTZ001
