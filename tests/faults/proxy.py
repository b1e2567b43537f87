"""A proxy that knows enough of the protocol of PostgreSQL to cut a connection at a chosen statement.

It recognises where messages begin and end, which part of the worker a connection belongs to (by the application name),
and which statement is sent (by its tag comment, or by the name of a prepared statement). A statement that the worker
prepares itself is recognised each time it runs. Statements that the driver prepares are not, so workers behind a proxy
run with ``--no-prepared-statements``, unless the test is about a statement that the worker prepares.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import struct
import threading
from collections import Counter
from collections.abc import Coroutine
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, cast
from urllib.parse import quote

from psycopg.conninfo import conninfo_to_dict

TAG = re.compile(rb"/\* gw:([\w-]+) \*/")
OWN_STATEMENT = re.compile(rb"gw_\w+\0")
LISTEN = re.compile(rb"\blisten \"", re.IGNORECASE)
SSL_REQUEST, GSS_REQUEST, CANCEL_REQUEST = 80877103, 80877104, 80877102
READY = b"Z"
NOTIFICATION = b"A"
# Steps of the event loop until a connection that was accepted has its link, and one more.
STEPS_OF_A_START = 4


@dataclass
class Rule:
    """What happens to the next statements with a tag.

    ``cut before``: the connection is cut, and the statement does not reach the server. ``cut after``: the server has
    executed the statement, and the connection is cut before the answer. ``blackhole`` and ``blackhole after``: the
    same, but the connection stays open, so the client gets no error. ``hold``: the statement waits until
    ``release()``.
    """

    tag: str
    mode: str
    times: int = 1
    part: str | None = None
    fired: threading.Event = field(default_factory=threading.Event)
    _is_released: threading.Event = field(default_factory=threading.Event)

    def release(self) -> None:
        self._is_released.set()

    async def wait(self) -> None:
        await asyncio.get_running_loop().run_in_executor(None, self._is_released.wait, 60)


class Link:
    """A connection of a client, with its connection to the server."""

    def __init__(self, proxy: Proxy, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.proxy = proxy
        self.task = cast("asyncio.Task[None]", asyncio.current_task())
        self.client = (reader, writer)
        self.server: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self.part = ""
        self.prepared: dict[bytes, bytes] = {}
        # Set while the server executes a statement whose answer the client must not get.
        self.is_swallowing = False
        self.is_blackholed = False

    async def serve(self) -> None:
        try:
            if await self._start_session() and self.server is not None:
                await self._forward()
        except (OSError, EOFError, asyncio.CancelledError):
            pass
        finally:
            self.cut()

    async def _forward(self) -> None:
        """Forward in both directions until one direction ends."""
        ways = [asyncio.ensure_future(way) for way in (self._forward_requests(), self._forward_answers())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)

    def cut(self) -> None:
        self.proxy.links.discard(self)
        for pair in (self.client, self.server):
            if pair is not None:
                pair[1].transport.abort()

    async def _start_session(self) -> bool:
        """Answer the messages before the start message. Return False if the connection ends with them."""
        reader, writer = self.client
        while True:
            (length,) = struct.unpack("!i", await reader.readexactly(4))
            body = await reader.readexactly(length - 4)
            (code,) = struct.unpack("!i", body[:4])
            if code in {SSL_REQUEST, GSS_REQUEST}:
                writer.write(b"N")
                continue
            self.part = _application_name(body).removeprefix("graphile_worker ")
            if self.part in self.proxy.refused_parts or "*" in self.proxy.refused_parts:
                return False
            self.is_blackholed = self.part in self.proxy.blackholed_parts or "*" in self.proxy.blackholed_parts
            self.server = await self.proxy.connect_to_server()
            self.server[1].write(struct.pack("!i", length) + body)
            return True

    async def _forward_requests(self) -> None:
        assert self.server is not None
        writer = self.server[1]
        while True:
            kind, message = await _message(self.client[0])
            if self.is_blackholed:
                continue
            if not await self._apply(self._rule_for(self._text_of(kind, message))):
                return
            if not self.is_blackholed:
                writer.write(kind + message)
                await writer.drain()

    def _text_of(self, kind: bytes, message: bytes) -> bytes:
        """Return the text of the statement that this message executes."""
        if kind == b"B":
            _portal, name, _values = message[4:].split(b"\0", 2)
            return self.prepared.get(name, b"")
        if kind == b"P" and OWN_STATEMENT.match(message[4:]):
            name, text = message[4:].split(b"\0", 1)
            self.prepared[name] = text
            return b""
        return message if kind in (b"P", b"Q") else b""

    def _rule_for(self, message: bytes) -> Rule | None:
        tag = _tag(message)
        if tag is None:
            return None
        self.proxy.seen[tag] += 1
        return self.proxy.rule_for(tag, self.part)

    async def _apply(self, rule: Rule | None) -> bool:
        """Apply a rule to a statement. Return False if the connection has to be cut."""
        if rule is None:
            return True
        if rule.mode == "cut before":
            rule.fired.set()
            return False
        if rule.mode == "hold":
            rule.fired.set()
            await rule.wait()
        elif rule.mode == "blackhole":
            self.is_blackholed = True
            rule.fired.set()
        else:
            self.is_swallowing = True
            self._swallowing_for = rule
        return True

    async def _forward_answers(self) -> None:
        assert self.server is not None
        writer = self.client[1]
        while True:
            kind, message = await _message(self.server[0])
            if self.is_swallowing:
                if kind == READY:
                    self._swallowing_for.fired.set()
                    if self._swallowing_for.mode == "cut after":
                        return
                    self.is_swallowing, self.is_blackholed = False, True
                continue
            if self.is_blackholed or (kind == NOTIFICATION and self.proxy.drops_notifications):
                continue
            writer.write(kind + message)
            await writer.drain()


class Proxy:
    """A proxy that listens on a free port, in a thread of its own."""

    def __init__(self, server_url: str) -> None:
        parts: dict[str, Any] = {**conninfo_to_dict(server_url)}
        self._address = _address(server_url)
        self._listening = socket.create_server(("127.0.0.1", 0))
        user, name = quote(str(parts["user"]), safe=""), quote(str(parts["dbname"]), safe="")
        password = f":{quote(str(parts['password']), safe='')}" if parts.get("password") else ""
        port = self._listening.getsockname()[1]
        self.url = f"postgresql://{user}{password}@127.0.0.1:{port}/{name}?sslmode=disable&gssencmode=disable"
        self.links: set[Link] = set()
        self.rules: list[Rule] = []
        self.seen: Counter[str] = Counter()
        self.blackholed_parts: set[str] = set()
        self.refused_parts: set[str] = set()
        # Drop notifications and forward everything else, like a pooler in transaction mode.
        self.drops_notifications = False
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Proxy:
        self._thread.start()
        self._server = self._do(asyncio.start_server(self._serve, sock=self._listening))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._do(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def redirect_to(self, server_url: str) -> None:
        """Forward new connections to another server. Existing connections stay where they are."""
        self._address = _address(server_url)

    def on(self, tag: str, mode: str, *, times: int = 1, part: str | None = None) -> Rule:
        rule = Rule(tag, mode, times, part)
        self.rules.append(rule)
        return rule

    def blackhole(self, part: str) -> None:
        """Drop everything that this part of the worker sends and receives, without an error."""
        self.blackholed_parts.add(part)
        for link in list(self.links):
            if part in ("*", link.part):
                link.is_blackholed = True

    def lift_blackhole(self) -> None:
        """Forward new connections again. The dropped connections stay dropped."""
        self.blackholed_parts.clear()

    def refuse(self, part: str = "*") -> None:
        """Cut the connections of this part of the worker, and refuse new connections."""
        self.refused_parts.add(part)
        self._do(self._cut(part))

    def accept(self) -> None:
        self.refused_parts.clear()

    def cut(self, part: str = "*") -> None:
        self._do(self._cut(part))

    def rule_for(self, tag: str, part: str) -> Rule | None:
        for rule in self.rules:
            if rule.times > 0 and rule.tag == tag and rule.part in (None, part):
                rule.times -= 1
                return rule
        return None

    async def connect_to_server(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        host, port = self._address
        if host.startswith("/"):
            return await asyncio.open_unix_connection(f"{host}/.s.PGSQL.{port}")
        return await asyncio.open_connection(host, port)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # asyncio does it for the sockets that it has made itself.
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link = Link(self, reader, writer)
        self.links.add(link)
        await link.serve()

    async def _cut(self, part: str) -> None:
        for link in list(self.links):
            if part in ("*", link.part):
                link.cut()

    async def _close(self) -> None:
        # A connection that is accepted, and has no link yet when the server closes, would leave its socket open.
        self._loop.remove_reader(self._listening.fileno())
        for _ in range(STEPS_OF_A_START):
            await asyncio.sleep(0)
        self._server.close()
        while others := asyncio.all_tasks() - {asyncio.current_task()}:
            for link in list(self.links):
                link.task.cancel()
            await asyncio.wait(others, timeout=0.01)

    def _do(self, coroutine: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(20)


def _address(url: str) -> tuple[str, int]:
    parts = conninfo_to_dict(url)
    return str(parts.get("host") or "localhost"), int(parts.get("port") or 5432)


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    """Read a message: its type, and the rest of it with its length in front."""
    head = await reader.readexactly(5)
    (length,) = struct.unpack("!i", head[1:])
    return head[:1], head[1:] + await reader.readexactly(length - 4)


def _tag(message: bytes) -> str | None:
    found = TAG.search(message)
    if found:
        return found.group(1).decode()
    return "listen" if LISTEN.search(message) else None


def _application_name(body: bytes) -> str:
    words = body[4:].split(b"\0")
    with contextlib.suppress(ValueError):
        return words[words.index(b"application_name") + 1].decode()
    return ""
