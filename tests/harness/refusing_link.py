"""A link to a real broker on which a writer's first batch is refused as if the broker did not know
the partition yet, and the second one, which was under way already, is not.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from anabranch.local.drill_links import Link
from anabranch.local.tcp_ports import LOOPBACK

_PRODUCE: Final = 0
"""Key of Kafka's request that writes."""


class RefusingLink:
    """Relay to a broker. It can hold back a request that writes to a topic until another one comes;
    then it passes on both, the first one under the name of a topic that is not there.
    """

    def __init__(self, link: Link) -> None:
        self._link = link
        self._topic = b""
        self.is_held = threading.Event()
        """A request is held back."""

    def refuse(self, topic: str) -> None:
        """Hold back the next request that writes to ``topic``."""
        self.is_held.clear()
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
            threading.Thread(target=_pass_on, args=(broker, client), daemon=True).start()
            with suppress(OSError), client.makefile("rb") as requests:
                self._pass_requests(requests.read, broker)
            with suppress(OSError):
                broker.shutdown(socket.SHUT_RDWR)

    def _pass_requests(self, read: Callable[[int], bytes], broker: socket.socket) -> None:
        held = b""
        while size := read(4):
            request = size + read(int.from_bytes(size, "big"))
            writes = int.from_bytes(request[4:6], "big") == _PRODUCE
            if writes and self._topic and self._topic in request:
                held = request.replace(self._topic, self._topic[::-1], 1)
                self._topic = b""
                self.is_held.set()
                continue
            if writes and held:
                request, held = held + request, b""
            broker.sendall(request)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
        target.shutdown(socket.SHUT_RDWR)
