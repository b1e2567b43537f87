"""The names on the command line of the benchmarks."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import __main__ as command


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], list(command.NAMES)),
        (["drain", "--rounds=5"], ["drain"]),
        (["claims", "drain"], ["claims", "drain"]),
        (["worker", "--only=drain,idle"], ["drain", "idle"]),
        (["admin", "--only=pages"], ["admin"]),
    ],
)
def test_chosen__are_the_named_benchmarks(arguments: list[str], expected: list[str]) -> None:
    assert command.chosen(command.parser().parse_args(arguments)) == expected


def test_names__are_the_modules_of_the_folder() -> None:
    modules = {path.stem for path in Path(command.MEASURES).glob("*.py") if not path.stem.startswith("_")}
    assert set(command.NAMES) == modules
    assert {member for members in command.GROUPS.values() for member in members} <= modules


def test_help__says_what_each_benchmark_measures() -> None:
    text = command.parser().format_help()
    assert [name for name in command.NAMES if not command.summary(name) or command.summary(name) not in text] == []


def test_main__rejects_an_unknown_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["drian"]) == 2
    assert "got drian" in capsys.readouterr().out
