"""Versions of this package: which release a worker belongs to, and which of two is older."""

from __future__ import annotations

import re

# Workers report their version in a column that other programs can write, too.
_RELEASE = re.compile(r"\d{1,9}(\.\d{1,9}){0,9}")


def release_of(version: str) -> tuple[int, ...]:
    """Return the numbers of a release, without zeros at the end; empty for what is no version.

    A preview of 1.1, like 1.1rc1, has the tables of 1.1, so it counts as 1.1.
    """
    found = _RELEASE.match(version)
    numbers = [int(number) for number in found[0].split(".")] if found else []
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def is_older(version: str, than: str) -> bool:
    """Return whether a version belongs to an earlier release. What is no version is not older."""
    return () < release_of(version) < release_of(than)
