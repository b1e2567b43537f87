"""``result``: show what became of a job."""

from __future__ import annotations

import dataclasses
import json
from datetime import datetime
from typing import Any

from django.core.management.base import CommandError, CommandParser

from django_graphile_worker.exceptions import ResultTimeoutError, UnknownResultError
from django_graphile_worker.management.operator import arguments, tables, times
from django_graphile_worker.management.operator.console import Console
from django_graphile_worker.management.operator.tables import Cell
from django_graphile_worker.management.operator.verb import Options, Verb
from django_graphile_worker.results import Result, ResultStatus, result, wait_for_result
from django_graphile_worker.sql.progress import Progress
from django_graphile_worker.text import escaped


class ShowResult(Verb):
    name = "result"
    summary = "Show what became of a job: its status, its progress, and what its task returned."
    description = (
        "Show what became of a job. The result of a job that has succeeded is kept for as long as "
        "@task(keep_result=...) or the setting KEEP_RESULTS says. With --wait, wait until the job has ended. The exit "
        "code is 1 if the job has failed."
    )
    examples = ("42", "42 --wait 30", "42 --json")

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("job_id", type=arguments.job_id, metavar="ID", help="The id of the job.")
        parser.add_argument(
            "--wait",
            type=arguments.seconds,
            metavar="SECONDS",
            help="Wait up to this many seconds until the job has ended.",
        )

    def run(self, console: Console, options: Options) -> None:
        found = _read(console, options)
        if found is None:
            raise CommandError(
                f"Expected the id of a job that exists, or whose result is kept, got {options['job_id']}: completed "
                "jobs are deleted, and their results are kept only if @task(keep_result=...) or the setting "
                "KEEP_RESULTS says so."
            )
        if console.is_json:
            console.dump(_as_dict(found))
        else:
            console.say(_as_text(found, console.now()))
        if found.status is ResultStatus.FAILED:
            raise CommandError(f"Job {found.job_id} has failed.")


def _read(console: Console, options: Options) -> Result | None:
    if options["wait"] is not None:
        try:
            return wait_for_result(options["job_id"], timeout=options["wait"], **console.place)
        except UnknownResultError:
            return None
        except ResultTimeoutError as error:
            console.warn(str(error))
    return result(options["job_id"], **console.place)


def _as_dict(found: Result) -> dict[str, Any]:
    # The value is a property that raises if there is none.
    shown = {field.name: getattr(found, field.name) for field in dataclasses.fields(found) if field.name[0] != "_"}
    return shown | {
        "status": found.status.value,
        "attempts": [dataclasses.asdict(attempt) for attempt in found.attempts],
        "progress": None if found.progress is None else dataclasses.asdict(found.progress),
        "value": found.value if found.status is ResultStatus.SUCCEEDED else None,
    }


def _as_text(found: Result, now: datetime) -> str:
    pairs: list[tuple[str, Cell | str]] = [
        ("job", str(found.job_id)),
        ("task", found.task_identifier),
        ("status", found.status.value),
        ("progress", _progress(found.progress)),
        ("queue", found.queue_name or ""),
        ("worker", found.worker_id or ""),
        ("added", times.both(found.added_at, now)),
        ("started", times.both(found.last_started_at, now)),
        ("finished", times.both(found.finished_at, now)),
        ("attempts", str(len(found.attempts)) if found.attempts else ""),
        ("cancelled by", escaped(found.cancelled_by or "")),
        ("reason", escaped(found.cancel_reason or "")),
    ]
    text = [tables.facts([(name, value) for name, value in pairs if value not in ("", tables.EMPTY)])]
    if found.status is ResultStatus.SUCCEEDED:
        text += ["value", _indented(json.dumps(found.value, indent=2, ensure_ascii=False))]
    if found.last_error:
        text += ["last error", _indented(found.last_error)]
    return "\n".join(text)


def _progress(progress: Progress | None) -> str:
    if progress is None:
        return ""
    amount = f"{progress.done:g}" if progress.total is None else f"{progress.done:g} of {progress.total:g}"
    percent = "" if progress.percent is None else f" ({progress.percent} %)"
    return f"{amount}{percent} {progress.message}".rstrip()


def _indented(text: str) -> str:
    return "\n".join(f"  {escaped(line)}" for line in text.splitlines())
