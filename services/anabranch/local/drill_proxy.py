"""TCP proxy of the fault drills: forwards one port per link to the broker's listener for that link,
unless the link is cut.

Theory of operation. One thread, one selector. A connection is a pair of sockets and two flows, one
per direction. A flow reads only after it has written its last read, so it holds at most one. In the
direction of a cut the proxy neither reads nor writes. Nothing is closed: both sides see what a lost
network shows, no data. After the heal the kernel's buffered bytes pass, as a retransmission would,
so a request that timed out at its sender may still be applied. While a link is cut in any direction
no new connection is accepted, as its handshake needs both: it waits in the kernel's queue, open for
its client and unanswered.

A cut with ``reset`` closes both sockets of every connection, present and new, with a TCP reset. A
slow link (``delay_ms``) holds each read for that time; as a flow holds one read at most, this also
bounds its rate.

The proxy reads the requested cuts from files every 20 ms (``local.drill_links``), so it may be
killed and restarted at any time: its connections are lost, the cuts are not.

    python -m anabranch.local.drill_proxy STATE_DIR/drills
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
from anabranch.local import drill_links
from anabranch.local.drill_links import Cut, Link
from anabranch.local.tcp_ports import LOOPBACK

LOOK_MS: Final = 20
"""Interval between reads of the requested cuts, in ms: the largest delay of a cut or heal. A read
takes some 10 microseconds.
"""

_SLOW_STEP_MS: Final = 5
"""Interval between checks of what slow links hold, in ms: the largest excess over their delay."""

_READ_BYTES: Final = 256 * 1024
_WAITING_MAX: Final = 128
_ACCEPTED_AT_ONCE: Final = 16
_RESET: Final = struct.pack("ii", 1, 0)
"""Value of SO_LINGER, on with 0 s: close sends a reset and drops unsent bytes."""


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
        """Return whether the flow may read from its source now."""
        return not (self.paused or self.pending or self.ended)

    def may_write(self) -> bool:
        """Return whether the flow has bytes that it may write to its sink now."""
        return bool(self.pending) and not self.paused and not self._is_early()

    def _is_early(self) -> bool:
        return self.delay_ms > 0 and _clock.monotonic_ms() < self.due_ms

    def read(self) -> None:
        """Read what has arrived and, unless the link is slow, write as much of it as possible.

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
        """Write as much of the pending bytes as possible.

        Raises:
            OSError: a side is gone.
        """
        with contextlib.suppress(BlockingIOError):
            self.pending = self.pending[self.sink.send(self.pending) :]


class _Connection:
    """Pair of a client's socket and the socket to the broker for it."""

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
        """Register the events that are possible now, and no others: a paused socket must not wake
        the selector.
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
    """Listening port of one link, and its connections. Not thread-safe."""

    def __init__(self, link: Link, selector: selectors.BaseSelector) -> None:
        """Listen on the link's port.

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
        """Number of open connections."""
        return len(self._connections)

    @property
    def is_slow(self) -> bool:
        """Whether the link delays what it passes."""
        return self.cut is not None and self.cut.delay_ms > 0

    def forward_due(self) -> None:
        """Let the selector write the bytes of a slow link whose delay is over."""
        for connection in self._connections:
            connection.watch()

    def set_cut(self, cut: Cut | None) -> None:
        """Apply ``cut`` to all connections, present and new; None lets everything pass."""
        self.cut = cut
        if cut is not None and cut.reset:
            for connection in list(self._connections):
                connection.close()
        for connection in self._connections:
            self._hold(connection)
            connection.watch()
        self._accept_or_not()

    def close(self) -> None:
        """Close the port and all connections."""
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
            except OSError:  # no client is waiting, or it has closed its connection
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
    """Proxies of all links of a deployment. Not thread-safe."""

    def __init__(self, folder: Path, say: Callable[[str], None]) -> None:
        """Listen on the port of every link in ``folder``, with the cuts that are requested there.

        Raises:
            OSError: a port is taken.
        """
        self._folder = folder
        self._say = say
        self._selector = selectors.DefaultSelector()
        self._proxies = {
            link.label: LinkProxy(link, self._selector) for link in drill_links.read_links(folder)
        }
        self._clock = SystemClock()
        self._look_at_ms = 0
        self._stated: dict[str, Cut] | None = None

    def step(self) -> None:
        """Forward data until, at the latest, the next read of the requested cuts."""
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._look_at_ms:
            self._apply_cuts()
            self._look_at_ms = now_ms + LOOK_MS
        wait_ms = self._look_at_ms - now_ms
        for proxy in self._proxies.values():
            if proxy.is_slow:
                proxy.forward_due()
                wait_ms = min(wait_ms, _SLOW_STEP_MS)
        for key, events in self._selector.select(wait_ms / 1000):
            # Sockets only; one may have closed its peer in this round.
            if key.fileobj.fileno() >= 0:  # type: ignore[union-attr]
                key.data(events)

    def _apply_cuts(self) -> None:
        """Read the requested cuts, apply changes, and write which cuts are in effect."""
        wanted = {
            label: cut
            for label, cut in drill_links.wanted(self._folder).items()
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
        drill_links.write_applied(self._folder, wanted)
        self._stated = wanted

    def close(self) -> None:
        """Close all connections and ports."""
        for proxy in self._proxies.values():
            proxy.close()
        self._selector.close()


def main(arguments: Sequence[str]) -> int:
    """Run the proxy until SIGTERM. A taken port ends it with exit code 1."""
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
