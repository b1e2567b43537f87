"""How many jobs there are, as the planner estimates it."""

from __future__ import annotations

import json
from typing import Any

from django_graphile_worker.sql.statements import statement

ESTIMATE = "/* gw:estimate-matching */ explain (format json) select from :SCHEMA._private_jobs"


def estimate(cursor: Any, *, schema: str) -> int:
    """Return the planner's estimate of the number of all jobs, which reads none, rounded to two digits."""
    cursor.execute(statement(ESTIMATE, schema))
    (plan,) = cursor.fetchone()
    plans = json.loads(plan) if isinstance(plan, str) else plan
    return rounded(int(plans[0]["Plan"]["Plan Rows"]))


def rounded(number: int) -> int:
    """Return a number with two digits that are not zero."""
    digits = len(str(number)) - 2
    return round(number, -digits) if digits > 0 else number
