"""What a database role needs, to be run by somebody who may grant it: ``grants``."""

from __future__ import annotations

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql import grants


class Grants(Verb):
    name = "grants"
    summary = "Print the SQL that a database role needs, for the owner of the tables to run."
    description = (
        "Most sites run everything as the role that owns the tables, and need none. For another role it prints grants "
        "and row-level policies by what the role is for: an adder adds jobs and sees none; a keyed-adder also replaces "
        "those with a key; a worker runs and manages jobs; a viewer looks at everything and changes nothing. Changes "
        "nothing by itself. Run it again after an upgrade: what is printed may be run any number of times."
    )
    examples = ("web_app", "web_app --kind keyed-adder", "worker_app --kind worker")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", metavar="ROLE", help="The role's name.")
        parser.add_argument(
            "--kind", choices=list(grants.FILES), default="adder", help="What the role is for (default: adder)."
        )

    def run(self, desk: Console, options: Options) -> None:
        text = grants.script(options["kind"], options["role"], schema=desk.settings.schema)
        if desk.is_json:
            desk.dump({"role": options["role"], "kind": options["kind"], "sql": text})
        else:
            desk.say(text.rstrip())
