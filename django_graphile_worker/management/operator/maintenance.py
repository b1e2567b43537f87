"""``cleanup``, ``repair`` and ``grants``: the verbs about the database itself."""

from __future__ import annotations

import dataclasses

from django.core.management.base import CommandError

from django_graphile_worker import api
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.management.arguments import Argument, period
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import counted
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.operations.repair import repair
from django_graphile_worker.sql.install import privileges

KINDS = list(privileges.GRANT_FILES)


class Cleanup(Verb):
    name = "cleanup"
    summary = "Delete old failed jobs, and names that no job uses."
    description = (
        "Delete what the options select; this is safe while workers run. Names of tasks that this project or a live "
        "worker has are kept. Node's workers do not register their tasks, so omit --tasks if such workers share the "
        "queue."
    )
    examples = ("--permanently-failed-older-than 7d", "--permanently-failed-older-than 30d --queues --tasks")
    arguments = (
        Argument(
            "--permanently-failed-older-than", "AGE", "Delete jobs that failed AGE ago or earlier: 7d, 12h.", period
        ),
        Argument("--queues", "", "Delete the names of queues without jobs."),
        Argument("--tasks", "", "Delete the names of tasks without jobs."),
    )

    def run(self, console: Console, options: Options) -> None:
        age = options["permanently_failed_older_than"]
        if age is None and not options["queues"] and not options["tasks"]:
            raise CommandError("One of --permanently-failed-older-than, --queues and --tasks is required.")
        result = api.cleanup(
            failed_jobs_older_than=age,
            unused_queues=options["queues"],
            unused_tasks=options["tasks"],
            **console.place,
        )
        if console.is_json:
            console.dump(dataclasses.asdict(result))
        else:
            names = f"{counted(result.queues, 'queue name')}, {counted(result.tasks, 'task name')}"
            console.done(f"Deleted {counted(result.jobs, 'job')}, {names}.")
        if not result.is_complete:
            console.note(
                "Not all names were checked: jobs were added continuously, or a worker does not register its tasks. "
                "Try again later."
            )


class Repair(Verb):
    name = "repair"
    summary = "Restore functions and indexes that somebody has changed."
    description = (
        "Another program that works on the same schema (graphile_worker for Rust, for example) may replace add_job and "
        "similar functions by its own, and migrate then has nothing to do. Restore all functions of this package, drop "
        "functions of the same names with other arguments, which make calls ambiguous, and build missing indexes. "
        "Report each change. Jobs are not changed, and workers may run. The role must own the schema, as for migrate."
    )
    examples = ("", "--json")

    def run(self, console: Console, options: Options) -> None:
        with open_queue(**console.place) as queue:
            alias, schema = queue.alias, queue.schema
        repaired = repair(alias, schema)
        if console.is_json:
            console.dump(dataclasses.asdict(repaired))
        else:
            console.say(str(repaired) or "Nothing to repair.")


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
    arguments = (
        Argument("role", "ROLE", "The name of the role."),
        Argument("--kind", "", "The purpose of the role (default: adder).", choices=KINDS, default="adder"),
    )

    def run(self, console: Console, options: Options) -> None:
        text = privileges.grants_script(options["kind"], options["role"], schema=console.settings.schema)
        if console.is_json:
            console.dump({"role": options["role"], "kind": options["kind"], "sql": text})
        else:
            console.say(text.rstrip())
