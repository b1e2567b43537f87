"""``repair``: restore functions and indexes of the worker schema."""

from __future__ import annotations

from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.operations.repair import Repaired, repair


class Repair(Verb):
    name = "repair"
    summary = "Restore functions and indexes that another program has changed."
    description = (
        "Another program that works on the same schema (graphile_worker for Rust, for example) may replace add_job and "
        "similar functions by its own, and migrate then has nothing to do. Restore the functions of this package, drop "
        "functions of the same names with other arguments, which make calls ambiguous, and build missing indexes. "
        "Report each change. Jobs are not changed, and workers may run. The role must own the schema, as for migrate."
    )
    examples = ("", "--json")

    def run(self, console: Console, options: Options) -> None:
        with open_queue(**console.place) as queue:
            alias, schema = queue.alias, queue.schema
        repaired = repair(alias, schema)
        if console.is_json:
            console.dump(vars(repaired))
        else:
            console.say("\n".join(_sentences(repaired)) or "Nothing to repair.")


def _sentences(repaired: Repaired) -> list[str]:
    changes = {
        "Restored: ": repaired.restored,
        "Dropped: ": repaired.dropped,
        "Built: ": repaired.built,
    }
    return [f"{what}{', '.join(names)}." for what, names in changes.items() if names]
