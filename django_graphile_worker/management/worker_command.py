"""The command ``runworker``, which ``graphile_worker run`` executes, too: its options, and the plan they become."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from django_graphile_worker import __version__, conf
from django_graphile_worker.exceptions import GraphileWorkerError
from django_graphile_worker.worker.process.plan import Plan, is_watched

# Options that change the setting of the same name.
SETTINGS = (
    "concurrency",
    "processes",
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
)


def at_least(smallest: float, kind: type[int] | type[float]) -> Any:
    """Return a converter that turns the text of an option into a number, and rejects numbers that are too small."""

    def convert(text: str) -> int | float:
        try:
            number = kind(text)
        except ValueError:
            number = None
        if number is None or not number >= smallest:
            what = "a whole number" if kind is int else "a number of seconds"
            raise ArgumentTypeError(f"expected {what} of at least {smallest}, got {text!r}")
        return number

    convert.__name__ = "number"
    return convert


def poll_interval(text: str) -> float:
    number = float(at_least(0.01, float)(text))
    if number > conf.MAX_POLL_INTERVAL:
        raise ArgumentTypeError(
            f"{text} seconds are too long, the limit is {conf.MAX_POLL_INTERVAL:g}. Are they milliseconds, as in "
            f"graphile-worker? Then it is {number / 1000:g}"
        )
    return number


def existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ArgumentTypeError(f"the file {text!r} does not exist")
    return path


def add_worker_arguments(parser: CommandParser) -> None:
    """Add the options of ``runworker``."""
    defaults = conf.Settings()
    _add_amounts(parser, defaults)
    _add_choices(parser)
    _add_recurring(parser)
    _add_connection(parser, defaults)
    _add_health(parser)
    _add_display(parser)


def _add_amounts(parser: CommandParser, defaults: conf.Settings) -> None:
    work = parser.add_argument_group("amount of work")
    work.add_argument(
        "-j",
        "--jobs",
        "--concurrency",
        dest="concurrency",
        type=at_least(1, int),
        metavar="N",
        help=f"Run up to N jobs at once in each process (default: CONCURRENCY, {defaults.concurrency}).",
    )
    work.add_argument(
        "--processes",
        type=at_least(1, int),
        metavar="N",
        help=f"Run N worker processes, to use more cores (default: PROCESSES, {defaults.processes}).",
    )
    work.add_argument(
        "--once",
        action="store_true",
        help="Run the jobs that are runnable now, then exit; fire neither a crontab nor schedules.",
    )
    work.add_argument(
        "--local-queue-size",
        type=at_least(0, int),
        metavar="N",
        help="Claim at most N jobs ahead of free slots; the worker chooses a number up to N "
        f"(default: LOCAL_QUEUE_SIZE, {defaults.local_queue_size}).",
    )
    work.add_argument(
        "--grace-period",
        type=at_least(0, float),
        metavar="SECONDS",
        help="Let running jobs continue for this long after the first signal "
        f"(default: GRACE_PERIOD, {defaults.grace_period:g}).",
    )


def _add_choices(parser: CommandParser) -> None:
    which = parser.add_argument_group("choice of jobs")
    which.add_argument(
        "--database",
        action="append",
        dest="databases",
        metavar="ALIAS",
        help="Work on this database; may be given several times, and -j applies to each (default: DATABASE).",
    )
    which.add_argument(
        "--installation",
        action="append",
        dest="installations",
        metavar="ALIAS",
        help="Work on this installation, if GRAPHILE_WORKER names several; may be given several times "
        "(default: default).",
    )
    which.add_argument(
        "--tasks", action="append", metavar="GLOB", help="Run only tasks that match GLOB; may be given several times."
    )
    which.add_argument(
        "--exclude-tasks",
        action="append",
        metavar="GLOB",
        help="Do not run tasks that match GLOB; may be given several times.",
    )
    which.add_argument(
        "--queue-label",
        action="append",
        dest="queue_labels",
        metavar="LABEL",
        help="Run only Django tasks with this label (queue_name), and tasks without labels if it is 'default'; may be "
        "given several times.",
    )
    which.add_argument(
        "--forbid-flag",
        action="append",
        dest="forbidden_flags",
        metavar="FLAG",
        help="Do not run jobs with this flag, in addition to FORBIDDEN_FLAGS; may be given several times.",
    )


def _add_recurring(parser: CommandParser) -> None:
    cron = parser.add_argument_group("recurring tasks")
    cron.add_argument(
        "--crontab",
        type=existing_file,
        dest="crontab_file",
        metavar="FILE",
        help="Read recurring tasks from this file instead of CRONTAB_FILE.",
    )
    cron.add_argument(
        "--no-cron",
        action="store_true",
        help="Add no jobs of recurring tasks, neither of the crontab nor of schedules: leave them to other workers.",
    )


def _add_connection(parser: CommandParser, defaults: conf.Settings) -> None:
    wire = parser.add_argument_group("connection to PostgreSQL")
    wire.add_argument(
        "--poll-interval",
        type=poll_interval,
        metavar="SECONDS",
        help="Look for jobs at this interval, even without a notification "
        f"(default: POLL_INTERVAL, {defaults.poll_interval:g}).",
    )
    wire.add_argument(
        "--no-listen",
        action="store_false",
        dest="listen",
        default=None,
        help="Only poll, and do not LISTEN: for poolers in transaction mode.",
    )
    wire.add_argument(
        "--no-prepared-statements",
        action="store_false",
        dest="prepared_statements",
        default=None,
        help="Do not prepare statements: for older poolers in transaction mode.",
    )


def _add_health(parser: CommandParser) -> None:
    health = parser.add_argument_group("containers")
    health.add_argument(
        "--health-file",
        metavar="PATH",
        default="",
        help="Rewrite this file while the process is healthy; python -m django_graphile_worker.probe PATH checks it.",
    )
    health.add_argument(
        "--no-wait",
        action="store_true",
        help="Exit with an error if the database does not answer at the start, instead of waiting for it.",
    )


def _add_display(parser: CommandParser) -> None:
    display = parser.add_argument_group("output and development")
    display.add_argument(
        "--no-log-success",
        action="store_false",
        dest="log_success",
        default=None,
        help="Do not log jobs that succeed.",
    )
    display.add_argument(
        "--reload", action="store_true", help="Restart when code changes, as runserver does: for development."
    )


def plan_from(options: dict[str, Any], *, is_colored: bool) -> Plan:
    """Return the plan of a command line. The settings are not read: see Plan."""
    if options["reload"] and (options["once"] or (options["processes"] or 1) > 1):
        raise CommandError("--reload cannot be used with --processes or --once.")
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


class WorkerCommand(BaseCommand):
    """A command that runs a worker: turns options into a plan, starts the plan, and ends with its exit code."""

    requires_system_checks = ["graphile_worker"]
    # Set by Django: False under call_command().
    _called_from_command_line: bool

    def get_version(self) -> str:
        return __version__

    def get_check_kwargs(self, options: dict[str, Any]) -> Any:
        # The worker checks its database later, when it can report more about it.
        return {"tags": self.requires_system_checks, "databases": []}

    def add_arguments(self, parser: CommandParser) -> None:
        add_worker_arguments(parser)

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
