"""The proxy of the fault drills: one TCP port per link, passed on to the broker's listener of that
link, until it is cut.

Theory of operation. One thread, one selector. A connection is a pair of sockets and two flows, one
per direction; a flow reads when its last bytes are gone, so it holds one read at most. Cutting a
link is not reading and not writing in its direction: nothing is closed, and who is on either side
sees exactly what a lost network shows: silence. What the kernel has buffered goes on after the
heal, as a retransmission would, so a request that its sender has given up may still be applied
late. While a link is cut in any direction no new connection is accepted (its handshake needs both
directions): it stays in the kernel's queue, open for its client, unanswered.

A cut with ``reset`` closes both sockets of every connection, and every new one, with a TCP reset. A
slow link (``delay_ms``) keeps each read for that long before it passes it on; since a flow holds
one read at most, this bounds its rate too.

The wanted cuts are looked up in files every 20 ms (``drills.links``), so the proxy may be killed
and restarted at any time: the connections are gone then, the cuts are not.

    python -m anabranch.drills.proxy STATE_DIR/drills
"""

from __future__ import annotations

import contextlib
import errno
import json
import selectors
import signal
import socket
import struct
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from anabranch.adapters.system.clock import SystemClock
from anabranch.drills import links
from anabranch.drills.links import Cut, Link
from anabranch.up.tcp_ports import LOOPBACK

LOOK_MS: Final = 20
"""Between two looks at the wanted cuts: how late a cut or heal is at most. A look costs some
10 microseconds.
"""

_SLOW_STEP_MS: Final = 5
"""Between two looks at what a slow link holds: how much later than set it may pass on."""

_READ_BYTES: Final = 256 * 1024
_WAITING_MAX: Final = 128
_ACCEPTED_AT_ONCE: Final = 16
_RESET: Final = struct.pack("ii", 1, 0)
"""SO_LINGER on, 0 s: close sends a reset and forgets what was not sent."""


_clock: Final = SystemClock()


class _Flow:
    """One direction of a connection."""

    __slots__ = ("delay_ms", "due_ms", "ended", "paused", "pending", "sink", "source")

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self.source, self.sink = source, sink
        self.pending = memoryview(b"")
        self.ended = False
        self.paused = False
        self.delay_ms = 0
        self.due_ms = 0

    def may_read(self) -> bool:
        return not (self.paused or self.pending or self.ended)

    def may_write(self) -> bool:
        return bool(self.pending) and not self.paused and not self._is_early()

    def _is_early(self) -> bool:
        return self.delay_ms > 0 and _clock.monotonic_ms() < self.due_ms

    def read(self) -> None:
        """Take what is there and pass it on at once as far as possible.

        Raises:
            OSError: a side is gone.
        """
        try:
            data = self.source.recv(_READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.ended = True
            self.sink.shutdown(socket.SHUT_WR)
            return
        self.pending = memoryview(data)
        if self.delay_ms:
            self.due_ms = _clock.monotonic_ms() + self.delay_ms
        else:
            self.write()

    def write(self) -> None:
        """Pass on what is pending as far as possible.

        Raises:
            OSError: a side is gone.
        """
        with contextlib.suppress(BlockingIOError):
            self.pending = self.pending[self.sink.send(self.pending) :]


class _Connection:
    """A client's socket and the one to the broker for it."""

    def __init__(
        self,
        client: socket.socket,
        broker_port: int,
        selector: selectors.BaseSelector,
        forget: Callable[[_Connection], None],
    ) -> None:
        self._selector = selector
        self._forget = forget
        self._client = client
        self._broker = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.to = _Flow(client, self._broker)
        self.back = _Flow(self._broker, client)
        self._watched: dict[socket.socket, int] = {}
        for end in (client, self._broker):
            end.setblocking(False)
            end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        outcome = self._broker.connect_ex((LOOPBACK, broker_port))
        self._connecting = outcome == errno.EINPROGRESS
        if outcome not in {0, errno.EINPROGRESS}:
            self.close()
        else:
            self.watch()

    def watch(self) -> None:
        """Ask the selector for what is possible now, and for nothing else: a paused socket must not
        wake anybody.
        """
        if self._connecting:
            self._ask(self._broker, selectors.EVENT_WRITE)
            return
        read, write = selectors.EVENT_READ, selectors.EVENT_WRITE
        self._ask(self._client, read * self.to.may_read() | write * self.back.may_write())
        self._ask(self._broker, read * self.back.may_read() | write * self.to.may_write())

    def _ask(self, end: socket.socket, events: int) -> None:
        before = self._watched.get(end, 0)
        if events == before:
            return
        if not events:
            self._selector.unregister(end)
        elif before:
            self._selector.modify(end, events, partial(self._happened, end))
        else:
            self._selector.register(end, events, partial(self._happened, end))
        self._watched[end] = events

    def _happened(self, end: socket.socket, events: int) -> None:
        try:
            if self._connecting:
                self._connected()
            else:
                self._pass_on(end, events)
        except OSError:
            self.close()
            return
        if self.to.ended and self.back.ended:
            self.close()
        elif self._watched:
            self.watch()

    def _connected(self) -> None:
        problem = self._broker.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, "the broker does not listen")
        self._connecting = False

    def _pass_on(self, end: socket.socket, events: int) -> None:
        outgoing, incoming = (self.to, self.back) if end is self._client else (self.back, self.to)
        if events & selectors.EVENT_READ and outgoing.may_read():
            outgoing.read()
        if events & selectors.EVENT_WRITE and incoming.may_write():
            incoming.write()

    def close(self) -> None:
        """Reset both sides. Idempotent."""
        for end in (self._client, self._broker):
            if self._watched.pop(end, 0):
                self._selector.unregister(end)
            with contextlib.suppress(OSError):  # closed already
                if not (self.to.ended and self.back.ended):
                    end.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
            end.close()
        self._forget(self)


