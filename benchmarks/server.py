"""What the PostgreSQL server spends: CPU time of all its processes, and write-ahead log."""

from __future__ import annotations

from typing import Any

import psutil
import psycopg


def tree_cpu_seconds(process: psutil.Process) -> float:
    """Return the CPU time of a process and of its descendants, those that have ended and were waited for included."""
    total = 0.0
    for each in [process, *process.children(recursive=True)]:
        try:
            times = each.cpu_times()
        except psutil.NoSuchProcess:
            continue
        total += times.user + times.system + times.children_user + times.children_system
    return total


class Server:
    """The server of a connection. Its CPU time is 0 if it runs on another machine."""

    def __init__(self, url: str) -> None:
        self._connection = psycopg.connect(url, autocommit=True)
        self._postmaster = self._find_postmaster()

    def version(self) -> str:
        return str(self._scalar("show server_version")).split()[0]

    def cpu_seconds(self) -> float:
        return tree_cpu_seconds(self._postmaster) if self._postmaster else 0.0

    def written_bytes(self) -> int:
        """Return the position in the write-ahead log."""
        return int(self._scalar("select pg_current_wal_insert_lsn() - '0/0'"))

    def settings(self, *names: str) -> dict[str, str]:
        return {name: str(self._scalar(f"show {name}")) for name in names}

    def close(self) -> None:
        self._connection.close()

    def _find_postmaster(self) -> psutil.Process | None:
        try:
            backend = psutil.Process(self._connection.info.backend_pid)
            parent = backend.parent()
        except psutil.NoSuchProcess:
            return None
        return parent if backend.name().startswith("postgres") else None

    def _scalar(self, text: str) -> Any:
        row = self._connection.execute(text.encode()).fetchone()
        assert row is not None
        return row[0]
