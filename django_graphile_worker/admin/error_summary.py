"""What a failed job's error says, in the little room that a list has."""

from __future__ import annotations

import re
from typing import NamedTuple

from django_graphile_worker import attempts, exceptions
from django_graphile_worker.redaction import redact_text

# Where our own exceptions live is nobody's concern, and leaves no room for what they say.
_OWN = re.compile(r"django_graphile_worker(?:\.[a-z_]\w*)*\.(?P<name>[A-Z]\w*)(?=:|$)")


class Summary(NamedTuple):
    """The first line of an error; and that line as it was, if it has been shortened."""

    text: str
    whole: str = ""


def summary(error: str | None, *, sees_payloads: bool) -> Summary:
    """The first line, with the names of our own exceptions instead of their paths."""
    line = (error or "").split("\n", 1)[0]
    whole = line if sees_payloads else redact_text(line)
    text = short_name(whole)
    return Summary(text, "" if text == whole else whole)


def short_name(line: str) -> str:
    """A line that begins with the path of one of our exceptions, with its name alone."""
    return _OWN.sub(lambda found: found["name"], line, count=1) if _OWN.match(line) else line


def without_name(line: str, name: str) -> str:
    """What an error says apart from what it is called."""
    return "" if line == name else line.removeprefix(f"{name}: ")


def paths_of(name: str) -> tuple[str, ...]:
    """The names under which jobs may keep an exception that somebody calls so."""
    kind = getattr(exceptions, name, None)
    is_own = isinstance(kind, type) and issubclass(kind, exceptions.GraphileWorkerError)
    return (name, f"{exceptions.__name__}.{name}") if is_own else (name,)


def was_given_up(error: str | None) -> bool:
    """Tell whether the task itself said that trying again is of no use."""
    name = (error or "").split("\n", 1)[0].split(":", 1)[0]
    return attempts.was_given_up(error) or name in _permanent(exceptions.PermanentFailure)


def _permanent(kind: type[BaseException]) -> set[str]:
    """The names of an exception and of everything derived from it that this process knows."""
    below = (_permanent(each) for each in kind.__subclasses__())
    return {f"{kind.__module__}.{kind.__qualname__}"}.union(*below)
