"""The numbers of limits as the parameters of a statement."""

from __future__ import annotations

from collections.abc import Iterable

from django_graphile_worker.limits.definitions import LimitDefinition
from django_graphile_worker.sql.codecs import nullable_array, text_array

PARAMETERS = """%(limit_names)s::text[], %(concurrencies)s::int[], %(rate_counts)s::int[],
    %(rate_windows)s::float8[], %(bursts)s::int[]"""


def parameters_of(definitions: Iterable[LimitDefinition]) -> dict[str, str]:
    """Return the parameters of ``PARAMETERS``: an array for each number, in the order of the names."""
    known = list(definitions)
    return {
        "limit_names": text_array([each.name for each in known]),
        "concurrencies": nullable_array([each.numbers.concurrency for each in known]),
        "rate_counts": nullable_array([each.numbers.rate_count for each in known]),
        "rate_windows": nullable_array([each.numbers.rate_seconds for each in known]),
        "bursts": nullable_array([each.numbers.burst for each in known]),
    }
