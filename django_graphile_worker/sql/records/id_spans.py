"""Values of jobs at the places of their ids, for statements that find the value of a row by its id."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from django_graphile_worker.sql.claims import Claim, group_by_token

# Jobs are deleted in place if there are at most this many times more ids between the first and the last of a claim.
LARGEST_SPREAD = 8

AnyValue = TypeVar("AnyValue")


class Span(NamedTuple):
    """The ids of the jobs of one token, in the order of the claims."""

    first_id: int
    # How many ids there are from the first to the last, those of other jobs included.
    length: int
    ids: list[int]
    # Whether the ids follow each other.
    is_whole: bool


def spans_of(claims: Sequence[Claim]) -> list[Span] | None:
    """Return the ids of each token; None if they lie too far apart."""
    spans = []
    for ids in group_by_token(claims).values():
        # Mostly they follow each other, and this comparison takes less time than the search for the first and the last.
        if ids == list(range(ids[0], ids[0] + len(ids))):
            spans.append(Span(ids[0], len(ids), ids, is_whole=True))
            continue
        first_id, behind = min(ids), max(ids) + 1
        if behind - first_id > LARGEST_SPREAD * len(ids):
            return None
        spans.append(Span(first_id, behind - first_id, ids, is_whole=False))
    return spans


def by_id(spans: Sequence[Span], values: Sequence[AnyValue], missing: AnyValue) -> list[AnyValue]:
    """Return the values, which are in the order of the claims, at the places of their ids."""
    placed: list[AnyValue] = []
    end = 0
    for first_id, length, ids, is_whole in spans:
        start, end = end, end + len(ids)
        if is_whole:
            placed += values[start:end]
            continue
        before = len(placed) - first_id
        placed += [missing] * length
        for job_id, value in zip(ids, values[start:end], strict=True):
            placed[before + job_id] = value
    return placed
