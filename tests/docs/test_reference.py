"""The reference pages have exactly the names of the code, with the right defaults."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from typing import Any

import pytest
from django.core.management import load_command_class
from django.core.management.base import BaseCommand

import django_graphile_worker
from django_graphile_worker import Job, conf, exceptions, models, signals, testing
from django_graphile_worker.job_options import JobOptions
from django_graphile_worker.management.operator import VERBS
from tests.docs.pages import CHECKOUT, code_words, headings, page, sections

TESTING = "django_graphile_worker.testing."
CHECK_ID = re.compile(r"graphile_worker\.[EWI]\d{3}")
SETTINGS = {field.name.upper(): field for field in dataclasses.fields(conf.Settings)}
SIGNALS = {name: event for name, event in vars(signals).items() if isinstance(event, signals.NamedSignal)}


def test_settings_page__has_every_key_once() -> None:
    assert sorted(headings(page("reference/settings.md"))) == sorted(SETTINGS)


@pytest.mark.parametrize("key", sorted(SETTINGS))
def test_settings_page__tells_the_default(key: str) -> None:
    (told,) = [line for line in sections(page("reference/settings.md"))[key].splitlines() if "Default:" in line]
    assert conf.Settings.from_mapping({key: _value(told, key)}) == conf.Settings()


def _value(line: str, key: str) -> Any:
    """Read the default as Python, in seconds where the line says days."""
    value = ast.literal_eval(code_words(line)[0])
    return value * 86_400 if line.endswith("days") else value


def test_signals_page__has_every_signal_once() -> None:
    assert sorted(headings(page("reference/signals.md"))) == sorted(SIGNALS)


@pytest.mark.parametrize("name", sorted(SIGNALS))
def test_signals_page__tells_the_arguments(name: str) -> None:
    said = " ".join(sections(page("reference/signals.md"))[name].split())
    assert tuple(code_words(said.partition("Arguments:")[2])) == SIGNALS[name].arguments


def test_exceptions_page__has_every_exception_once() -> None:
    raised = {
        name
        for name, found in vars(exceptions).items()
        if inspect.isclass(found) and issubclass(found, exceptions.GraphileWorkerError | exceptions.TaskStopped)
    }
    assert sorted(headings(page("reference/exceptions.md"))) == sorted(raised)


def test_python_api_page__has_every_public_function() -> None:
    public = [getattr(django_graphile_worker, name) for name in django_graphile_worker.__all__]
    functions = {found.__name__ for found in public if inspect.isfunction(found)}
    twins = {f"a{name}" for name in functions} & functions
    documented = {
        line.split()[2].partition("(")[0]
        for line in page("reference/python-api.md").splitlines()
        if ".. autofunction" in line
    }
    of_tests = {name for name in documented if name.startswith(TESTING)}
    assert documented - of_tests == functions - twins


def test_python_api_page__has_every_name_for_tests() -> None:
    twins = {f"a{name}" for name in testing.__all__}
    names = set(testing.__all__) - twins
    text = page("reference/python-api.md").partition("## Tests")[2].partition("\n## ")[0]
    documented = re.findall(rf"^\.\. auto(?:function|class):: {re.escape(TESTING)}(\w+)$", text, flags=re.MULTILINE)
    assert set(documented) == names


def _fields(section: str) -> list[str]:
    """Return the first column of a table."""
    return re.findall(r"^\| `(\w+)`", section, flags=re.MULTILINE)


@pytest.mark.parametrize("name", ["Job", "Task", "JobQueue", "KnownCrontab", "Worker", "Schedule"])
def test_models_page__has_every_field(name: str) -> None:
    fields = [field.name for field in getattr(models, name)._meta.get_fields() if field.concrete]
    assert sorted(_fields(sections(page("reference/models.md"))[name])) == sorted(fields)


def test_python_api_page__has_every_field_of_a_job() -> None:
    text = page("reference/python-api.md").partition("### Fields of a job")[2].partition("\n## ")[0]
    assert _fields(text) == list(Job.__annotations__)


def test_python_api_page__has_every_argument_of_add_job() -> None:
    text = page("reference/python-api.md").partition("## Adding jobs")[2].partition("\n## ")[0]
    assert _fields(text) == ["identifier", "payload", *JobOptions.__annotations__]
    signature = re.search(r"autofunction:: add_job\((.*)\)", text)
    assert signature
    named = [each.partition("=")[0] for each in signature[1].split(", ") if each != "*"]
    assert named == _fields(text)


def test_checks_page__has_every_id_once() -> None:
    package = CHECKOUT / "django_graphile_worker"
    sources = "".join(path.read_text(encoding="utf-8") for path in package.rglob("*.py"))
    assert sorted(headings(page("reference/checks.md"))) == sorted(set(CHECK_ID.findall(sources)))


def test_commands_page__has_every_command_once() -> None:
    folder = CHECKOUT / "django_graphile_worker" / "management" / "commands"
    commands = sorted(path.stem for path in folder.glob("[!_]*.py"))
    assert sorted(headings(page("reference/commands.md"))) == commands


def test_commands_page__has_every_verb_once_in_its_order() -> None:
    section = page("reference/commands.md").partition("## `graphile_worker`")[2]
    rows = re.findall(r"^\| `([a-z-]+)` \| `([a-z-]+)", section, re.MULTILINE)
    assert rows == [(verb.name, verb.name) for verb in VERBS]


def test_commands_page__has_every_option_of_the_worker() -> None:
    told = {word for word in code_words(sections(page("reference/commands.md"))["runworker"]) if word.startswith("-")}
    parser = load_command_class("django_graphile_worker", "runworker").create_parser("manage.py", "runworker")
    everybodys = BaseCommand().create_parser("manage.py", "any")._option_string_actions
    assert told == set(parser._option_string_actions) - set(everybodys)
