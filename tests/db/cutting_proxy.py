"""A TCP proxy for PostgreSQL that cuts a connection at a chosen statement."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass, field
from enum import Enum


class Cut(Enum):
    """What the proxy does when the chosen statement arrives."""

    BEFORE = "it never reaches the server"
    AFTER_ANSWER = "the server does it, its answer is lost"
    AFTER_SENDING = "it is sent on, and the client is cut off at once"


@dataclass
class CuttingProxy:
    """Forwards everything until `cut_at` is armed. Then it cuts one connection and forwards
    again."""

    server_port: int
    port: int = 0
    _armed: tuple[bytes, Cut] | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _listener: socket.socket = field(default_factory=socket.socket)

    def start(self) -> None:
        self._listener.bind(("127.0.0.1", 0))
        self._listener.listen()
        self.port = self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def cut_at(self, statement: bytes, cut: Cut) -> None:
        with self._lock:
            self._armed = (statement, cut)

    @property
    def armed(self) -> bool:
        with self._lock:
            return self._armed is not None

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self.server_port))
            pair = _Pair(client, server)
            threading.Thread(target=self._upstream, args=(pair,), daemon=True).start()
            threading.Thread(target=pair.downstream, daemon=True).start()

    def _upstream(self, pair: _Pair) -> None:
        """Forward to the server; a statement of the driver fits in one segment on loopback."""
        while data := pair.receive(pair.client):
            cut = self._take(data)
            if cut is Cut.BEFORE:
                pair.close()
                return
            if cut is Cut.AFTER_ANSWER:
                pair.swallow_answer = True
            if not pair.send(pair.server, data):
                break
            if cut is Cut.AFTER_SENDING:
                pair.client.shutdown(socket.SHUT_RDWR)
                return
        pair.close()

    def _take(self, data: bytes) -> Cut | None:
        with self._lock:
            if self._armed is None or self._armed[0] not in data:
                return None
            cut = self._armed[1]
            self._armed = None
            return cut


@dataclass
class _Pair:
    client: socket.socket
    server: socket.socket
    swallow_answer: bool = False

    def downstream(self) -> None:
        while data := self.receive(self.server):
            if self.swallow_answer or not self.send(self.client, data):
                break
        self.close()

    def receive(self, source: socket.socket) -> bytes:
        try:
            return source.recv(65536)
        except OSError:
            return b""

    def send(self, target: socket.socket, data: bytes) -> bool:
        try:
            target.sendall(data)
        except OSError:
            return False
        return True

    def close(self) -> None:
        for one in (self.client, self.server):
            try:
                one.shutdown(socket.SHUT_RDWR)
            except OSError:
                continue
