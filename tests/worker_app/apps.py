from __future__ import annotations

import os

from django.apps import AppConfig


class WorkerAppConfig(AppConfig):
    """The tasks of the fault tests. FAULT_MUTANT names a deliberate mistake to make in the package."""

    name = "tests.worker_app"

    def ready(self) -> None:
        mutant = os.environ.get("FAULT_MUTANT")
        if mutant:
            from tests.faults import mutants

            mutants.apply(mutant)
        if "FAULT_WAITING_TIMEOUT" in os.environ:
            from django_graphile_worker.worker.fetching import fetcher

            fetcher.WAITING_TIMEOUT = float(os.environ["FAULT_WAITING_TIMEOUT"])
