"""The table that maps tasks of Celery to tasks of this project."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django_graphile_worker.exceptions import ConfigurationError
from django_graphile_worker.importing.celery_beat.unsupported import Unsupported
from django_graphile_worker.suggestions import did_you_mean

# What an entry may say beside its task; the values of these go into the schedule as they are.
SCHEDULE_OPTIONS = ("queue_name", "priority", "max_attempts", "job_key")
_ENTRY = ("task", "arguments", "payload", *SCHEDULE_OPTIONS)


@dataclass(frozen=True, slots=True)
class Target:
    """The task of this project, the names of its positional arguments, and what else the table says."""

    task: str
    arguments: tuple[str, ...] = ()
    payload: Mapping[str, Any] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)


class TaskTable:
    """The entries that were given, and the names that need none. A task whose entry is null is left out."""

    def __init__(self, given: Mapping[str, Target | None], known: Collection[str], used: Collection[str]) -> None:
        """``known`` are the tasks of this project, and ``used`` are all tasks of the rows."""
        self._given = given
        self._known = known
        self._used = set(used)

    def target(self, name: str) -> Target:
        """Return the target of a task of Celery; raise Unsupported if there is none."""
        if name in self._given:
            found = self._given[name]
            if found is None:
                raise Unsupported("the table of tasks says to leave it out")
        else:
            found = Target(self._by_name(name))
        if found.task not in self._known:
            raise Unsupported(f"this project has no task {found.task!r}. {self._way_out(name, found.task)}")
        return found

    def _by_name(self, name: str) -> str:
        """Return the task of the same name, or of the same function name if no other row has that."""
        function = name.rpartition(".")[2]
        if name in self._known or function not in self._known:
            return name
        namesakes = {other for other in self._used if other.rpartition(".")[2] == function}
        return function if namesakes == {name} else name

    def _way_out(self, name: str, task: str) -> str:
        suggestion = did_you_mean(task, self._known) or did_you_mean(task.rpartition(".")[2], self._known)
        way_out = f"Name the task that replaces it: --tasks {name}=..."
        return f"{suggestion} {way_out}" if suggestion else way_out


def read_table(entries: Iterable[str]) -> dict[str, Target | None]:
    """Return the entries of ``--tasks``: each is ``NAME=NAME`` or a JSON file; raise ConfigurationError."""
    table: dict[str, Target | None] = {}
    for entry in entries:
        name, equals, task = entry.partition("=")
        if equals:
            table[name.strip()] = Target(task.strip())
        else:
            table.update(_read_file(Path(entry)))
    return table


def _read_file(path: Path) -> dict[str, Target | None]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f'--tasks: expected NAME=NAME, or a JSON file like {{"proj.tasks.send": "send"}}, '
            f"got {str(path)!r}: {error}."
        ) from error
    if not isinstance(content, dict):
        raise ConfigurationError(f"--tasks: expected a JSON object in {str(path)!r}, got {content!r}.")
    return {name: _target(name, entry) for name, entry in content.items()}


def _target(name: str, entry: object) -> Target | None:
    if entry is None or isinstance(entry, str):
        return None if entry is None else Target(entry)
    if not isinstance(entry, dict) or not isinstance(entry.get("task"), str):
        raise ConfigurationError(
            f"--tasks: expected the name of a task, null, or an object with the key 'task' for {name!r}, got {entry!r}."
        )
    for key in entry.keys() - set(_ENTRY):
        raise ConfigurationError(
            f"--tasks: expected keys out of {', '.join(_ENTRY)} for {name!r}, got {key!r}. {did_you_mean(key, _ENTRY)}"
        )
    options = {key: entry[key] for key in SCHEDULE_OPTIONS if key in entry}
    return Target(entry["task"], tuple(entry.get("arguments", ())), entry.get("payload", {}), options)
