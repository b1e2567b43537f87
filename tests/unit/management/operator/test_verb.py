"""The parser of all verbs."""

from __future__ import annotations

import re
import shlex
from argparse import ArgumentTypeError
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from django.core.management.base import CommandParser

from django_graphile_worker.management import arguments
from django_graphile_worker.management.operator import VERBS
from django_graphile_worker.management.operator.verb import Verb, VerbGroup, add_verbs


@pytest.fixture(scope="module")
def parser() -> CommandParser:
    parser = CommandParser(prog="manage.py graphile_worker", called_from_command_line=True)
    add_verbs(parser, VERBS)
    return parser


def test_unknown_verb__gets_a_suggestion(parser: CommandParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["wrokers"])
    assert "Did you mean 'workers'?" in capsys.readouterr().err


def test_help__lists_every_verb_in_its_order(parser: CommandParser) -> None:
    listed = re.findall(r"^    ([\w-]+)", parser.format_help().partition("\nverbs:\n")[2], re.M)
    assert listed == [each.name for each in VERBS]


def _examples(verbs: Sequence[Verb], prefix: str = "") -> Iterator[str]:
    for each in verbs:
        yield from (f"{prefix}{each.name} {example}" for example in each.examples)
        if isinstance(each, VerbGroup):
            yield from _examples(each.verbs, f"{prefix}{each.name} ")


@pytest.mark.parametrize("example", list(_examples(VERBS)))
def test_examples__are_taken_by_the_parser(
    parser: CommandParser, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "crontab").touch()
    monkeypatch.chdir(tmp_path)
    parser.parse_args(shlex.split(re.split("[<>]", example)[0]))


NOW = datetime(2026, 5, 1, 12, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("now", timedelta(0)),
        ("+90s", timedelta(seconds=90)),
        ("+1d2h", timedelta(hours=26)),
        ("2026-05-01T12:00Z", NOW),
        ("2026-05-01 14:00+02:00", NOW),
        ("2026-05-01", datetime(2026, 5, 1, tzinfo=UTC)),
    ],
)
def test_run_at__takes(typed: str, meant: object) -> None:
    assert arguments.time(typed) == meant


@pytest.mark.parametrize("typed", ["", "-5m", "+", "+5", "5m", "tomorrow", "2026-02-30", "2026-05-01T25:00", "12:00"])
def test_run_at__refuses(typed: str) -> None:
    with pytest.raises(ArgumentTypeError, match="expected"):
        arguments.time(typed)
