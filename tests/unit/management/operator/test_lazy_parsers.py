"""Tests of the parsers that are built when they are needed."""

from __future__ import annotations

import argparse
import re

import pytest
from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.lazy_parsers import LazyParsers
from django_graphile_worker.management.operator.parsers import add_verbs
from django_graphile_worker.management.operator.verbs import VERBS


@pytest.fixture
def parser() -> CommandParser:
    parser = CommandParser(prog="manage.py graphile_worker", called_from_command_line=True)
    add_verbs(parser, VERBS, dest="verb")
    return parser


def parsers_of(parser: CommandParser) -> LazyParsers:
    """Return the action that holds the parsers of the verbs."""
    (found,) = (action for action in parser._actions if isinstance(action, LazyParsers))
    return found


def built(parser: CommandParser) -> list[str]:
    """Return the names of the verbs whose parsers argparse has."""
    return list(parsers_of(parser)._name_parser_map)


def test_command_line__builds_the_parser_of_its_verb_only(parser: CommandParser) -> None:
    assert built(parser) == []
    assert parser.parse_args(["workers"]).verb == "workers"
    assert built(parser) == ["workers"]
    parser.parse_args(["schedules", "list"])
    assert built(parser) == ["workers", "schedules"]
    assert built(parsers_of(parser).choices["schedules"]) == ["list"]


def test_unknown_verb__builds_no_parser(parser: CommandParser, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser.parse_args(["wrokers"])
    assert "Did you mean 'workers'?" in capsys.readouterr().err
    assert built(parser) == []


def test_help__lists_every_verb_in_its_order(parser: CommandParser) -> None:
    listed = re.findall(r"^    ([\w-]+)", parser.format_help().partition("\nverbs:\n")[2], re.M)
    assert listed == [verb.name for verb in VERBS]


def test_choices__are_all_names_and_their_parsers(parser: CommandParser) -> None:
    """As call_command() reads them, to learn which options exist."""
    choices = parsers_of(parser).choices
    names = [name for verb in VERBS for name in (verb.name, *verb.aliases)]
    assert (list(choices), len(choices)) == (names, len(names))
    assert "status" in choices
    assert "wrokers" not in choices
    assert all(isinstance(each, argparse.ArgumentParser) for each in choices.values())
    assert "--min-workers" in {text for action in choices["status"]._actions for text in action.option_strings}
