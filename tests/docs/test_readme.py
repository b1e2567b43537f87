"""The first steps of README.md, executed as they are written, from an empty directory to a job that runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from psycopg.conninfo import conninfo_to_dict

from tests.docs.pages import CHECKOUT

BLOCK = re.compile(r"```(console|python)\n(.*?)```", re.DOTALL)
# The variables of libpq for the parts of a URL: the settings in README.md have only the name of the database.
VARIABLES = {"host": "PGHOST", "port": "PGPORT", "user": "PGUSER", "password": "PGPASSWORD"}

Wait = Callable[..., None]


def _steps() -> Iterator[tuple[str, str]]:
    """Return each command, and each file with the text to append to it, in order."""
    text = (CHECKOUT / "README.md").read_text(encoding="utf-8")
    section = text.partition("## Getting started")[2].partition("\n## ")[0]
    for kind, body in BLOCK.findall(section):
        if kind == "python":
            comment, _, code = body.partition("\n")
            yield re.match(r"# ([\w/.]+)", comment)[1], code  # type: ignore[index]
        else:
            yield from (("$", line.removeprefix("$ ")) for line in body.splitlines())


def _environment(conninfo: dict[str, object]) -> dict[str, str]:
    """Return variables with which libpq finds the server and Python finds the package."""
    found = {name: str(conninfo[key]) for key, name in VARIABLES.items() if conninfo.get(key)}
    kept = {name: value for name, value in os.environ.items() if name != "DJANGO_SETTINGS_MODULE"}
    # The package need not be installed: an import must find it in the checkout.
    return kept | found | {"PYTHONPATH": str(CHECKOUT), "PYTHONUNBUFFERED": "1"}


def test_getting_started__ends_with_a_job_that_ran(
    tmp_path: Path, fresh_database: Callable[[], str], wait_until: Wait
) -> None:
    conninfo = conninfo_to_dict(fresh_database())
    environment = _environment(dict(conninfo))
    *steps, (_, last) = _steps()
    assert steps.pop(0) == ("$", 'python -m pip install django-graphile-worker "psycopg[binary]"')
    for place, text in steps:
        if place == "$":
            ended = subprocess.run(
                _argv(text), cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert ended.returncode == 0, f"{text}: {ended.stdout}{ended.stderr}"
        else:
            with (tmp_path / place).open("a", encoding="utf-8") as file:
                file.write(text.replace('"mysite",', f'"{conninfo["dbname"]}",'))
    assert last == "python manage.py runworker"
    _run_until_it_says("Hello Ada!", _argv(last), tmp_path, environment, wait_until)


def _argv(command: str) -> list[str]:
    program, *rest = shlex.split(command)
    beside = Path(sys.executable).with_name(program)
    return [sys.executable if program == "python" else str(beside if beside.exists() else shutil.which(program)), *rest]


def _run_until_it_says(
    text: str, argv: list[str], directory: Path, environment: dict[str, str], wait_until: Wait
) -> None:
    log = directory / "worker.log"
    with (
        log.open("wb") as output,
        subprocess.Popen(argv, cwd=directory, env=environment, stdout=output, stderr=subprocess.STDOUT) as worker,
    ):
        try:
            wait_until(lambda: text in log.read_text() or worker.poll() is not None)
        finally:
            worker.send_signal(signal.SIGTERM)
    assert text in log.read_text(), log.read_text()
    assert worker.returncode == 0
