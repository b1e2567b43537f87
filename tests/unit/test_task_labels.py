"""The path and the label in a task identifier."""

from __future__ import annotations

import pytest

from django_graphile_worker.task_labels import identifier_for, is_path, label_of, split_identifier


@pytest.mark.parametrize(
    ("path", "label", "identifier"),
    [
        ("shop.tasks.send", "default", "shop.tasks.send"),
        ("shop.tasks.send", "emails", "shop.tasks.send@emails"),
        ("shop.tasks.send", "a@b", "shop.tasks.send@a@b"),
    ],
)
def test_identifier__tells_the_path_and_the_label(path: str, label: str, identifier: str) -> None:
    assert identifier_for(path, label) == identifier
    assert split_identifier(identifier) == (path, label)
    assert label_of(identifier) == label


@pytest.mark.parametrize("identifier", ["send", "billing:send", "mail@home", "shop.tasks.send@", "", "@emails"])
def test_identifier_of_another_task__has_no_label(identifier: str) -> None:
    assert split_identifier(identifier) == (identifier, "default")


@pytest.mark.parametrize("text", ["send", "", ".", "a.", ".b", "a..b", "a b.c", "a.1", "os.path;x"])
def test_is_path__refuses_what_no_function_can_have(text: str) -> None:
    assert not is_path(text)
