"""System checks without the tasks of the test project."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from django.core import checks as django_checks
from django.core.checks import CheckMessage

from django_graphile_worker.registry import Registry, tasks


@pytest.fixture(autouse=True)
def registry() -> Iterator[Registry]:
    with tasks.isolated() as isolated:
        yield isolated


@pytest.fixture
def configure(settings: Any, worker_schema: str) -> Any:
    def change(**changes: Any) -> None:
        settings.GRAPHILE_WORKER = {"SCHEMA": worker_schema} | changes

    return change


def found(databases: Sequence[str] = ()) -> list[CheckMessage]:
    return list(django_checks.run_checks(tags=["graphile_worker"], databases=databases))
