"""The bare loop has no queue to load."""

from __future__ import annotations


def load(work: str, count: int) -> None:
    """Do nothing."""
