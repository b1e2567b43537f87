from __future__ import annotations

import re

import pytest
from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.verb import add_verbs
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