class LinkProxy:
    """The listening port of one link and its connections. Not thread-safe."""

    def __init__(self, link: Link, selector: selectors.BaseSelector) -> None:
        """Listen.

        Raises:
            OSError: the port is taken.
        """
        self.link = link
        self.cut: Cut | None = None
        self._selector = selector
        self._connections: set[_Connection] = set()
        self._listener = socket.create_server((LOOPBACK, link.port), backlog=_WAITING_MAX)
        self._listener.setblocking(False)
        self._accepting = False
        self._accept_or_not()

    @property
    def connections(self) -> int:
        """How many are open."""
        return len(self._connections)

    @property
    def is_slow(self) -> bool:
        """Whether it holds what it reads for a while."""
        return self.cut is not None and self.cut.delay_ms > 0

    def pass_on_what_is_due(self) -> None:
        """Of a slow link."""
        for connection in self._connections:
            connection.watch()

    def set_cut(self, cut: Cut | None) -> None:
        """From now on pass only what ``cut`` lets through; None: everything."""
        self.cut = cut
        if cut is not None and cut.reset:
            for connection in list(self._connections):
                connection.close()
        for connection in self._connections:
            self._hold(connection)
            connection.watch()
        self._accept_or_not()

    def close(self) -> None:
        """End it, its connections included."""
        if self._accepting:
            self._selector.unregister(self._listener)
        self._listener.close()
        for connection in list(self._connections):
            connection.close()

    def _hold(self, connection: _Connection) -> None:
        connection.to.paused = self.cut is not None and self.cut.holds_to
        connection.back.paused = self.cut is not None and self.cut.holds_from
        connection.to.delay_ms = 0 if self.cut is None else self.cut.delay_to_ms
        connection.back.delay_ms = 0 if self.cut is None else self.cut.delay_from_ms

    def _accept_or_not(self) -> None:
        wanted = self.cut is None or self.cut.reset or self.is_slow
        if wanted and not self._accepting:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        elif self._accepting and not wanted:
            self._selector.unregister(self._listener)
        self._accepting = wanted

    def _accept(self, _events: int) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                client, _ = self._listener.accept()
            except OSError:  # nobody waits, or who waited is gone
                return
            if self.cut is not None and self.cut.reset:
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                client.close()
                continue
            connection = _Connection(
                client, self.link.broker_port, self._selector, self._connections.discard
            )
            if client.fileno() >= 0:
                self._hold(connection)
                self._connections.add(connection)


class Proxy:
    """All links of a deployment. Not thread-safe."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """Listen on the port of every link that ``folder`` describes, cut as is wanted there.

        Raises:
            OSError: a port is taken.
        """
        self._folder = folder
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._proxies = {
            link.label: LinkProxy(link, self._selector) for link in links.read_links(folder)
        }
        self._clock = SystemClock()
        self._look_at_ms = 0
        self._stated: dict[str, Cut] | None = None

    def step(self) -> None:
        """Pass on what comes until the next look at the wanted cuts, at most."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._look_at_ms:
            self._look()
            self._look_at_ms = now_ms + LOOK_MS
        wait_ms = self._look_at_ms - now_ms
        for proxy in self._proxies.values():
            if proxy.is_slow:
                proxy.pass_on_what_is_due()
                wait_ms = min(wait_ms, _SLOW_STEP_MS)
        for key, events in self._selector.select(wait_ms / 1000):
            # Sockets only; one may have closed its peer in this round.
            if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]
                key.data(events)

    def _look(self) -> None:
        wanted = {
            label: cut
            for label, cut in links.wanted(self._folder).items()
            if label in self._proxies
        }
        if wanted == self._stated:
            return
        for label, proxy in self._proxies.items():
            cut = wanted.get(label)
            if cut != proxy.cut:
                proxy.set_cut(cut)
                what = (
                    f"cut ({cut.direction}{', reset' if cut.reset else ''})"
                    if cut is not None
                    else "healed"
                )
                if proxy.is_slow and cut is not None:
                    what = f"slow ({cut.direction}, {cut.delay_ms} ms)"
                self._say(
                    json.dumps(
                        {
                            "event": what,
                            "link": label,
                            "connections": proxy.connections,
                            "at_ms": self._clock.now_ms(),
                        }
                    )
                )
        links.write_applied(self._folder, wanted)
        self._stated = wanted

    def close(self) -> None:
        """Close all connections and ports."""
        for proxy in self._proxies.values():
            proxy.close()
        self._selector.close()


def main(arguments: Sequence[str]) -> int:
    """Run until SIGTERM. Exit code 1: a port is taken."""
    stopping = False

    def stop(_number: int, _frame: object) -> None:
        nonlocal stopping
        stopping = True

    signal.signal(signal.SIGTERM, stop)
    proxy = Proxy(Path(arguments[0]), partial(print, flush=True))
    while not stopping:
        proxy.step()
    proxy.close()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
