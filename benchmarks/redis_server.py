"""A Redis server for the queues that need it, from the program redis-server of the system."""

from __future__ import annotations

import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class RedisServer:
    """A running server without persistence, which is its fastest mode."""

    def __init__(self, port: int) -> None:
        self._port = port
        self.url = f"redis://127.0.0.1:{port}/0"

    def ask(self, command: str) -> int:
        """Send a command whose answer is a number, or that is only acknowledged, and return the number or 0."""
        with socket.create_connection(("127.0.0.1", self._port), timeout=10) as connection:
            connection.sendall(f"{command}\r\n".encode())
            answer = connection.makefile("rb").readline().decode().strip()
        if answer.startswith("-"):
            raise RuntimeError(f"Expected a number from Redis for {command!r}, got {answer!r}.")
        return int(answer[1:]) if answer.startswith(":") else 0


def executable() -> str | None:
    return shutil.which("redis-server")


@contextmanager
def redis_server() -> Iterator[RedisServer | None]:
    """Start a server on a free port; yield None if the program is missing."""
    program = executable()
    if program is None:
        yield None
        return
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--dir", folder]
        process = subprocess.Popen([program, *options], stdout=subprocess.DEVNULL)
        try:
            yield _answering(RedisServer(port))
        finally:
            process.terminate()
            process.wait(10)


def _answering(server: RedisServer) -> RedisServer:
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with suppress(OSError):
            server.ask("PING")
            return server
        time.sleep(0.02)
    raise RuntimeError("Expected redis-server to answer within 10 s, got nothing.")
