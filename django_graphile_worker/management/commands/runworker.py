from __future__ import annotations

import os
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.gc_pause import objects_that_stay
from django_graphile_worker.management.options import add_worker_arguments, overrides_from, settings_from
from django_graphile_worker.management.plan import RELOADER_PIPE, Plan

if TYPE_CHECKING:
    from django_graphile_worker.worker.stop_request import StopState


class Command(BaseCommand):
    help = "Runs the jobs in the queue until it is stopped."
    requires_system_checks = ["graphile_worker"]
    # Django's own note of it: not by call_command().
    _called_from_command_line: bool
    # Made when the worker starts.
    _request: StopState | None = None

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        # The worker looks at its database itself, later, when it can say more about it.
        return {"tags": self.requires_system_checks, "databases": []}

    def add_arguments(self, parser: CommandParser) -> None:
        add_worker_arguments(parser)

    def execute(self, *args: Any, **options: Any) -> str | None:
        if options["reload"] and not _is_watched():
            # Nothing that is wrong with the code ends the process that waits for it to become right.
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        if options["reload"] and not _is_watched():
            self._exit(self._keep_running(options))
            return
        plan = self._plan(options)
        try:
            code = self._run_watched(plan) if options["reload"] else self._run(plan)
        except CommandError as error:
            if not self._must_leave:
                raise
            self.stderr.write(f"CommandError: {error}")
            code = error.returncode
        self._exit(code)

    def _plan(self, options: dict[str, Any]) -> Plan:
        settings = settings_from(options)
        processes = 1 if options["reload"] else settings.processes
        return Plan(
            settings=settings.replace(processes=processes),
            overrides=overrides_from(options) | {"processes": processes},
            databases=tuple(options.get("databases") or ()),
            installations=tuple(options.get("installations") or ()),
            also_forbidden=tuple(options.get("forbidden_flags") or ()),
            once=bool(options["once"]),
            with_cron=not options["no_cron"],
            verbosity=int(options["verbosity"]),
            is_colored=self._is_colored(options),
            waits=not options["no_wait"],
            health_file=options["health_file"],
        )

    def _is_colored(self, options: dict[str, Any]) -> bool:
        if options.get("force_color"):
            return True
        return self.stderr.isatty() and not options.get("no_color") and not os.environ.get("NO_COLOR")

    def _run(self, plan: Plan, stop: StopState | None = None) -> int:
        # Not at the top: without psycopg 3 the system checks, which come before this, say so.
        import psycopg

        try:
            return self._launch(plan, stop)
        except GraphileWorkerError as error:
            raise CommandError(str(error), returncode=error.exit_code) from error
        except psycopg.Error as error:
            from django_graphile_worker.worker.process.database_errors import in_a_sentence

            raise CommandError(in_a_sentence(error)) from error

    def _launch(self, plan: Plan, stop: StopState | None) -> int:
        from django_graphile_worker.worker.fetching.preconnect import preconnected

        is_alone = plan.settings.processes == 1
        places = plan.places()
        with ExitStack() as connections_ahead:
            for place in places if is_alone else ():
                connections_ahead.enter_context(preconnected([place.using], place.settings))
            # Here, and not at the top: the server gets ready while Python loads the rest of the worker, for 15 ms.
            with objects_that_stay():
                from django_graphile_worker.management import launch
                from django_graphile_worker.worker.stop_request import StopState

            self._request = StopState() if stop is None else stop
            try:
                return launch.run(plan, say=self._say, stop=self._request)
            finally:
                if stop is None:
                    self._request.close()

    def _keep_running(self, options: dict[str, Any]) -> int:
        if options["once"] or (options["processes"] or 1) > 1:
            raise CommandError("--reload: expected one process that stays, got --processes or --once as well.")
        from django_graphile_worker.management import reloading

        return reloading.keep_running(self._say)

    def _run_watched(self, plan: Plan) -> int:
        from django_graphile_worker.management import reloading

        return reloading.run_watched(lambda request: self._run(plan, request))

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    @property
    def _must_leave(self) -> bool:
        """Is this process the worker's own, and does a job still run in it? Who calls call_command() goes on."""
        return self._is_own_end and self._request is not None and self._request.leaves_jobs_behind

    @property
    def _is_own_end(self) -> bool:
        return self._called_from_command_line and self._request is not None and self._request.is_made

    def _exit(self, code: int) -> None:
        if self._is_own_end:
            from django_graphile_worker.worker.process.exit import end_in_time, leave

            if self._must_leave:
                leave(code)
            # Jobs that are over may have left threads behind, for which Python would wait.
            end_in_time(code)
        if code:
            sys.exit(code)


def _is_watched() -> bool:
    """Is this the worker that the process started which --reload leaves to watch?"""
    return RELOADER_PIPE in os.environ
