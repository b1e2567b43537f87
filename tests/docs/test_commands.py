"""The page on commands has the same text for each verb as its --help."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import load_command_class

from django_graphile_worker.management.operator.verb import Verb
from django_graphile_worker.management.operator.verbs import VERBS
from tests.docs.pages import page

OPTION = re.compile(r"--[a-z][a-z-]*")
USUAL = {"-h", "--database", "--installation", "--json"}


def _parsers() -> dict[str, argparse.ArgumentParser]:
    parser: Any = load_command_class("django_graphile_worker", "graphile_worker").create_parser("manage.py", "any")
    (verbs,) = [action for action in parser._actions if action.dest == "verb"]
    return dict(verbs.choices)


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or USUAL & set(action.option_strings):
            continue
        name = ", ".join(f"`{flag}`" for flag in action.option_strings) or f"`{action.metavar}`"
        choices = f" One of: {', '.join(map(str, action.choices))}." if action.choices else ""
        yield f"| {name} | {_marked(str(action.help))}{choices} |"


def _marked(text: str) -> str:
    return OPTION.sub(lambda found: f"`{found[0]}`", text)


def section(verb: Verb) -> str:
    """Return the section that the page must contain; paste it there when a help text has changed."""
    calls = "\n".join(f"$ python manage.py graphile_worker {verb.name} {each}".rstrip() for each in verb.examples)
    heading = " or ".join((verb.name, *verb.aliases))
    text = f"### graphile_worker {heading}\n\n{_marked(verb.summary)}\n"
    if verb.description:
        text += f"{_marked(verb.description)}\n"
    text += f"\n```console\n{calls}\n```\n"
    rows = list(_rows(_parsers()[verb.name])) if verb.has_usual_options else []
    if rows:
        text += "\n".join(["", "| option | meaning |", "|---|---|", *rows, ""])
    return text


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb.name))
def test_page__says_of_each_verb_what_its_help_says(verb: Verb) -> None:
    assert section(verb) in page("reference/commands.md")


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: str(verb.name))
def test_examples__are_taken_by_the_parser(verb: Verb) -> None:
    for example in verb.examples:
        typed = shlex.split(example.partition("<")[0])
        if "deploy/crontab" not in typed:
            _parsers()[verb.name].parse_args(typed)
