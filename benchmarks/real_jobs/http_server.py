"""A service that answers each request after 20 ms: ``python -m benchmarks.real_jobs.http_server`` prints its port."""

from __future__ import annotations

import asyncio

SECONDS = 0.02
ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\nOK"


class Answering(asyncio.Protocol):
    """A connection: one request without a body, one answer."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._received = b""

    def data_received(self, data: bytes) -> None:
        self._received += data
        if self._received.endswith(b"\r\n\r\n"):
            asyncio.get_running_loop().call_later(SECONDS, self._answer)

    def _answer(self) -> None:
        self._transport.write(ANSWER)
        self._transport.close()


async def main() -> None:
    server = await asyncio.get_running_loop().create_server(Answering, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main())
