"""``grants``: print the SQL that gives a database role its rights."""

from __future__ import annotations

from django.core.management.base import CommandParser

from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql import grants


class Grants(Verb):
    name = "grants"
    summary = "Print the SQL that a database role needs, for the owner of the tables to run."
    description = (
        "Most sites run all processes as the role that owns the tables, and need no grants. For another role, print "
        "grants and row-level policies by its purpose: an adder adds jobs and cannot read them; a keyed-adder also "
        "replaces jobs with a key; a worker runs and manages jobs; a viewer reads everything and changes nothing. This "
        "verb itself changes nothing. Run it again after an upgrade: the SQL may be run any number of times."
    )
    examples = ("web_app", "web_app --kind keyed-adder", "worker_app --kind worker")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("role", metavar="ROLE", help="The name of the role.")
        parser.add_argument(
            "--kind",
            choices=list(grants.FILES),
            default="adder",
            help="Choose the purpose of the role (default: adder).",
        )

    def run(self, console: Console, options: Options) -> None:
        text = grants.script(options["kind"], options["role"], schema=console.settings.schema)
        if console.is_json:
            console.dump({"role": options["role"], "kind": options["kind"], "sql": text})
        else:
            console.say(text.rstrip())
