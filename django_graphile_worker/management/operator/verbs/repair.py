"""Putting the worker schema right: ``repair``."""

from __future__ import annotations

from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.operations.repair import Repaired, repair


class Repair(Verb):
    name = "repair"
    summary = "Put back functions and indexes that another program has changed."
    description = (
        "Another program that works on the same schema (graphile_worker for Rust, for one) may replace add_job and its "
        "like by its own, and migrate then has nothing to do. This puts ours back, drops functions of the same names "
        "with other arguments, which make calls ambiguous, and builds indexes that are missing. Says what it did; "
        "touches no job, and is safe while workers run. Connect as the owner of the schema, as for migrate."
    )
    examples = ("", "--json")

    def run(self, desk: Console, options: Options) -> None:
        with open_queue(**desk.place) as queue:
            alias, schema = queue.alias, queue.schema
        repaired = repair(alias, schema)
        if desk.is_json:
            desk.dump(vars(repaired))
        else:
            desk.say("\n".join(_sentences(repaired)) or "Nothing to repair.")


def _sentences(repaired: Repaired) -> list[str]:
    said = {
        "Put back: ": repaired.restored,
        "Dropped: ": repaired.dropped,
        "Built: ": repaired.built,
    }
    return [f"{what}{', '.join(names)}." for what, names in said.items() if names]
