"""A Sphinx extension that inserts the help of each verb of ``graphile_worker`` into the page on commands."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from typing import Any

from django.core.management import load_command_class

PAGE = "reference/commands"
PLACE = re.compile(r"<!-- The help of each verb.*-->")
OPTION = re.compile(r"--[a-z][a-z-]*")
# Options of all verbs, which the page describes.
USUAL = {"-h", "--database", "--installation", "--json"}


def setup(app: Any) -> dict[str, bool]:
    app.connect("source-read", insert_help)
    return {"parallel_read_safe": True}


def insert_help(app: Any, name: str, content: list[str]) -> None:
    if name == PAGE:
        content[0] = PLACE.sub(lambda found: help_of_verbs(), content[0])


def help_of_verbs() -> str:
    # Django must be set up before this import.
    from django_graphile_worker.management.operator import VERBS

    parser: Any = load_command_class("django_graphile_worker", "graphile_worker").create_parser("manage.py", "any")
    return "\n".join(_sections(VERBS, parser, ""))


def _sections(verbs: Sequence[Any], parser: argparse.ArgumentParser, prefix: str) -> Iterator[str]:
    found = [each.choices for each in parser._actions if isinstance(each, argparse._SubParsersAction)]
    choices: Any = found[0] if found else {}
    for verb in verbs:
        calls = "\n".join(
            f"$ python manage.py graphile_worker {prefix}{verb.name} {each}".rstrip() for each in verb.examples
        )
        text = _marked(f"{verb.summary} {verb.description}".strip())
        yield f"### graphile_worker {prefix}{verb.name}\n\n{text}\n\n```console\n{calls}\n```\n"
        rows = [_row(each) for each in choices[verb.name]._actions if _is_listed(each)]
        if rows:
            yield "\n".join(["| option | meaning |", "|---|---|", *rows, ""])
        yield from _sections(getattr(verb, "verbs", ()), choices[verb.name], f"{prefix}{verb.name} ")


def _is_listed(action: argparse.Action) -> bool:
    is_hidden = action.help == argparse.SUPPRESS or bool(USUAL & set(action.option_strings))
    return not is_hidden and not isinstance(action, argparse._SubParsersAction)


def _row(action: argparse.Action) -> str:
    name = ", ".join(f"`{flag}`" for flag in action.option_strings) or f"`{action.metavar}`"
    choices = f" One of: {', '.join(map(str, action.choices))}." if action.choices else ""
    return f"| {name} | {_marked(str(action.help))}{choices} |"


def _marked(text: str) -> str:
    return OPTION.sub(lambda found: f"`{found[0]}`", text)
