"""The tables on adding jobs from Python."""

from __future__ import annotations

from benchmarks.report.figures import Figures, rounded
from benchmarks.report.markdown import table


def one(figures: Figures) -> str:
    """Return how long adding one job takes, beside a row of the ORM."""
    alone = figures.rows("api", "one")
    within = {row.key: row for row in figures.rows("api", "one_in_transaction")}
    rows = [[f"`{row.label}`", rounded(row.median("call")), rounded(within[row.key].median("call"))] for row in alone]
    return table(("one row", "µs, in a transaction of its own", "µs, in one transaction for all"), rows)


def many(figures: Figures) -> str:
    """Return how long adding many jobs takes, beside rows of the ORM."""
    rows = [
        [f"`{row.label}`", rounded(row.median("seconds")), rounded(100_000 / row.median("seconds"))]
        for row in figures.rows("api", "many")
    ]
    return table(("100,000 rows", "seconds", "rows a second"), rows)
