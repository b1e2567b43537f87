"""Canaries for interfaces of the Tasks framework that its documentation does not promise."""

from __future__ import annotations

from dataclasses import fields

import pytest

from django_graphile_worker.backend import compat


@pytest.mark.parametrize("name", ["task_enqueued", "task_started", "task_finished"])
def test_framework__connects_one_receiver_to_each_signal(name: str) -> None:
    (receiver,) = getattr(compat, name).receivers
    assert receiver[1]().__name__.startswith("log_task_")


def test_task_result__keeps_what_the_task_returned_in_a_field_of_its_own() -> None:
    (field,) = [each for each in fields(compat.TaskResult) if each.name == "_return_value"]
    assert (field.init, field.default) == (False, None)
