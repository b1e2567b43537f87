"""The worker's command line: options in, settings out. Shared by both commands."""

from __future__ import annotations

from argparse import ArgumentTypeError
from pathlib import Path
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker import conf
from django_graphile_worker.exceptions import ConfigurationError

# Options that change a setting of the same meaning.
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
    "crontab_file",
    "log_success",
)


def at_least(smallest: float, kind: type[int] | type[float]) -> Any:
    """A number for an option, refused before anything starts when it makes no sense."""

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


def existing_file(text: str) -> Path:
    path = Path(text)
    if not path.is_file():
        raise ArgumentTypeError(f"expected a crontab file, got {text!r}, which is not there")
    return path


def add_worker_arguments(parser: CommandParser) -> None:
    """Everything that ``runworker`` takes."""
    defaults = conf.Settings()
    _add_amounts(parser, defaults)
    _add_choices(parser)
    _add_recurring(parser)
    _add_connection(parser, defaults)
    _add_health(parser)
    _add_display(parser)


def _add_amounts(parser: CommandParser, defaults: conf.Settings) -> None:
    work = parser.add_argument_group("how much")
    work.add_argument(
        "-j",
        "--concurrency",
        type=at_least(1, int),
        metavar="N",
        help=f"Jobs to run at once in each process (default: CONCURRENCY, {defaults.concurrency}).",
    )
    work.add_argument(
        "--processes",
        type=at_least(1, int),
        metavar="N",
        help=f"Worker processes, for more cores (default: PROCESSES, {defaults.processes}).",
    )
    work.add_argument("--once", action="store_true", help="Run what is runnable now, then exit.")
    work.add_argument(
        "--local-queue-size",
        type=at_least(0, int),
        metavar="N",
        help="The most jobs to claim ahead of free slots; how many, the worker finds out "
        f"(default: LOCAL_QUEUE_SIZE, {defaults.local_queue_size}).",
    )
    work.add_argument(
        "--grace-period",
        type=at_least(0, float),
        metavar="SECONDS",
        help="How long running jobs may go on after the first signal "
        f"(default: GRACE_PERIOD, {defaults.grace_period:g}).",
    )


def _add_choices(parser: CommandParser) -> None:
    which = parser.add_argument_group("which jobs")
    which.add_argument(
        "--database",
        action="append",
        dest="databases",
        metavar="ALIAS",
        help="A database to work on; may be given several times, -j counts for each (default: DATABASE).",
    )
    which.add_argument(
        "--installation",
        action="append",
        dest="installations",
        metavar="ALIAS",
        help="An installation to work on, where GRAPHILE_WORKER names several; may be given several times "
        "(default: default).",
    )
    which.add_argument(
        "--tasks", action="append", metavar="GLOB", help="Run only tasks that match; may be given several times."
    )
    which.add_argument(
        "--exclude-tasks",
        action="append",
        metavar="GLOB",
        help="Leave out tasks that match; may be given several times.",
    )
    which.add_argument(
        "--forbid-flag",
        action="append",
        dest="forbidden_flags",
        metavar="FLAG",
        help="Leave out jobs with this flag, and with those of FORBIDDEN_FLAGS; may be given several times.",
    )


def _add_recurring(parser: CommandParser) -> None:
    cron = parser.add_argument_group("recurring tasks")
    cron.add_argument(
        "--crontab",
        type=existing_file,
        dest="crontab_file",
        metavar="FILE",
        help="Read recurring tasks from this file, too.",
    )
    cron.add_argument("--no-cron", action="store_true", help="Schedule no recurring tasks from this worker.")


def _add_connection(parser: CommandParser, defaults: conf.Settings) -> None:
    wire = parser.add_argument_group("talking to PostgreSQL")
    wire.add_argument(
        "--poll-interval",
        type=at_least(0.01, float),
        metavar="SECONDS",
        help=f"How often to look for jobs that nobody announced (default: POLL_INTERVAL, {defaults.poll_interval:g}).",
    )
    wire.add_argument(
        "--no-listen",
        action="store_false",
        dest="listen",
        default=None,
        help="Do not LISTEN; only poll. For poolers in transaction mode.",
    )
    wire.add_argument(
        "--no-prepared-statements",
        action="store_false",
        dest="prepared_statements",
        default=None,
        help="Do not prepare statements. For older poolers in transaction mode.",
    )


def _add_health(parser: CommandParser) -> None:
    health = parser.add_argument_group("in a container")
    health.add_argument(
        "--health-file",
        metavar="PATH",
        default="",
        help="Keep this file young while the process is sound; python -m django_graphile_worker.probe PATH tells.",
    )
    health.add_argument(
        "--no-wait",
        action="store_true",
        help="Exit with an error when the database does not answer at the start, instead of waiting for it.",
    )


def _add_display(parser: CommandParser) -> None:
    telling = parser.add_argument_group("what is shown")
    telling.add_argument(
        "--no-log-success",
        action="store_false",
        dest="log_success",
        default=None,
        help="No line for jobs that succeed.",
    )
    telling.add_argument(
        "--reload", action="store_true", help="Development: restart when code changes, as runserver does."
    )


def overrides_from(options: dict[str, Any]) -> dict[str, Any]:
    """The settings that the command line names."""
    return {name: options[name] for name in SETTINGS if options.get(name) is not None}


def settings_from(options: dict[str, Any]) -> conf.Settings:
    """The project's settings with the command line on top."""
    try:
        return conf.current().replace(**overrides_from(options)).forbidding(options.get("forbidden_flags") or ())
    except ConfigurationError as error:
        raise CommandError(str(error)) from error
