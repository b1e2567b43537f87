"""The programs that the whole suite needs beside Python: which are missing, and how to install them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

from tests.support import postgres_versions

SYSTEM_PATHS = "/usr/sbin:/usr/local/sbin"


def find_pgbouncer() -> str | None:
    return shutil.which("pgbouncer") or shutil.which("pgbouncer", path=SYSTEM_PATHS)


def find_browser() -> str | None:
    """Return the path of a Chromium. The shell without windows uses a fifth less CPU time."""
    names = ("chromium-headless-shell", "chromium", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def find_pg_repack(version: int) -> str | None:
    """Return the program of pg_repack beside those of a PostgreSQL version."""
    programs = postgres_versions.programs(version)
    return None if programs is None else shutil.which("pg_repack", path=str(programs))


def find_promtool() -> str | None:
    return shutil.which("promtool")


def find_compiler() -> str | None:
    return shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")


# What is searched for, which tests need it, and how to install it.
PROGRAMS = (
    (find_pgbouncer, "PgBouncer", "workers behind a connection pooler", "pgbouncer"),
    (lambda: shutil.which("npm"), "npm", "queues shared with the real graphile-worker", "npm"),
    (find_browser, "Chromium", "the admin in a browser", "chromium-headless-shell"),
    (find_promtool, "promtool", "the metrics, and the rules of alerts", "prometheus"),
    (find_compiler, "a C compiler", "clocks that are wrong, stop or jump", "gcc libc6-dev"),
)


def missing() -> Iterator[str]:
    """Yield a line for each missing program."""
    for version in postgres_versions.SUPPORTED:
        if postgres_versions.programs(version) is None:
            yield postgres_versions.advice(version)
    for find, name, tests, package in PROGRAMS:
        if find() is None:
            yield f"{name} is not installed: {tests} (Debian: apt-get install {package})"
