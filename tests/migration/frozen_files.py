"""The digests of the SQL files that migrations run. ``python -m tests.migration.frozen_files`` adds new files."""

from __future__ import annotations

import hashlib
from pathlib import Path

DDL = Path(__file__).parents[2] / "django_graphile_worker" / "sql" / "ddl"
RECORD = Path(__file__).with_name("frozen_files.txt")
# `manage.py graphile_worker grants` prints these files. No migration runs them, so they may change.
NOT_RUN_BY_MIGRATIONS = "grants_*.sql"


def digests() -> dict[str, str]:
    """Return the current digest of each file."""
    others = set(DDL.glob(NOT_RUN_BY_MIGRATIONS))
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in sorted(DDL.iterdir()) if path not in others
    }


def recorded() -> dict[str, str]:
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    return {name: digest for digest, name in (line.split() for line in lines)}


def add_new_files() -> list[str]:
    """Add the digests of new files to the record, and never change a digest in it."""
    known, found = recorded(), digests()
    new = [name for name in found if name not in known]
    lines = [f"{digest}  {name}\n" for name, digest in sorted((known | {name: found[name] for name in new}).items())]
    RECORD.write_text("".join(lines), encoding="utf-8")
    return new


if __name__ == "__main__":
    print("\n".join(add_new_files()) or "Nothing is new.")  # noqa: T201
