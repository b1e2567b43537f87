from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from django_graphile_worker import task
from django_graphile_worker.admin.jobs.task_facts import LONGEST_LABEL, short_description, task_facts
from django_graphile_worker.registry import tasks


@dataclass
class Receipt:
    order: int
    copies: int = 1


class NoText:
    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.fixture(autouse=True)
def own_tasks() -> Iterator[None]:
    with tasks.isolated():
        yield


def test_facts__are_the_docstring_the_parameters_and_the_defaults() -> None:
    @task(queue_name="mail", priority=-5, max_attempts=3, job_key="k", flags=["slow"])
    def print_receipt(payload: Receipt) -> None:
        """Print it.

        On paper.
        """

    facts = task_facts("print_receipt")
    assert facts.is_known
    assert facts.docstring == "Print it.\n\nOn paper."
    assert facts.signature == "print_receipt(payload: Receipt) -> None"
    assert facts.payload_fields == (("order", "int"), ("copies", "int"))
    assert facts.defaults == (
        ("Queue", "mail"),
        ("Maximum attempts", "3"),
        ("Job key", "k"),
        ("Priority", "-5"),
        ("Flags", "slow"),
    )
    assert short_description("print_receipt") == "Print it."


def test_facts__of_an_unknown_task_are_few() -> None:
    facts = task_facts("elsewhere")
    assert (facts.is_known, facts.docstring, facts.defaults) == (False, "", ())
    assert short_description("elsewhere") == ""


def test_facts__survive_a_function_that_cannot_be_shown() -> None:
    @task
    def odd(payload: Any = NoText()) -> None:  # noqa: B008 - the default is the point
        pass

    @task
    def unresolved(payload: NoSuchType) -> None:  # type: ignore[name-defined] # noqa: F821
        pass

    assert task_facts("odd").signature == ""
    assert task_facts("unresolved").payload_fields == ()


def test_short_description__is_cut() -> None:
    def wordy(payload: Any) -> None:
        pass

    wordy.__doc__ = "x" * 500
    task(wordy)
    assert len(short_description("wordy")) == LONGEST_LABEL
