"""A site in a process of its own: the theme is an installed app, and apps are loaded once for each process."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

ADDRESS = re.compile(r"Starting development server at (http://[\d.:]+)/")


@contextmanager
def running_site(settings: str, environment: dict[str, str]) -> Iterator[str]:
    """Serve the site of a settings module on a free port, and yield its address."""
    command = [
        sys.executable,
        "-u",
        "-m",
        "django",
        "runserver",
        "127.0.0.1:0",
        "--noreload",
        "--skip-checks",
        "--insecure",
    ]
    with subprocess.Popen(
        command,
        env=environment | {"DJANGO_SETTINGS_MODULE": settings, "DEBUG": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        try:
            yield _read_address(process)
        finally:
            process.terminate()


def _read_address(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        found = ADDRESS.search(line)
        if found:
            return found.group(1)
    raise AssertionError(f"The site did not start: {''.join(lines)}")
