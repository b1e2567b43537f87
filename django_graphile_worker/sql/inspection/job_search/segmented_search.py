"""A search that goes through several segments: see ``segments``."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from django_graphile_worker.sql.inspection.job_search.criteria import Criteria

# How many times a page searches on if a search has ended without filling the page.
MOST_LOOKS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """The ids of a page, and where the next page begins (None: this was the last)."""

    ids: list[int]
    next_token: str | None
    # How many jobs were read without filling the page, if there are more jobs; None if all were read.
    examined: int | None
    # Where the page itself begins.
    first_token: str | None = None


# Finds jobs of one segment: the segment, where to begin, and how many.
FindIn = Callable[[Criteria, str | None, int], Found]


class SegmentedSearch:
    """A page that goes through several segments, one after the other. A token begins with the number of a segment."""

    TOKEN = re.compile(r"s([0-9])~(.*)")

    def __init__(
        self, find_in: FindIn, parts: Sequence[Criteria], limit: int, is_backwards: bool, *, most_examined: int
    ) -> None:
        self.find_in, self.parts, self.limit, self.is_backwards = find_in, parts, limit, is_backwards
        self.most_examined = most_examined
        self.ids: list[int] = []
        self.examined = self.looks = 0
        self.first_token: str | None = None

    def find(self, after: str | None) -> Found:
        numbers = list(range(len(self.parts)))
        place = self.TOKEN.fullmatch(after or "")
        start = (int(place[1]), place[2]) if place and int(place[1]) in numbers else None
        first, token = start or (numbers[-1] if self.is_backwards else 0, "")
        numbers = [each for each in reversed(numbers) if each <= first] if self.is_backwards else numbers[first:]
        for number in numbers:
            next_token = self._search(number, token if number == first else "")
            if next_token is not None:
                examined = self.examined if len(self.ids) < self.limit else None
                return self._found(f"s{number}~{next_token}", examined)
        return self._found(None, None)

    def _search(self, number: int, token: str) -> str | None:
        """Search one segment; return where the next page begins, or None if the segment is finished."""
        if len(self.ids) == self.limit:
            # The next page begins here, unless there are no jobs.
            further = self._find(number, token, 1)
            return token if further.ids or further.next_token is not None else None
        while True:
            found = self._find(number, token, self.limit - len(self.ids))
            self.ids += found.ids
            if self.first_token is None and found.first_token is not None:
                self.first_token = f"s{number}~{found.first_token}"
            self.examined += found.examined or 0
            self.looks += found.examined is not None
            if found.next_token is None:
                return None
            token = found.next_token
            if len(self.ids) == self.limit or self.examined >= self.most_examined or self.looks >= MOST_LOOKS:
                return token

    def _find(self, number: int, token: str, limit: int) -> Found:
        return self.find_in(self.parts[number], token or None, limit)

    def _found(self, next_token: str | None, examined: int | None) -> Found:
        return Found(ids=self.ids, next_token=next_token, examined=examined, first_token=self.first_token)
