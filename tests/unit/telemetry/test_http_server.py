"""The HTTP server of a worker, and clients that want to keep it busy."""

from __future__ import annotations

import errno
import select
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any

import pytest

from django_graphile_worker.telemetry import http_server
from tests.support.ports import free_port
from tests.support.scrapes import get, is_up

SOON = 5.0


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    monkeypatch.setattr(http_server, "MAX_REQUESTS", 2)
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT", 0.5)
    number = free_port("127.0.0.1")
    routes = {"/ready": lambda: http_server.text_answer(HTTPStatus.OK, "ok")}
    with http_server.serving("127.0.0.1", number, routes):
        yield number


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=SOON)


def test_client_that_sends_byte_by_byte__has_one_deadline(port: int) -> None:
    until = time.monotonic() + SOON
    with closing(connect(port)) as client:
        client.sendall(b"GET /ready HTTP/1.0\r\n")
        while not select.select([client], [], [], 0.05)[0]:
            assert time.monotonic() < until, "the connection is still open"
            client.sendall(b"x")


def test_too_many_clients__are_refused_until_others_have_ended(
    port: int, monkeypatch: pytest.MonkeyPatch, wait_until: Callable[..., None]
) -> None:
    monkeypatch.setattr(http_server, "REQUEST_TIMEOUT", 600.0)
    with ExitStack() as stack:
        for _ in range(2):
            stack.enter_context(closing(connect(port)))
        with closing(connect(port)) as third:
            assert third.recv(1) == b"", "closed at once"
    wait_until(lambda: is_up(port))


def test_connection_that_cannot_be_accepted__is_tried_again_after_a_pause(
    port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept: Any = ThreadingHTTPServer.get_request
    pauses: list[float] = []

    def fail_twice(server: Any) -> Any:
        if len(pauses) < 2:
            raise OSError(errno.EMFILE, "Too many open files")
        return accept(server)

    monkeypatch.setattr(ThreadingHTTPServer, "get_request", fail_twice)
    monkeypatch.setattr(time, "sleep", pauses.append)
    assert get(port, "/ready").status == 200
    assert pauses == [http_server.ACCEPT_PAUSE] * 2
