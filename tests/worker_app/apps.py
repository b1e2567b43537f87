from __future__ import annotations

import json
import os
from importlib import import_module

from django.apps import AppConfig


class WorkerAppConfig(AppConfig):
    """The tasks of the fault tests.

    FAULT_MUTANT names a deliberate mistake to make in the package. FAULT_CONSTANTS has other values
    for constants of it.
    """

    name = "tests.worker_app"

    def ready(self) -> None:
        mutant = os.environ.get("FAULT_MUTANT")
        if mutant:
            from tests.faults import mutants

            mutants.apply(mutant)
        for path, value in json.loads(os.environ.get("FAULT_CONSTANTS", "{}")).items():
            module, _, name = path.rpartition(".")
            setattr(import_module(f"django_graphile_worker.{module}"), name, value)
