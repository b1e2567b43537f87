"""Deliberate mistakes in the product. Each must make a named test fail; see test_mutants.py."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.faults.world import World


def apply(name: str, *, is_in_tests: bool = False) -> None:
    """Make a mistake in this process."""


def apply_to_database(name: str, world: World) -> None:
    """Make a mistake in the functions of the schema."""
