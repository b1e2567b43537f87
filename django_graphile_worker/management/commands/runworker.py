from __future__ import annotations

import atexit
import sys
from typing import Any

import psycopg
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils import autoreload

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management.options import add_worker_arguments, settings_from
from django_graphile_worker.management.plan import Plan
from django_graphile_worker.routing import queue_alias
from django_graphile_worker.worker.headstart import head_start


class Command(BaseCommand):
    help = "Runs the jobs in the queue until it is stopped."
    requires_system_checks = ["graphile_worker"]

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        # The worker looks at its database itself, later, when it can say more about it.
        return {"tags": self.requires_system_checks, "databases": []}

    def add_arguments(self, parser: CommandParser) -> None:
        add_worker_arguments(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        plan = Plan(
            settings=settings_from(options),
            databases=tuple(options.get("databases") or ()),
            once=bool(options["once"]),
            with_cron=not options["no_cron"],
            verbosity=int(options["verbosity"]),
            is_colored=self.stderr.isatty() and not options.get("no_color", False),
        )
        if options["reload"]:
            self._run_with_reloader(plan)
        else:
            self._exit(self._run(plan))

    def _run(self, plan: Plan) -> int:
        try:
            return self._launch(plan)
        except GraphileWorkerError as error:
            raise CommandError(str(error)) from error
        except psycopg.OperationalError as error:
            raise CommandError(f"Expected the database to answer, got: {error}") from error

    def _launch(self, plan: Plan) -> int:
        is_alone = plan.settings.processes == 1
        aliases = plan.databases or (queue_alias(),)
        with head_start(aliases if is_alone else (), plan.settings):
            # Here, and not at the top: the server gets ready while Python loads the rest of the worker, for 15 ms.
            from django_graphile_worker.management import launch

            return launch.run(plan, say=self._say)

    def _run_with_reloader(self, plan: Plan) -> None:
        if plan.settings.processes > 1 or plan.once:
            raise CommandError("--reload: expected one process that stays, got --processes or --once as well.")
        autoreload.run_with_reloader(self._run_until_reload, plan)

    def _run_until_reload(self, plan: Plan) -> None:
        from django_graphile_worker.management import launch

        # The reloader ends the process without asking; jobs are let go on the way out.
        worker = launch.embedded(plan, say=self._say)
        atexit.register(worker.stop, "reload")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _exit(self, code: int) -> None:
        if code:
            sys.exit(code)
