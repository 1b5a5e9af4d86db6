"""A small HTTP/1.1 proxy that drops, delays, duplicates and cuts messages by a script.

It runs between a client and a real server, in a thread of the test's process. The script applies
its faults in order to the selected requests (by default, changes); all others pass. The proxy
forwards bytes unchanged, and each request over its own connection. `exchanges` records what
happened.

    Fault
    ├── Pass           forwards the request and the answer
    ├── DropRequest    the server never receives the request
    ├── CutRequest     the server receives the first half
    ├── DropAnswer     the server has answered, but the client never receives the answer
    ├── Abandon        the server receives the request, but nobody waits for its answer
    ├── CutAnswer      the client receives the first half of the answer
    ├── HoldRequest    forwards once the client has gone or retried, or the test releases it
    ├── HoldAnswer     sends the answer later in the same way, if the client is still connected
    ├── Duplicate      forwards the request twice and returns one of the two answers
    └── Respond        returns the proxy's own answer, with or without forwarding the request
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar
from urllib.parse import urlsplit

from tests.support.patience import HANG_S

CHANGES: Final = frozenset({"POST", "PUT", "DELETE"})
_LIMIT: Final = 1 << 26
_T = TypeVar("_T")


@dataclass(frozen=True)
class Message:
    """A request or an answer: its bytes, and the parsed parts that the proxy needs."""

    raw: bytes
    start: tuple[str, ...]
    headers: dict[str, str]
    body: bytes

    @property
    def keeps_alive(self) -> bool:
        return self.headers.get("connection", "").lower() != "close"

    @property
    def status(self) -> int:
        return int(self.start[1])


@dataclass
class Exchange:
    """One request that reached the proxy, and its outcome."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    fault: str
    forwarded: int = 0
    """How often the proxy sent the complete request to the server."""
    statuses: list[int] = field(default_factory=list)
    """The statuses that the server answered."""
    answered: int | None = None
    """The status of the answer that the client received completely."""

    @property
    def key(self) -> str | None:
        return self.headers.get("idempotency-key")


