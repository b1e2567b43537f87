from __future__ import annotations

import os

from django.apps import AppConfig


class WorkerAppConfig(AppConfig):
    """The tasks that the fault tests run; and, when asked for, a deliberate mistake in the product."""

    name = "tests.worker_app"

    def ready(self) -> None:
        mutant = os.environ.get("FAULT_MUTANT")
        if mutant:
            from tests.faults import mutants

            mutants.apply(mutant)
        if "FAULT_PATIENCE" in os.environ:
            from django_graphile_worker.worker.fetching import fetcher

            fetcher.WAITING_TIMEOUT = float(os.environ["FAULT_PATIENCE"])
