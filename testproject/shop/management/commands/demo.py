"""`make demo`: run a web site with the admin, a worker, and jobs; `make demo ARGS=--once`: for a few seconds."""

from __future__ import annotations

import signal
import tempfile
import time
from contextlib import ExitStack
from typing import IO, Any

from django.contrib.auth import get_user_model
from django.core.management import CommandError, CommandParser, call_command
from django.core.management.base import BaseCommand
from django.db import connection
from django.db.models import Min
from django.utils import timezone

from django_graphile_worker.jobs import attempts_made
from django_graphile_worker.management.operator.formatting import brief_error
from django_graphile_worker.models import Job
from testproject import databases, embedded, terminal
from testproject.shop import processes, scenes, schedules
from testproject.shop.summary import COLUMNS, Summary, table

LOGIN = "demo"
SECONDS_BETWEEN_SCENES = 2.0
# How long `--once` waits for retries and scheduled jobs; later jobs are listed as waiting.
LONGEST_WAIT_SECONDS = 10.0
MAX_JOBS_SHOWN = 20


class Command(BaseCommand):
    help = "Migrates the database, adds jobs and schedules, runs them, and shows the URLs of the site and its admin."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "--once", action="store_true", help="add a fixed set of jobs, run them and exit, without a web site"
        )
        parser.add_argument(
            "--port", type=int, default=8000, help="the port of the web site; if it is taken, another one is used"
        )

    def handle(self, *args: Any, once: bool, port: int, **options: Any) -> None:
        for number in (signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.default_int_handler)
        with terminal.in_foreground():
            try:
                self._prepare()
                self._tour() if once else self._stay(port)
            except KeyboardInterrupt:
                self.stdout.write("")
            finally:
                # PostgreSQL is stopped at exit. Another Ctrl-C would interrupt that and leave the server running.
                signal.signal(signal.SIGINT, signal.SIG_IGN)
        self._say("Bye." if not once else "Now try: make demo")

    def _prepare(self) -> None:
        self._say(f"PostgreSQL: {_server()}")
        self._say("Creating the tables ...")
        call_command("migrate", verbosity=0, interactive=False)
        users = get_user_model()
        if not users.objects.filter(username=LOGIN).exists():
            users.objects.create_superuser(username=LOGIN, email="", password=LOGIN)
        schedules.make()

    def _tour(self) -> None:
        summary = Summary()
        for scene, customer in scenes.once():
            self._play(scene, customer)
        with summary.listening():
            self._drain()
        self._show("Jobs that the worker ran", summary.lines())
        self._show("Jobs in the database", _jobs_left())

    def _drain(self) -> None:
        """Run the jobs that are due, and those that are due soon after: retries and scheduled jobs."""
        deadline = time.monotonic() + LONGEST_WAIT_SECONDS
        call_command("runworker", once=True)
        while (pause := _seconds_until_next_job()) is not None and time.monotonic() + pause < deadline:
            time.sleep(pause)
            call_command("runworker", once=True)

    def _stay(self, port: int) -> None:
        port = processes.free_port(port)
        with ExitStack() as stack:
            # The log of requests would hide the lines of the jobs.
            output = stack.enter_context(tempfile.TemporaryFile())
            site = processes.manage("runserver", "--noreload", f"127.0.0.1:{port}", output=output)
            children = {"web site": stack.enter_context(site)}
            _wait_for_site(children["web site"], port, output)
            children["worker"] = stack.enter_context(processes.manage("runworker"))
            self._say(f"Admin: http://127.0.0.1:{port}/admin/  (login {LOGIN}, password {LOGIN})")
            self._say(f"Shop:  http://127.0.0.1:{port}/  (place an order and watch its jobs here)")
            self._say("Stop everything with Ctrl-C.")
            for scene, customer in scenes.endlessly():
                self._play(scene, customer)
                _watch(children, SECONDS_BETWEEN_SCENES)

    def _play(self, scene: scenes.Scene, customer: str) -> None:
        """Print a scene like a line of the worker's log, so that it is visible which jobs follow from it."""
        self.stdout.write(f"{timezone.localtime():%H:%M:%S} " + self.style.HTTP_INFO(scenes.title(scene, customer)))
        self.stdout.flush()
        scene(customer)

    def _show(self, heading: str, lines: list[str]) -> None:
        self.stdout.write("")
        self._say(heading)
        self.stdout.write("\n".join(lines))

    def _say(self, text: str) -> None:
        self.stdout.write(self.style.MIGRATE_HEADING(text))
        self.stdout.flush()


def _wait_for_site(site: processes.Process, port: int, output: IO[bytes]) -> None:
    try:
        processes.wait_until_listening(site, port)
    except ChildProcessError as error:
        output.seek(0)
        raise CommandError(f"{error} Its output:\n{output.read().decode(errors='replace')}") from error


def _watch(children: dict[str, processes.Process], seconds: float) -> None:
    for name, child in children.items():
        if child.poll() is not None:
            raise CommandError(f"The {name} has stopped with exit code {child.returncode}.")
    time.sleep(seconds)


def _server() -> str:
    with connection.cursor() as cursor:
        cursor.execute("show server_version")
        (version,) = cursor.fetchone()
    where = f"embedded, in {embedded.home()}" if databases.is_embedded() else "from DATABASE_URL"
    return f"{version} ({where})"


def _jobs_left() -> list[str]:
    """Return the jobs that wait or have failed permanently; jobs that succeeded have no row."""
    left = Job.objects.select_related("task", "job_queue").order_by("-id")[:MAX_JOBS_SHOWN]
    rows: list[tuple[str, ...]] = [
        (
            str(job.pk),
            job.task.identifier,
            job.job_queue.queue_name if job.job_queue else "",
            f"{attempts_made(job.attempts, job.max_attempts, job.last_error)} of {job.max_attempts}",
            brief_error(job.last_error) or "waiting",
        )
        for job in left
    ]
    return table(COLUMNS, rows) if rows else ["none: all jobs have succeeded"]


def _seconds_until_next_job() -> float | None:
    """Return the seconds until the next job is due, or None if no job waits."""
    due = Job.objects.filter(is_available=True).aggregate(due=Min("run_at"))["due"]
    return None if due is None else max(0.0, (due - timezone.now()).total_seconds())
