"""A migration does the same in every database, whenever it runs."""

from __future__ import annotations

from tests.migration import frozen_files


def test_files_that_migrations_run__never_change() -> None:
    """A database that has run a migration never runs it again, so an edit would reach new installations only."""
    now, recorded = frozen_files.digests(), frozen_files.recorded()
    changed = sorted(name for name, digest in recorded.items() if now.get(name) != digest)
    assert changed == [], (
        f"Expected the files of sql/ddl that migrations run to stay as they are, got changes in {changed}."
        " Databases exist that were made by them. Restore the files (git checkout), put the change into a new file"
        " (create or replace function, alter table), and run that from a new migration, with a file for the way back."
    )


def test_files_that_migrations_run__are_all_recorded() -> None:
    new = sorted(set(frozen_files.digests()) - set(frozen_files.recorded()))
    assert new == [], (
        f"Expected the digest of every file in tests/migration/frozen_files.txt, got new files {new}."
        " When they are ready to be merged, run: .venv/bin/python -m tests.migration.frozen_files"
    )
