"""``add``: add a job."""

from __future__ import annotations

from django.core.management.base import CommandParser

from django_graphile_worker import api, registry
from django_graphile_worker.api.add import logged_names
from django_graphile_worker.api.connection import open_queue
from django_graphile_worker.job_options import OPTIONS
from django_graphile_worker.jobs import Job
from django_graphile_worker.management.operator import arguments
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.formatting import job_as_dict, job_line
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.sql.migrations_ledger import refuse_breaking_migration


class Add(Verb):
    name = "add"
    summary = "Add a job."
    description = (
        "Options that are not given have the defaults of the task. A task that this project does not have is accepted "
        "with a warning: other workers may have it."
    )
    examples = (
        "send_receipt '{\"order\": 1}'",
        "send_receipt '{order: 1}' --run-at +5m --queue mail --priority 5",
        "rebuild_index - --key index --key-mode preserve_run_at < payload.json",
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("task", metavar="TASK", help="The identifier of the task.")
        parser.add_argument(
            "payload",
            nargs="?",
            metavar="PAYLOAD",
            help="The payload as JSON or JSON5; - reads it from standard input (default: {}).",
        )
        for option in OPTIONS.values():
            kind = arguments.of_option(option)
            parser.add_argument(f"--{option.argument}", dest=option.name, help=option.help, **kind)

    def run(self, console: Console, options: Options) -> None:
        name = options["task"]
        known = registry.tasks.get(name)
        self._refuse_newer_schema(console)
        # add_job() does not log this name: the console shows the warning below.
        logged_names.add(name)
        job = self._add(console, options)
        if known is None:
            hint = arguments.did_you_mean(name, registry.tasks.identifiers())
            console.warn(f"This project has no task {name!r}: the job waits for a worker that has it.{hint}")
        if console.is_json:
            console.dump(job_as_dict(job))
            return
        console.say(console.style.SUCCESS(f"{_what_happened(job)} {job_line(job, console.now())}"))

    def _refuse_newer_schema(self, console: Console) -> None:
        with open_queue(**console.place) as queue:
            refuse_breaking_migration(queue.cursor, schema=queue.schema)

    def _add(self, console: Console, options: Options) -> Job:
        return api.add_job(
            registry.tasks.get(options["task"]) or options["task"],
            arguments.payload(options["payload"]),
            **{name: options[name] for name in OPTIONS},
            **console.place,
        )


def _what_happened(job: Job) -> str:
    """Return a word for the effect of add_job(): a job that was replaced has a revision."""
    if job.existed:
        return "Already exists:"
    return "Replaced" if job.revision else "Added"
