"""Figures are final only if the machine had no other work."""

from __future__ import annotations

import pytest

from benchmarks import machine


@pytest.mark.parametrize(
    ("load", "foreign_cores", "is_quick", "flushes", "count"),
    [
        (0.5, 0.15, False, True, 0),
        (0.51, 0.0, False, True, 1),
        (0.0, 0.16, False, True, 1),
        (0.0, 0.0, True, True, 1),
        (0.0, 0.0, False, False, 1),
        (2.0, 1.0, True, False, 4),
    ],
)
def test_reasons_against__names_load_other_programs_the_quick_mode_and_the_server(
    load: float, foreign_cores: float, is_quick: bool, flushes: bool, count: int
) -> None:
    assert len(machine.reasons_against(load, foreign_cores, is_quick=is_quick, flushes=flushes)) == count


def test_description__names_what_figures_depend_on() -> None:
    assert {"processor", "cores", "python", "python_is_optimized", "Django", "psycopg"} <= set(machine.description())


def test_load_meter__does_not_count_the_server_and_the_benchmark() -> None:
    class Busy:
        seconds = 0.0

        def cpu_seconds(self) -> float:
            return self.seconds

    server = Busy()
    meter = machine.LoadMeter(server)  # type: ignore[arg-type]
    server.seconds = 1e6
    assert meter.foreign_cores() == 0
