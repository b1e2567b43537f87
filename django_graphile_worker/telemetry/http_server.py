"""The HTTP server of a worker: a few fixed paths, each answered by a function, on threads of their own."""

from __future__ import annotations

import io
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

from django_graphile_worker.exceptions import GraphileWorkerError

# Seconds that a client may take for its whole request, and then for reading the answer.
REQUEST_TIMEOUT = 10.0
# So many requests are answered at once; the connections of others are closed. Each costs a thread and a descriptor,
# which the worker needs itself.
MAX_REQUESTS = 16
# Seconds after a connection could not be accepted, as without a free descriptor.
ACCEPT_PAUSE = 0.1
TEXT = "text/plain; charset=utf-8"


class Answer(NamedTuple):
    """The answer to a request."""

    status: HTTPStatus
    content: bytes
    content_type: str = TEXT


Routes = Mapping[str, Callable[[], Answer]]


def text_answer(status: HTTPStatus, *lines: str) -> Answer:
    return Answer(status, "".join(f"{line}\n" for line in lines).encode())


def verdict(problems: list[str]) -> Answer:
    """Return 200 without problems, and 503 with a line for each problem."""
    if problems:
        return text_answer(HTTPStatus.SERVICE_UNAVAILABLE, *problems)
    return text_answer(HTTPStatus.OK, "ok")


@contextmanager
def serving(host: str, port: int, routes: Routes) -> Iterator[Callable[[], None]]:
    """Answer requests inside the block. Raises GraphileWorkerError when the address cannot be used.

    Yields a function for forked processes: it closes the copy of the socket, which would keep the port in use.
    """
    try:
        server = _Server(host, port, routes)
    except OSError as error:
        shown = f"{host}:{port}" if host else str(port)
        raise GraphileWorkerError(
            f"METRICS_PORT: cannot listen on {shown}: {error.strerror or error}. "
            "Each worker on a machine needs a port of its own: --metrics-port."
        ) from error
    thread = threading.Thread(target=server.run, name="graphile-worker-http", daemon=True)
    thread.start()
    try:
        yield server.socket.close
    finally:
        server.end()
        thread.join(1.0)
        server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, routes: Routes) -> None:
        self.routes = routes
        is_any = not host
        if is_any and socket.has_dualstack_ipv6():
            self.address_family, host = socket.AF_INET6, "::"
        elif ":" in host:
            self.address_family = socket.AF_INET6
        self._is_dual = is_any
        self._is_ending = False
        self._free = threading.BoundedSemaphore(MAX_REQUESTS)
        super().__init__((host, port), _Handler)

    def run(self) -> None:
        """Answer requests until the end. serve_forever() would wake up twice a second, and end half a second later."""
        while not self._is_ending:
            self.handle_request()

    def end(self) -> None:
        self._is_ending = True
        with suppress(OSError):
            socket.create_connection(self.socket.getsockname()[:2], timeout=1.0).close()

    def server_bind(self) -> None:
        if self._is_dual and self.address_family == socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        # HTTPServer would look up the name of the host, which can take seconds.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def get_request(self) -> tuple[socket.socket, Any]:
        try:
            return super().get_request()
        except OSError:
            # The connection still waits, and would be tried again at once.
            time.sleep(ACCEPT_PAUSE)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that has gone away."""


class _Reader(io.RawIOBase):
    """Reads from a client until a deadline: the timeout of a socket would begin anew with each byte."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._ends_at = time.monotonic() + REQUEST_TIMEOUT

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(max(self._ends_at - time.monotonic(), 0.001))
        return self._connection.recv_into(buffer)


class _Handler(BaseHTTPRequestHandler):
    server: _Server
    server_version = "django-graphile-worker"
    sys_version = ""

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.rfile = io.BufferedReader(_Reader(self.connection))

    def do_GET(self) -> None:
        route = self.server.routes.get(self.path.partition("?")[0])
        try:
            answer = text_answer(HTTPStatus.NOT_FOUND, *self.server.routes) if route is None else route()
        except Exception as error:
            answer = text_answer(HTTPStatus.INTERNAL_SERVER_ERROR, f"{type(error).__name__}: {error}")
        self.connection.settimeout(REQUEST_TIMEOUT)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.content)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.content)

    do_HEAD = do_GET  # noqa: N815 - the name that the base class looks for

    def log_message(self, *args: Any) -> None:
        """Write no line for each request."""
