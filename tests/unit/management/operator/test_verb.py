"""The parser of all verbs."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.verb import Verb, VerbGroup, add_verbs
from django_graphile_worker.management.operator.verbs import VERBS


@pytest.fixture
def parser() -> CommandParser:
    parser = CommandParser(prog="manage.py graphile_worker", called_from_command_line=True)
    add_verbs(parser, VERBS, dest="verb")
    return parser


def test_unknown_verb__gets_a_suggestion(parser: CommandParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["wrokers"])
    assert "Did you mean 'workers'?" in capsys.readouterr().err


def test_help__lists_every_verb_in_its_order(parser: CommandParser) -> None:
    listed = re.findall(r"^    ([\w-]+)", parser.format_help().partition("\nverbs:\n")[2], re.M)
    assert listed == [verb.name for verb in VERBS]


def _examples(verbs: Sequence[Verb], prefix: str = "") -> Iterator[str]:
    for verb in verbs:
        yield from (f"{prefix}{verb.name} {example}" for example in verb.examples)
        if isinstance(verb, VerbGroup):
            yield from _examples(verb.verbs, f"{prefix}{verb.name} ")


@pytest.mark.parametrize("example", list(_examples(VERBS)))
def test_examples__are_taken_by_the_parser(
    parser: CommandParser, example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "deploy").mkdir()
    (tmp_path / "deploy" / "crontab").touch()
    monkeypatch.chdir(tmp_path)
    parser.parse_args(shlex.split(re.split("[<>]", example)[0]))
