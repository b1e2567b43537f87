"""The command ``runworker``: its options, and the plan they become."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_graphile_worker import __version__, conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.management.arguments import Argument, existing_file, number
from django_graphile_worker.setting_types import ExpectationError, optional_address
from django_graphile_worker.worker.process.plan import Plan, is_watched

# The limits of a process, at which another one takes its place.
RECYCLING = ("max_jobs", "max_memory", "max_age")
# Options that change the setting of the same name.
SETTINGS = (
    "concurrency",
    "processes",
    *RECYCLING,
    "poll_interval",
    "listen",
    "prepared_statements",
    "local_queue_size",
    "grace_period",
    "tasks",
    "exclude_tasks",
    "queue_labels",
    "crontab_file",
    "log_success",
    "metrics_port",
)


def poll_interval(text: str) -> float:
    seconds = float(number(0.01, float)(text))
    if seconds > conf.MAX_POLL_INTERVAL:
        raise ArgumentTypeError(
            f"{text} seconds are too long, the limit is {conf.MAX_POLL_INTERVAL:g}. Are they milliseconds, as in "
            f"graphile-worker? Then it is {seconds / 1000:g}"
        )
    return seconds


def address(text: str) -> str:
    try:
        optional_address(text)
    except ExpectationError:
        raise ArgumentTypeError(f"expected a port from 1 to 65535, or HOST:PORT, got {text!r}") from None
    return text


# A switch that turns a setting off.
OFF: Any = {"action": "store_false", "default": None}
ARGUMENTS = {
    "amount of work": (
        Argument(
            "-j --jobs --concurrency", "N", "Run N jobs at once (default: CONCURRENCY).", number(1), dest="concurrency"
        ),
        Argument("--processes", "N", "Run N processes, to use more cores (default: PROCESSES).", number(1)),
        Argument("--max-jobs", "N", "Replace a process that has run N jobs (default: MAX_JOBS).", number(1)),
        Argument("--max-memory", "MB", "Replace a process that uses so much (default: MAX_MEMORY).", number(1)),
        Argument("--max-age", "SECONDS", "Replace a process that is so old (default: MAX_AGE).", number(1, float)),
        Argument("--once", "", "Run the jobs that are due, without recurring tasks, then exit."),
        Argument("--local-queue-size", "N", "Claim up to N jobs ahead (default: LOCAL_QUEUE_SIZE).", number(0)),
        Argument(
            "--grace-period",
            "SECONDS",
            "Let jobs finish for so long (default: GRACE_PERIOD).",
            number(0, float),
        ),
    ),
    "choice of jobs; each option may be given several times": (
        Argument("--database", "ALIAS", "Work on this database.", action="append", dest="databases"),
        Argument("--installation", "ALIAS", "Work on this installation.", action="append", dest="installations"),
        Argument("--tasks", "GLOB", "Run only tasks that match GLOB.", action="append"),
        Argument("--exclude-tasks", "GLOB", "Do not run tasks that match GLOB.", action="append"),
        Argument("--queue-label", "LABEL", "Run only tasks with this label.", action="append", dest="queue_labels"),
        Argument("--forbid-flag", "FLAG", "Run no jobs with this flag.", action="append", dest="forbidden_flags"),
    ),
    "recurring tasks": (
        Argument("--crontab", "FILE", "Read this file instead of CRONTAB_FILE.", existing_file, dest="crontab_file"),
        Argument("--no-cron", "", "Add no jobs of recurring tasks: leave them to other workers."),
    ),
    "connection to PostgreSQL": (
        Argument("--poll-interval", "SECONDS", "Poll at this interval (default: POLL_INTERVAL).", poll_interval),
        Argument("--no-listen", "", "Only poll: for poolers in transaction mode.", dest="listen", **OFF),
        Argument("--no-prepared-statements", "", "For older poolers.", dest="prepared_statements", **OFF),
    ),
    "containers": (
        Argument("--health-file", "PATH", "Rewrite this file while the process is healthy.", default=""),
        Argument(
            "--metrics-port",
            "PORT",
            "Serve /metrics, /live and /ready on this port, or HOST:PORT (default: METRICS_PORT).",
            address,
        ),
        Argument("--no-wait", "", "Exit with an error if the database does not answer at the start."),
    ),
    "output and development": (
        Argument("--no-log-success", "", "Do not log jobs that succeed.", dest="log_success", **OFF),
        Argument("--reload", "", "Restart when code changes, as runserver does: for development."),
    ),
}


def plan_from(options: dict[str, Any], *, is_colored: bool) -> Plan:
    """Return the plan of a command line. The settings are not read: see Plan."""
    if options["reload"] and (options["once"] or (options["processes"] or 1) > 1):
        raise CommandError("--reload cannot be used with --processes or --once.")
    limits = [name for name in RECYCLING if options.get(name) is not None]
    if limits and (options["reload"] or options["once"]):
        other = "--reload" if options["reload"] else "--once"
        raise CommandError(f"--{limits[0].replace('_', '-')} cannot be used with {other}: no process is replaced then.")
    return Plan(
        overrides={name: options[name] for name in SETTINGS if options.get(name) is not None},
        databases=tuple(options.get("databases") or ()),
        installations=tuple(options.get("installations") or ()),
        also_forbidden=tuple(options.get("forbidden_flags") or ()),
        once=bool(options["once"]),
        reload=bool(options["reload"]),
        with_cron=not options["no_cron"],
        verbosity=int(options["verbosity"]),
        is_colored=is_colored,
        waits=not options["no_wait"],
        health_file=options["health_file"],
    )


class Command(BaseCommand):
    """Turns options into a plan, starts the plan, and ends with its exit code."""

    help = "Run the jobs in the queue until stopped."
    requires_system_checks = ["graphile_worker"]
    # Set by Django: False under call_command().
    _called_from_command_line: bool

    def get_version(self) -> str:
        return __version__

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        # The worker checks its database later, when it can report more about it.
        return {"tags": self.requires_system_checks, "databases": []}

    def add_arguments(self, parser: CommandParser) -> None:
        for title, arguments in ARGUMENTS.items():
            group = parser.add_argument_group(title)
            for argument in arguments:
                argument.add_to(group)

    def execute(self, *args: Any, **options: Any) -> str | None:
        if options["reload"] and not is_watched():
            # A mistake in the code must not end the process that waits for changes of the code.
            options["skip_checks"] = True
        return super().execute(*args, **options)

    def handle(self, *args: Any, **options: Any) -> None:
        # Late import: if psycopg 3 is missing, the system checks, which run before this, report it.
        from django_graphile_worker.worker.process.start import start

        plan = plan_from(options, is_colored=self._is_colored(options))
        try:
            code = start(plan, say=self._say, complain=self._complain, owns_process=self._called_from_command_line)
        except GraphileWorkerError as error:
            raise CommandError(str(error), returncode=error.exit_code) from error
        if code:
            sys.exit(code)

    def _is_colored(self, options: dict[str, Any]) -> bool:
        if options.get("force_color"):
            return True
        return self.stderr.isatty() and not options.get("no_color") and not os.environ.get("NO_COLOR")

    def _say(self, text: str) -> None:
        self.stdout.write(text)
        self.stdout.flush()

    def _complain(self, text: str) -> None:
        self.stderr.write(f"CommandError: {text}")
