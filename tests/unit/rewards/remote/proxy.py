"""A proxy that counts what passes, and breaks connections on request."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)  # linger for 0 s


@dataclass
class Proxy:
    """`break_after` is the number of answered bytes past which a connection is reset, once."""

    target: int
    break_after: int | None = None
    sent: int = 0
    port: int = 0
    breaks: int = 0
    _tasks: set[asyncio.Task[None]] = field(default_factory=set)

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Connect a client with the server."""
        there, back = await asyncio.open_connection("127.0.0.1", self.target)
        self._start(self._pass_requests(reader, back))
        self._start(self._pass_answers(there, writer))

    def _start(self, work: object) -> None:
        task = asyncio.create_task(work)  # type: ignore[arg-type]
        self._tasks.add(task)

    async def _pass_requests(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        while content := await reader.read(65536):
            self.sent += len(content)
            writer.write(content)
        writer.close()

    async def _pass_answers(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        passed = 0
        while content := await reader.read(65536):
            passed += len(content)
            if self.break_after is not None and passed > self.break_after:
                self.break_after = None
                self.breaks += 1
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
                writer.transport.abort()
                return
            writer.write(content)
        writer.close()

    def close(self) -> None:
        """Break all connections."""
        for task in self._tasks:
            task.cancel()


@asynccontextmanager
async def proxy(target: int, break_after: int | None = None) -> AsyncIterator[Proxy]:
    """A proxy before a port of this machine."""
    made = Proxy(target, break_after)
    server = await asyncio.start_server(made.handle, "127.0.0.1", 0)
    made.port = server.sockets[0].getsockname()[1]
    try:
        yield made
    finally:
        made.close()
        server.close()