class Proxy:
    """The proxy; `script` sets the faults of the next changes, and other requests pass."""

    def __init__(self, target: str) -> None:
        self.exchanges: list[Exchange] = []
        self._broken: list[BaseException] = []
        self.target = target
        self._script: deque[Fault] = deque()
        self._is_scripted: Callable[[str, str], bool] = lambda method, path: method in CHANGES
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="proxy", daemon=True)
        self._released = asyncio.Event()
        self._answered = asyncio.Condition()
        self._answers = 0
        self._busy: set[asyncio.Task[Any]] = set()
        self._connections: set[asyncio.StreamWriter] = set()

    # --- what a test calls -------------------------------------------------------------------

    def start(self) -> str:
        self._thread.start()
        self._server = self._run(asyncio.start_server(self._serve, "127.0.0.1", 0, limit=_LIMIT))
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self.url

    def stop(self) -> None:
        self._run(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(HANG_S)
        self._loop.close()
        if self._broken:
            raise AssertionError("the proxy itself failed") from self._broken[0]

    def script(self, *faults: Fault, only: Callable[[str, str], bool] | None = None) -> None:
        """Set the faults of the next requests; `only` selects them by method and path."""
        self._script = deque(faults)
        if only is not None:
            self._is_scripted = only

    @property
    def changes(self) -> list[Exchange]:
        return [exchange for exchange in self.exchanges if exchange.method in CHANGES]

    @property
    def unplayed(self) -> int:
        """Return how many faults of the script remain."""
        return len(self._script)

    def release(self) -> None:
        """Release all held messages."""
        self._loop.call_soon_threadsafe(self._released.set)

    def settle(self) -> None:
        """Release all held messages and wait until none is in transit."""
        self._run(self._settle())
        if self._broken:
            raise AssertionError("the proxy itself failed") from self._broken[0]

    # --- inside the loop ---------------------------------------------------------------------

    def _run(self, work: Coroutine[Any, Any, _T]) -> _T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(HANG_S)

    async def _settle(self) -> None:
        self._released.set()
        while self._busy:
            await asyncio.wait(self._busy, timeout=HANG_S)
        self._released.clear()

    async def _stop(self) -> None:
        self._server.close()
        await self._settle()
        for writer in self._connections:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        client = Client(reader, writer)
        try:
            while (request := await read_message(reader)) is not None:
                task = asyncio.ensure_future(self._exchange(request, client))
                self._busy.add(task)
                task.add_done_callback(self._busy.discard)
                if not await task or not request.keeps_alive:
                    break
        except (OSError, asyncio.IncompleteReadError):
            pass  # the client disconnected, which is allowed
        finally:
            self._connections.discard(writer)
            writer.close()

    async def _exchange(self, request: Message, client: Client) -> bool:
        """Handle one request; return whether the client's connection stays open."""
        method, path = request.start[:2]
        scripted = self._is_scripted(method, path) and self._script
        fault = self._script.popleft() if scripted else Pass()
        name = type(fault).__name__
        exchange = Exchange(method, path, request.headers, request.body, name)
        self.exchanges.append(exchange)
        try:
            goes_on = await fault.play(Play(self, exchange, request, client))
        except Exception as error:
            # An error in the proxy or its action must not look like a network fault.
            self._broken.append(error)
            return False
        async with self._answered:
            self._answers += 1
            self._answered.notify_all()
        return goes_on


@dataclass(frozen=True)
class Client:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def gone(self) -> None:
        """Wait until the client has closed its end."""
        with suppress(OSError):
            await self.reader.read(1)


@dataclass(frozen=True)
class Play:
    """The operations of a fault on one request."""

    proxy: Proxy
    exchange: Exchange
    request: Message
    client: Client

    async def forward(self) -> Message | None:
        """Send the request to the server; return the answer, or None if there is none."""
        try:
            reader, writer = await self._send(self.request.raw)
        except OSError:
            return None
        try:
            self.exchange.forwarded += 1
            answer = await read_message(reader, to_method=self.exchange.method)
        except (OSError, asyncio.IncompleteReadError):
            return None
        finally:
            writer.close()
        if answer is not None:
            self.exchange.statuses.append(answer.status)
        return answer

    async def forward_part(self, length: int) -> None:
        """Send the first bytes and close the connection to the server."""
        with suppress(OSError):
            _, writer = await self._send(self.request.raw[:length])
            writer.close()
            await writer.wait_closed()
        self.exchange.forwarded += length == len(self.request.raw)

    async def answer(self, answer: Message | None) -> bool:
        """Send the answer to the client; without an answer, close its connection."""
        if answer is None:
            return False
        try:
            self.client.writer.write(answer.raw)
            await self.client.writer.drain()
        except OSError:
            return False  # the client is no longer connected
        self.exchange.answered = answer.status
        return answer.keeps_alive

    async def act(self, action: Action | None) -> None:
        if action is not None:
            await asyncio.get_running_loop().run_in_executor(None, action)

    async def _send(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        target = urlsplit(self.proxy.target)
        reader, writer = await asyncio.open_connection(target.hostname, target.port, limit=_LIMIT)
        writer.write(data)
        await writer.drain()
        return reader, writer

    async def until(self, moment: Moment) -> None:
        """Wait for the given moment, or until the test releases held messages."""
        waits: list[Awaitable[Any]] = [self.proxy._released.wait()]
        if moment == "gone":
            waits.append(self.client.gone())
        if moment == "retried":
            waits.append(self._another_answered())
        tasks = [asyncio.ensure_future(wait) for wait in waits]
        _, pending = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in pending:
            task.cancel()

    async def _another_answered(self) -> None:
        before = self.proxy._answers
        async with self.proxy._answered:
            await self.proxy._answered.wait_for(lambda: self.proxy._answers > before)


# --- faults ----------------------------------------------------------------------------------

Action = Callable[[], object]
Moment = Literal["gone", "retried", "released"]


@dataclass(frozen=True)
class Fault:
    """A fault of a request. `action` runs at the critical moment and may restart the server."""

    action: Action | None = field(default=None, kw_only=True)

    async def play(self, play: Play) -> bool:
        raise NotImplementedError


@dataclass(frozen=True)
class Pass(Fault):
    async def play(self, play: Play) -> bool:
        await play.act(self.action)
        return await play.answer(await play.forward())


@dataclass(frozen=True)
class DropRequest(Fault):
    async def play(self, play: Play) -> bool:
        await play.act(self.action)
        return False


@dataclass(frozen=True)
class CutRequest(Fault):
    async def play(self, play: Play) -> bool:
        await play.forward_part(len(play.request.raw) - (len(play.request.body) + 1) // 2)
        await play.act(self.action)
        return False


@dataclass(frozen=True)
class DropAnswer(Fault):
    async def play(self, play: Play) -> bool:
        await play.forward()
        await play.act(self.action)
        return False


@dataclass(frozen=True)
class Abandon(Fault):
    async def play(self, play: Play) -> bool:
        await play.forward_part(len(play.request.raw))
        await play.act(self.action)
        return False


@dataclass(frozen=True)
class CutAnswer(Fault):
    async def play(self, play: Play) -> bool:
        answer = await play.forward()
        await play.act(self.action)
        if answer is not None:
            with suppress(OSError):
                play.client.writer.write(answer.raw[: len(answer.raw) // 2])
                await play.client.writer.drain()
        return False


@dataclass(frozen=True)
class HoldRequest(Fault):
    until: Moment = "gone"

    async def play(self, play: Play) -> bool:
        await play.until(self.until)
        await play.act(self.action)
        return await play.answer(await play.forward())


@dataclass(frozen=True)
class HoldAnswer(Fault):
    until: Moment = "gone"

    async def play(self, play: Play) -> bool:
        answer = await play.forward()
        await play.until(self.until)
        await play.act(self.action)
        return await play.answer(answer)


@dataclass(frozen=True)
class Duplicate(Fault):
    """Sends the request twice: both at once, or the second after the answer to the first."""

    together: bool = True
    answer_with: Literal[0, 1] = 0

    async def play(self, play: Play) -> bool:
        if self.together:
            answers = await asyncio.gather(play.forward(), play.forward())
        else:
            answers = (await play.forward(), await play.forward())
        await play.act(self.action)
        return await play.answer(answers[self.answer_with])


@dataclass(frozen=True)
class Respond(Fault):
    status: int = 503
    retry_after_s: int | None = None
    forwarded: bool = False
    """Whether the server receives and processes the request before the gateway responds."""

    async def play(self, play: Play) -> bool:
        if self.forwarded:
            await play.forward()
        await play.act(self.action)
        body = b"<html><body>this is not the catalog speaking</body></html>"
        pause = "" if self.retry_after_s is None else f"Retry-After: {self.retry_after_s}\r\n"
        head = (
            f"HTTP/1.1 {self.status} Said By Proxy\r\nContent-Type: text/html\r\n{pause}"
            f"Content-Length: {len(body)}\r\n\r\n"
        )
        raw = head.encode() + body
        return await play.answer(Message(raw, ("HTTP/1.1", str(self.status), ""), {}, body))


# --- HTTP/1.1, as much of it as is needed ----------------------------------------------------


async def read_message(
    reader: asyncio.StreamReader, *, to_method: str | None = None
) -> Message | None:
    """Read a request, or the answer to a request of a method; None at the end of the stream."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial:
            raise
        return None
    lines = head.decode("latin-1").split("\r\n")
    start = tuple(lines[0].split(" ", 2))
    headers = {
        name.strip().lower(): value.strip()
        for name, value in (line.split(":", 1) for line in lines[1:] if line)
    }
    if to_method is not None and (to_method == "HEAD" or start[1] in ("204", "304")):
        return Message(head, start, headers, b"")
    if "chunked" in headers.get("transfer-encoding", "").lower():
        body = await _read_chunks(reader)
    elif to_method is not None and "content-length" not in headers:
        body = await reader.read()
    else:
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Message(head + body, start, headers, body)


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    """Read the chunks with their framing, and the trailer."""
    parts: list[bytes] = []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        parts += [line, await reader.readexactly(size + 2)] if size else [line]
        if size == 0:
            break
    while parts[-1] != b"\r\n":
        parts.append(await reader.readuntil(b"\r\n"))
    return b"".join(parts)


@contextmanager
def running_proxy(target: str, script: Iterable[Fault] = ()) -> Iterator[Proxy]:
    """Run a proxy for one block, in front of the server at this address."""
    proxy = Proxy(target)
    proxy.start()
    proxy.script(*script)
    try:
        yield proxy
    finally:
        proxy.stop()
