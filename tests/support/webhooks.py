"""A real HTTP server that takes the messages of a webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Webhook:
    """What was posted, and the answer to it. While ``answers`` is not set, the server does not answer."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/services/T000/s3cret"
        self.posted: list[dict[str, Any]] = []
        self.status = 200
        self.answers = threading.Event()
        self.answers.set()


@contextmanager
def webhook() -> Iterator[Webhook]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            hook.posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            hook.answers.wait()
            try:
                self.send_response(hook.status)
                self.send_header("Location", "http://127.0.0.1/elsewhere")
                self.end_headers()
            except ConnectionError:
                # The worker was killed.
                pass

        def log_message(self, *args: Any) -> None: ...

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        hook = Webhook(server.server_port)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield hook
        finally:
            hook.answers.set()
            server.shutdown()
            thread.join()
