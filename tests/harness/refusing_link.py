"""A link to a real broker on which the first one of two requests is refused, as if the broker did
not know the partition yet, and the second one, which was under way already, is not.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from enum import IntEnum

from anabranch.local.drill_links import Link
from anabranch.local.tcp_ports import LOOPBACK


class Kind(IntEnum):
    """Kind of a request to Kafka, by its key."""

    PRODUCE = 0
    LIST_OFFSETS = 2


class RefusingLink:
    """Relay to a broker. It can hold back a request for a topic until another one of the same kind
    comes; then it passes on both, the first one under the name of a topic that is not there. Their
    answers arrive together.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._topic = b""
        self._kind = Kind.PRODUCE
        self._joined = 0
        """Number of answers that are passed on together with the one after each."""
        self.is_held = threading.Event()
        """A request is held back."""

    def refuse(self, topic: str, kind: Kind = Kind.PRODUCE) -> None:
        """Hold back the next request of this ``kind`` for ``topic``."""
        self.is_held.clear()
        self._kind = kind
        self._topic = topic.encode()

    @contextmanager
    def opened(self) -> Iterator[str]:
        """Relay within the block; yield the address for clients."""
        with socket.create_server((LOOPBACK, self._link.port)) as listening:
            threading.Thread(target=self._accept, args=(listening,), daemon=True).start()
            try:
                yield f"{LOOPBACK}:{self._link.port}"
            finally:
                listening.shutdown(socket.SHUT_RDWR)

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection((LOOPBACK, self._link.broker_port)) as broker:
            threading.Thread(target=self._pass_answers, args=(broker, client), daemon=True).start()
            with suppress(OSError), client.makefile("rb") as requests:
                self._pass_requests(requests.read, broker)
            with suppress(OSError):
                broker.shutdown(socket.SHUT_RDWR)

    def _pass_requests(self, read: Callable[[int], bytes], broker: socket.socket) -> None:
        held = b""
        while request := _message(read):
            is_meant = int.from_bytes(request[4:6], "big") == self._kind
            if is_meant and self._topic and self._topic in request:
                held = request.replace(self._topic, self._topic[::-1], 1)
                self._topic = b""
                self.is_held.set()
                continue
            if is_meant and held:
                request, held = held + request, b""
                self._joined = 1
            broker.sendall(request)

    def _pass_answers(self, broker: socket.socket, client: socket.socket) -> None:
        waiting = b""
        with suppress(OSError), broker.makefile("rb") as answers:
            while answer := _message(answers.read):
                waiting += answer
                if self._joined:
                    self._joined -= 1
                    continue
                client.sendall(waiting)
                waiting = b""
            client.shutdown(socket.SHUT_RDWR)


def _message(read: Callable[[int], bytes]) -> bytes:
    """Return the next message of a connection with its length before it; empty: it has ended."""
    size = read(4)
    return size + read(int.from_bytes(size, "big")) if size else b""
