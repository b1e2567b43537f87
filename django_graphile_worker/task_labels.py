"""Task identifiers of Django tasks: the path of the function, and the label that Django calls a queue name.

A Django task has no serial queue. Its label is a part of the task identifier, ``shop.tasks.send@emails``, so that a
worker that runs only some labels claims only some tasks, which costs nothing. The label ``default`` is left out.
"""

from __future__ import annotations

DEFAULT_LABEL = "default"
SEPARATOR = "@"


def identifier_for(path: str, label: str) -> str:
    """Return the task identifier of a function's path and a label."""
    return path if label == DEFAULT_LABEL else f"{path}{SEPARATOR}{label}"


def split_identifier(identifier: str) -> tuple[str, str]:
    """Return the path and the label of a task identifier; an identifier that is no path has the label ``default``."""
    path, separator, label = identifier.partition(SEPARATOR)
    if separator and label and is_path(path):
        return path, label
    return identifier, DEFAULT_LABEL


def label_of(identifier: str) -> str:
    return split_identifier(identifier)[1]


def is_path(text: str) -> bool:
    """Return whether a text can be the path of a function in a module: names with dots between them."""
    module, _, name = text.rpartition(".")
    return bool(module) and all(part.isidentifier() for part in (*module.split("."), name))
