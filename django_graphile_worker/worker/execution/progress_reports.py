"""Where the progress of a run goes: to the service of a worker, or at once to the database where there is no worker."""

from __future__ import annotations

from typing import TYPE_CHECKING

from django.db import connections

from django_graphile_worker.sql import progress as sql_progress
from django_graphile_worker.sql.claims import Claim

if TYPE_CHECKING:
    from typing import Protocol

    from django_graphile_worker.progress import Progress

    class ProgressReports(Protocol):
        """What takes the progress of runs."""

        def report(self, claim: Claim, progress: Progress, /) -> None:
            """Take the progress of a run."""

        def finish(self, claim: Claim, /) -> None:
            """Store the last progress of a run that is about to end."""


class DirectReports:
    """Reports that are written at once on Django's connection, inside its transaction."""

    def __init__(self, *, using: str, schema: str) -> None:
        self._using = using
        self._schema = schema

    def report(self, claim: Claim, progress: Progress) -> None:
        report = sql_progress.Report(claim.id, claim.token, progress.done, progress.total, progress.message)
        with connections[self._using].cursor() as cursor:
            sql_progress.write(cursor, [report], schema=self._schema)

    def finish(self, claim: Claim) -> None:
        """Do nothing: every report is written when it is made."""
