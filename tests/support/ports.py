"""Ports for servers that tests start."""

from __future__ import annotations

import secrets
import socket
from contextlib import suppress

# Below the ports that Linux gives to connections: such a port could be taken before the server uses it.
PORTS = range(20_000, 32_000)


def free_port(host: str) -> int:
    """Return a port that no program uses."""
    while True:
        port = secrets.choice(PORTS)
        with suppress(OSError), socket.create_server((host, port)):
            return port
