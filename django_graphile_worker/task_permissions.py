"""The permissions that let users of the admin schedule tasks.

``@task(schedulable=True)`` makes a permission for the task, which the migrations insert; ``schedulable="app.codename"``
names a permission of the project instead.
"""

from __future__ import annotations

from django_graphile_worker.exceptions import InvalidTypeError

# The longest codename that Django stores.
LONGEST_CODENAME = 100
_PREFIX = "schedule:"


def valid_schedulable(value: object, *, name: str = "@task(schedulable=...)") -> bool | str:
    """Return True, False or the name of a permission; raise InvalidTypeError for any other value."""
    if isinstance(value, bool):
        return value
    if isinstance(value, str):
        app, separator, codename = value.partition(".")
        if separator and app.isidentifier() and codename and codename == codename.strip():
            return str.__str__(value)
    raise InvalidTypeError(
        f"{name}: expected True, False, or a permission like 'billing.schedule_reports', got {value!r}."
    )


def schedule_codename(identifier: str) -> str:
    """Return the codename of the permission to schedule a task. A long identifier is cut, and ends with its digest."""
    codename = f"{_PREFIX}{identifier}"
    if len(codename) <= LONGEST_CODENAME:
        return codename
    # Late import: few identifiers are that long.
    import hashlib

    digest = hashlib.sha256(identifier.encode()).hexdigest()[:16]
    return f"{codename[: LONGEST_CODENAME - len(digest) - 1]}~{digest}"
