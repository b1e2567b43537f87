"""The error of a failed job as a short text for lists."""

from __future__ import annotations

import re
from dataclasses import dataclass

from django_graphile_worker import exceptions, jobs
from django_graphile_worker.redaction import redact_text

# The module path of the exceptions of this package is of no interest, and leaves no room for the message.
_OWN_EXCEPTION = re.compile(r"django_graphile_worker(?:\.[a-z_]\w*)*\.(?P<name>[A-Z]\w*)(?=:|$)")


@dataclass(frozen=True, slots=True)
class ErrorSummary:
    """The first line of an error; `full_text` is that line unshortened, or "" when `text` is not shortened."""

    text: str
    full_text: str = ""


def summarize(error: str | None, *, sees_payloads: bool) -> ErrorSummary:
    """Return the first line of an error, without the module paths of this package's exceptions."""
    line = (error or "").split("\n", 1)[0]
    full_text = line if sees_payloads else redact_text(line)
    text = short_name(full_text)
    return ErrorSummary(text, "" if text == full_text else full_text)


def short_name(line: str) -> str:
    """Return a line without the module path, if it begins with an exception of this package."""
    return _OWN_EXCEPTION.sub(lambda found: found["name"], line, count=1) if _OWN_EXCEPTION.match(line) else line


def without_name(line: str, name: str) -> str:
    """Return the message of an error without the name of the exception."""
    return "" if line == name else line.removeprefix(f"{name}: ")


def stored_names(name: str) -> tuple[str, ...]:
    """Return the names that jobs may store for an exception: for an exception of this package, also the full path."""
    kind = getattr(exceptions, name, None)
    is_own = isinstance(kind, type) and issubclass(kind, exceptions.GraphileWorkerError)
    return (name, f"{exceptions.__name__}.{name}") if is_own else (name,)


def was_given_up(error: str | None) -> bool:
    """Return whether the task itself ended all attempts, by raising PermanentFailure for example."""
    name = (error or "").split("\n", 1)[0].split(":", 1)[0]
    return jobs.was_given_up(error) or name in _paths_with_subclasses(exceptions.PermanentFailure)


def _paths_with_subclasses(kind: type[BaseException]) -> set[str]:
    """Return the paths of an exception and of all its subclasses that this process has loaded."""
    below = (_paths_with_subclasses(each) for each in kind.__subclasses__())
    return {f"{kind.__module__}.{kind.__qualname__}"}.union(*below)
