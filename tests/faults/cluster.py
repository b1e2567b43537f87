"""A PostgreSQL server for a test, which can be stopped in any way and started again."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import psycopg

from testproject import embedded, embedded_account

SETTINGS = {
    "listen_addresses": "",
    # A commit is durable even if the server is stopped at once.
    "fsync": "off",
    "full_page_writes": "off",
    "max_connections": "400",
    "shared_buffers": "32MB",
    "timezone": "UTC",
    "deadlock_timeout": "200ms",
}
BACKUP = ("--write-recovery-conf", "--checkpoint=fast", "--wal-method=stream", "--no-sync")


class Cluster:
    """A data directory, and the server on it."""

    def __init__(
        self,
        directory: Path,
        environment: Mapping[str, str] | None = None,
        *,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        """``programs`` is the directory with the programs of a version; None means the embedded server."""
        self.directory = directory
        self._programs = programs
        self._environment = os.environ | dict(environment or {})
        self._own_settings = dict(settings or {})
        self._is_running = False

    @classmethod
    @contextmanager
    def create(
        cls,
        environment: Mapping[str, str] | None = None,
        *,
        programs: Path | None = None,
        settings: Mapping[str, str] | None = None,
        prepare: Callable[[Path], None] = lambda directory: None,
    ) -> Iterator[Cluster]:
        """Create and start a server. ``prepare`` may change the data directory before the start."""
        # A short path, because the length of the path of a socket is limited.
        directory = Path(tempfile.mkdtemp(prefix="dgw-faults-"))
        cluster = cls(directory / "data", environment, programs=programs, settings=settings)
        try:
            cluster.initialise()
            prepare(cluster.directory)
            cluster.start()
            yield cluster
        finally:
            cluster.stop()
            shutil.rmtree(directory, ignore_errors=True)

    @contextmanager
    def standby(self) -> Iterator[Cluster]:
        """Start a standby that follows this server by streaming replication, and stop it at the end."""
        standby = type(self)(self.directory.parent / "standby", programs=self._programs, settings=self._own_settings)
        embedded_account.make_private_directory(standby.directory)
        self._run("pg_basebackup", f"--dbname={self.url()}", f"--pgdata={standby.directory}", *BACKUP)
        # The copy contains the lock file of the primary's socket, which is in the data directory.
        (standby.directory / ".s.PGSQL.5432.lock").unlink()
        try:
            standby.start()
            yield standby
        finally:
            standby.stop()

    def promote(self) -> None:
        """Promote this standby to the primary."""
        self._pg_ctl("promote")

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{embedded.SUPERUSER}@/{database}?host={self.directory}"

    def start(self) -> None:
        options = " ".join(f"-c {name}='{value}'" for name, value in self._settings().items())
        self._pg_ctl("start", f"--log={self.directory / 'log'}", f"--options={options}")
        self._is_running = True

    def stop(self, mode: str = "immediate") -> None:
        if self._is_running:
            self._is_running = False
            self.end(mode)

    def end(self, mode: str = "immediate") -> None:
        """Stop the server of the data directory, even if another process started it."""
        self._pg_ctl("stop", f"--mode={mode}")

    def restart(self, mode: str = "immediate") -> None:
        """Restart the server. ``immediate`` is like a crash: without a clean stop, with recovery at the next start."""
        self.stop(mode)
        self.start()

    def ensure_running(self) -> None:
        if not self._is_running:
            self.start()

    def set(self, name: str, value: str) -> None:
        """Change a setting for new and existing sessions."""
        with psycopg.connect(self.url(), autocommit=True, options="-c default_transaction_read_only=off") as connection:
            connection.execute(f"alter system set {name} = '{value}'".encode())
            connection.execute("select pg_reload_conf()")

    def reset_settings(self) -> None:
        with psycopg.connect(self.url(), autocommit=True, options="-c default_transaction_read_only=off") as connection:
            connection.execute("alter system reset all")
            connection.execute("select pg_reload_conf()")

    def _settings(self) -> dict[str, str]:
        return SETTINGS | self._own_settings | {"unix_socket_directories": str(self.directory)}

    def initialise(self) -> None:
        """Create the data directory."""
        embedded_account.open_path_to(self.directory.parent)
        embedded_account.make_private_directory(self.directory)
        self._run(
            "initdb",
            f"--pgdata={self.directory}",
            f"--username={embedded.SUPERUSER}",
            "--auth=trust",
            "--encoding=UTF8",
            "--locale=C",
            "--no-sync",
            "--no-instructions",
        )

    def _pg_ctl(self, verb: str, *arguments: str) -> None:
        # A server that has already ended needs no stop.
        forgiven = (embedded.EmbeddedPostgresError,) if verb == "stop" else ()
        with suppress(*forgiven):
            self._run("pg_ctl", verb, "--wait", "--silent", "--timeout=60", f"--pgdata={self.directory}", *arguments)

    def _run(self, command: str, *arguments: str) -> None:
        with tempfile.TemporaryFile("w+") as output:
            finished = subprocess.run(
                [self._program(command), *arguments],
                cwd=self.directory,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env=self._environment,
                check=False,
                **embedded_account.subprocess_options(),
            )
            if finished.returncode:
                output.seek(0)
                raise embedded.EmbeddedPostgresError(f"{command} {arguments}: {output.read()}")

    def _program(self, command: str) -> str:
        return embedded._binary(command) if self._programs is None else str(self._programs / command)
