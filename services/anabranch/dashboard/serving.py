"""Process of the page: starts the followers and the HTTP server, and ends them at a signal.

It keeps nothing on disk. A crash loses the list of events; everything else is read again.
"""

from __future__ import annotations

import asyncio
import secrets
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from ipaddress import ip_address
from typing import TYPE_CHECKING, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.dashboard.access import Access
from anabranch.dashboard.dead_letters import DeadLetterFollower
from anabranch.dashboard.feed import PageFeed
from anabranch.dashboard.market import MarketFollower
from anabranch.dashboard.page import Page
from anabranch.dashboard.processes import Address, ProcessFollower
from anabranch.dashboard.server import PageServer
from anabranch.dashboard.topics import Connect, TopicFollower
from anabranch.local import state_file
from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline

_CONNECTIONS_MAX: Final = 64
_END_S: Final = 2
_POLL_S: Final = 0.2
_REQUEST_S: Final = 10
"""Timeout of a connection without a request, in seconds: idle connections must not use up
_CONNECTIONS_MAX.
"""
_JOIN_S: Final = 12.0
"""Timeout for each follower to end, in seconds. A call to a broker that does not answer takes that
long.
"""
_BACKLOG: Final = 64


def token_for(host: str, token: str | None) -> str | None:
    """Return the token that requests need: ``token``, else a random one; None: no token is needed,
    since ``host`` is loopback.
    """
    if token:
        return token
    return None if _is_loopback(host) else secrets.token_urlsafe(24)


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_of(state_dir: Path, kafka: str | None) -> Callable[[], str]:
    """Return a function that returns the broker's address as it is known now; empty: not known.

    An embedded broker may have another port after each start. The supervisor's file in
    ``state_dir`` names it, unless ``kafka`` is given.
    """

    def current() -> str:
        found = None if kafka is not None else state_file.read(state_dir)
        return kafka or ("" if found is None else found.kafka)

    return current


def connection(address: Callable[[], str]) -> Connect:
    """Return the function by which followers connect to the broker at ``address``."""

    def connect() -> tuple[str, KafkaEventLog]:
        found = address()
        if not found:
            raise ConfigurationError(
                "nothing runs yet, so no broker is known: anabranch up, or name one with --kafka"
            )
        return found, KafkaEventLog(found, client_id="anabranch-page")

    return connect


def serve(
    pipeline: Pipeline,
    connect: Connect,
    *,
    state_dir: Path | None,
    processes: Mapping[str, Address],
    host: str,
    port: int,
    token: str | None,
    say: Callable[[str], None],
    stopping: threading.Event,
) -> None:
    """Serve the page until ``stopping`` is set.

    Args:
        pipeline: The pipeline to show.
        connect: Function that connects to its broker.
        state_dir: State directory of the deployment; None: there is none.
        processes: Metrics ports of the processes, where no state directory names them.
        host: Address to listen on.
        port: Port to listen on; 0: any free one.
        token: Token that requests need; None: every user of the machine may see the page.
        say: Function that prints a line.
        stopping: Set when the page must end.

    Raises:
        ConfigurationError: the server cannot listen on the address.
    """
    feed = PageFeed(Page(pipeline), SystemClock())
    dead_letters = DeadLetterFollower(pipeline, connect, feed)
    server = PageServer(feed, dead_letters, Access(token))
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"--host {host} --port {port}: {error.strerror}") from error
    with listening:
        threads = [
            feed.run_in_thread(
                "topics", TopicFollower(pipeline, connect, feed).work, is_contact=True
            ),
            feed.run_in_thread("processes", ProcessFollower(feed, state_dir, processes).work),
            feed.run_in_thread("dead letters", dead_letters.work),
        ]
        if pipeline.federation is not None:
            threads.append(
                feed.run_in_thread(
                    "market", MarketFollower(pipeline.federation, connect, feed).work
                )
            )
        shown = f"[{host}]" if ":" in host else host
        say(f"the page of {pipeline.name}: http://{shown}:{listening.getsockname()[1]}/")
        http = http_server(server)
        threading.Thread(target=_end_when, args=(stopping, feed, http), daemon=True).start()
        try:
            http.run(sockets=[listening])
        finally:
            feed.stopping.set()
            for thread in threads:
                thread.join(_JOIN_S)
        if feed.failure is not None:
            raise feed.failure


def _end_when(stopping: threading.Event, feed: PageFeed, http: uvicorn.Server) -> None:
    """End the server once ``stopping`` is set, or a follower has failed."""
    while not feed.stopping.is_set() and not stopping.wait(_POLL_S):
        pass
    http.should_exit = True


def http_server(page: PageServer) -> uvicorn.Server:
    """Return the HTTP server of ``page``. Its ``run`` serves until ``should_exit`` is set."""
    configuration = uvicorn.Config(
        page.app,
        http=_IdleTimeoutProtocol,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_END_S,
        ws="none",
    )
    return _Server(configuration, page)


class _IdleTimeoutProtocol(H11Protocol):
    """HTTP protocol that closes connections on which no request is being answered.

    Uvicorn's own timeout begins only after a first request: without this class a client could hold
    connections by sending nothing.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer of a new connection."""
        super().connection_made(transport)
        self.loop.call_later(_REQUEST_S, self._close_if_idle)

    def _close_if_idle(self) -> None:
        """Close the connection unless a request is being answered; else check again later."""
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.close()
        else:
            self.loop.call_later(_REQUEST_S, self._close_if_idle)


class _Server(uvicorn.Server):
    """Server that ends its event streams at shutdown, and does not handle signals.

    Uvicorn's shutdown waits for open responses, and an event stream would never end by itself.
    """

    def __init__(self, config: uvicorn.Config, page: PageServer) -> None:
        """Serve ``page``."""
        super().__init__(config)
        self._page = page

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave the signal handlers as they are: the command handles signals."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End the event streams, then shut down. The event loop's thread calls this once."""
        self._page.end()
        await super().shutdown(sockets)
