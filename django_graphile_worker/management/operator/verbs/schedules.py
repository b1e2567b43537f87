"""``schedules``: list, add, edit, pause, run, export and import the schedules of the database."""

from __future__ import annotations

from django.utils import translation

from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.schedules.changing import (
    Add,
    Delete,
    Disable,
    Edit,
    Enable,
    Pause,
    Resume,
    Run,
)
from django_graphile_worker.management.operator.schedules.files import Export, Import
from django_graphile_worker.management.operator.schedules.listing import List, Next, Show
from django_graphile_worker.management.operator.verb import Options, VerbGroup


class Schedules(VerbGroup):
    name = "schedules"
    summary = "List, add, edit, pause, run, export and import schedules; without a verb, list them."
    description = "A schedule is a row of the database that says when a task runs. Its own verbs have a --help each."
    examples = ("", "add nightly-report send_report --cron '0 4 * * *'", "export > schedules.json")
    verbs = (
        List(),
        Show(),
        Add(),
        Edit(),
        Pause(),
        Resume(),
        Enable(),
        Disable(),
        Run(),
        Next(),
        Delete(),
        Export(),
        Import(),
    )

    def run(self, console: Console, options: Options) -> None:
        # The texts of the command line are English, those of the model are translated.
        with translation.override(None):
            super().run(console, options)
