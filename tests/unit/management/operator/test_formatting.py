"""Tables: aligned, within the terminal, and with nothing lost that identifies a row."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from django.utils import timezone
from hypothesis import given
from hypothesis import strategies as st

from django_graphile_worker.management.operator import formatting
from django_graphile_worker.management.operator.formatting import Cell, Column, facts, table, width

COLUMNS = (Column("ID", is_number=True), Column("TASK", gives_way=True), Column("KEY", gives_way=True))


def test_columns__are_aligned_numbers_to_the_right() -> None:
    assert table(COLUMNS, [["1", "a", "k"], ["100", "long", ""]], most=None).splitlines() == [
        " ID  TASK  KEY",
        "  1  a     k",
        "100  long  -",
    ]


def test_wide_characters__take_two_places() -> None:
    lines = table(COLUMNS, [["1", "日本", "k"], ["2", "abcd", "k"]], most=None).splitlines()
    assert [width(line) for line in lines[1:]] == [11, 11]


def test_colours__take_no_place() -> None:
    painted = table(COLUMNS, [["1", Cell("a", lambda text: f"<{text}>"), "k"]], most=None)
    assert painted.splitlines()[1] == " 1  <a>     k"


def test_narrow_terminal__shortens_the_widest_that_gives_way() -> None:
    lines = table(COLUMNS, [["12345678901234567890", "t" * 40, "k" * 10]], most=50).splitlines()
    assert lines[1] == f"12345678901234567890  {'t' * 15}…  {'k' * 10}"


def test_narrow_terminal__leaves_empty_columns_out() -> None:
    assert "KEY" not in table(COLUMNS, [["1", "task", ""]], most=80)
    assert "KEY" in table(COLUMNS, [["1", "task", ""]], most=None)


def test_very_narrow_terminal__has_one_line_for_each_cell() -> None:
    assert table(COLUMNS, [["12345678901234567890", "task", "key"]], most=20).splitlines() == [
        "ID    12345678901234567890",
        "TASK  task",
        "KEY   key",
    ]


@given(
    rows=st.lists(st.tuples(st.integers(1, 2**63 - 1), st.text(max_size=80), st.text(max_size=80)), min_size=1),
    most=st.integers(1, 200),
)
def test_any_rows__keep_their_ids_and_stay_within_the_terminal(rows: list[tuple[int, str, str]], most: int) -> None:
    shown = table(COLUMNS, [[str(number), *rest] for number, *rest in rows], most=most)
    assert all(str(number) in shown for number, *_ in rows)
    assert all(character.isprintable() or character == "\n" for character in shown)
    if most >= 45:
        assert max(map(width, shown.splitlines())) <= most


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
