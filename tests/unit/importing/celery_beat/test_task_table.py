from __future__ import annotations

import json
from pathlib import Path

import pytest

from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.importing.celery_beat.task_table import Target, TaskTable, read_table
from django_graphile_worker.importing.celery_beat.unsupported import Unsupported

KNOWN = ("report", "send", "proj.tasks.exact")


def target(name: str, given: dict[str, Target | None] | None = None, used: tuple[str, ...] = ()) -> Target:
    return TaskTable(given or {}, KNOWN, (name, *used)).target(name)


def test_task__is_found_by_its_name_and_then_by_its_function() -> None:
    assert target("proj.tasks.exact") == Target("proj.tasks.exact")
    assert target("report") == Target("report")
    assert target("proj.tasks.report") == Target("report")
    with pytest.raises(Unsupported, match=r"no task 'proj.a.report'. Did you mean 'report'\? Name the task"):
        target("proj.a.report", used=("proj.b.report",))


def test_entry__wins() -> None:
    assert target("report", {"report": Target("send")}) == Target("send")
    with pytest.raises(Unsupported, match="leave it out"):
        target("report", {"report": None})
    with pytest.raises(Unsupported, match=r"no task 'sned'. Did you mean 'send'\?"):
        target("report", {"report": Target("sned")})


def test_table__is_read_from_pairs_and_files(tmp_path: Path) -> None:
    file = tmp_path / "tasks.json"
    entry = {"task": "send", "arguments": ["user"], "payload": {"kind": "mail"}, "queue_name": "mail"}
    file.write_text(json.dumps({"a": "send", "b": None, "c": entry}))
    assert read_table(["x=report", str(file)]) == {
        "x": Target("report"),
        "a": Target("send"),
        "b": None,
        "c": Target("send", ("user",), {"kind": "mail"}, {"queue_name": "mail"}),
    }


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("{", "expected NAME=NAME, or a JSON file"),
        ("[]", "expected a JSON object"),
        ('{"a": 5}', "expected the name of a task, null, or an object with the key 'task' for 'a', got 5"),
        ('{"a": {"task": "send", "queue": "x"}}', "got 'queue'. Did you mean 'queue_name'?"),
    ],
)
def test_file__with_mistakes_is_refused(tmp_path: Path, content: str, reason: str) -> None:
    file = tmp_path / "tasks.json"
    file.write_text(content)
    with pytest.raises(ConfigurationError) as caught:
        read_table([str(file)])
    assert reason in str(caught.value)


def test_file__that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="nowhere"):
        read_table(["nowhere"])
