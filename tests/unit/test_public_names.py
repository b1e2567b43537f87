"""The names that the package exports."""

from __future__ import annotations

import django_graphile_worker
from django_graphile_worker import (
    GraphileWorkerError,
    exceptions,
)


def test_exceptions__that_people_catch_are_where_the_functions_are() -> None:
    for name, found in vars(exceptions).items():
        if isinstance(found, type) and issubclass(found, GraphileWorkerError):
            assert getattr(django_graphile_worker, name) is found
            assert name in django_graphile_worker.__all__
