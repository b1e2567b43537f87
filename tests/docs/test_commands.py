"""The page on commands has the same text for each verb as its --help."""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Iterator
from typing import Any

import pytest
from django.core.management import load_command_class

from django_graphile_worker.management.operator.verb import Verb, VerbGroup
from django_graphile_worker.management.operator.verbs import VERBS
from tests.docs.pages import page

OPTION = re.compile(r"--[a-z][a-z-]*")
USUAL = {"-h", "--database", "--installation", "--json"}


def _parsers() -> dict[str, argparse.ArgumentParser]:
    """Return the parsers by what is typed: ``schedules`` and ``schedules add``."""
    parser: Any = load_command_class("django_graphile_worker", "graphile_worker").create_parser("manage.py", "any")
    found = _verbs_of(parser)
    return found | {f"{name} {verb}": each for name in found for verb, each in _verbs_of(found[name]).items()}


def _verbs_of(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    found = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return dict(found[0].choices) if found else {}


def _all_verbs() -> Iterator[tuple[str, Verb]]:
    """Return each verb with what is typed; a group is followed by its own verbs."""
    for verb in VERBS:
        yield verb.name, verb
        if isinstance(verb, VerbGroup):
            yield from ((f"{verb.name} {each.name}", each) for each in verb.verbs)


def _rows(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        if action.help == argparse.SUPPRESS or USUAL & set(action.option_strings):
            continue
        if isinstance(action, argparse._SubParsersAction):
            continue
        name = ", ".join(f"`{flag}`" for flag in action.option_strings) or f"`{action.metavar}`"
        choices = f" One of: {', '.join(map(str, action.choices))}." if action.choices else ""
        yield f"| {name} | {_marked(str(action.help))}{choices} |"


def _marked(text: str) -> str:
    return OPTION.sub(lambda found: f"`{found[0]}`", text)


def section(name: str, verb: Verb) -> str:
    """Return the section that the page must contain; paste it there when a help text has changed."""
    calls = "\n".join(f"$ python manage.py graphile_worker {name} {each}".rstrip() for each in verb.examples)
    heading = " or ".join((name, *verb.aliases))
    text = f"### graphile_worker {heading}\n\n{_marked(verb.summary)}\n"
    if verb.description:
        text += f"{_marked(verb.description)}\n"
    text += f"\n```console\n{calls}\n```\n"
    rows = list(_rows(_parsers()[name])) if verb.has_usual_options else []
    if rows:
        text += "\n".join(["", "| option | meaning |", "|---|---|", *rows, ""])
    return text


@pytest.mark.parametrize(
    ("name", "verb"), list(_all_verbs()), ids=lambda value: str(value) if isinstance(value, str) else ""
)
def test_page__says_of_each_verb_what_its_help_says(name: str, verb: Verb) -> None:
    assert section(name, verb) in page("reference/commands.md")


@pytest.mark.parametrize(
    ("name", "verb"), list(_all_verbs()), ids=lambda value: str(value) if isinstance(value, str) else ""
)
def test_examples__are_taken_by_the_parser(name: str, verb: Verb) -> None:
    for example in verb.examples:
        typed = shlex.split(re.split("[<>]", example)[0])
        if "deploy/crontab" not in typed:
            _parsers()[name].parse_args(typed)
