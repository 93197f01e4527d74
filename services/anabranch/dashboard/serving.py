"""Runs the page: those who follow the pipeline, and the server, until a signal.

Keeps nothing on disk. A crash loses what was noted as having happened; all else is read again.
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
from anabranch.dashboard.feed import Feed
from anabranch.dashboard.letters import Letters
from anabranch.dashboard.market import MarketFollower
from anabranch.dashboard.page import Page
from anabranch.dashboard.processes import Address, ProcessFollower
from anabranch.dashboard.server import PageServer
from anabranch.dashboard.topics import Connect, TopicFollower
from anabranch.protocol.errors import ConfigurationError
from anabranch.up import state_file

if TYPE_CHECKING:
    from pathlib import Path

    from anabranch.pipeline.model import Pipeline

_CONNECTIONS_MAX: Final = 64
_END_S: Final = 2
_LOOK_S: Final = 0.2
_REQUEST_S: Final = 10
"""The server closes a connection without a request for so long: idle ones keep nobody out.
"""
_JOIN_S: Final = 12.0
"""A call to a broker that does not answer takes so long."""
_BACKLOG: Final = 64


def token_for(host: str, token: str | None) -> str | None:
    """The token that the page needs there: the one given, else a random one; None: on loopback,
    where none is given.
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
    """The broker as it is known now: an embedded one has another port when it comes back."""

    def current() -> str:
        found = None if kafka is not None else state_file.read(state_dir)
        return kafka or ("" if found is None else found.kafka)

    return current


def connection(address: Callable[[], str]) -> Connect:
    """What the followers connect by."""

    def connect() -> tuple[str, KafkaEventLog]:
        found = address()
        if not found:
            raise ConfigurationError("nothing runs yet: no broker is known")
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
    """Serve the page until ``stopping`` is set. ``token`` None: whoever is on the machine may look.

    Raises:
        ConfigurationError: the address cannot be listened at.
    """
    feed = Feed(Page(pipeline), SystemClock())
    letters = Letters(pipeline, connect, feed)
    server = PageServer(feed, letters, Access(token))
    try:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listening = socket.create_server((host, port), family=family, backlog=_BACKLOG)
    except OSError as error:
        raise ConfigurationError(f"--host {host} --port {port}: {error.strerror}") from error
    with listening:
        threads = [
            feed.keep("topics", TopicFollower(pipeline, connect, feed).work, is_contact=True),
            feed.keep("processes", ProcessFollower(feed, state_dir, processes).work),
            feed.keep("letters", letters.work),
        ]
        if pipeline.federation is not None:
            threads.append(
                feed.keep("market", MarketFollower(pipeline.federation, connect, feed).work)
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


def _end_when(stopping: threading.Event, feed: Feed, http: uvicorn.Server) -> None:
    while not feed.stopping.is_set() and not stopping.wait(_LOOK_S):
        pass
    http.should_exit = True


def http_server(page: PageServer) -> uvicorn.Server:
    """What ``run`` serves the page by, until ``should_exit`` is set."""
    configuration = uvicorn.Config(
        page.app,
        http=_Impatient,
        log_level="warning",
        access_log=False,
        server_header=False,
        proxy_headers=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_END_S,
        ws="none",
    )
    return _Server(configuration, page)


class _Impatient(H11Protocol):
    """Closes connections on which no request is being answered."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by the event loop."""
        super().connection_made(transport)
        self.loop.call_later(_REQUEST_S, self._look)

    def _look(self) -> None:
        if self.transport.is_closing():
            return
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is None or cycle.response_complete:
            self.transport.close()
        else:
            self.loop.call_later(_REQUEST_S, self._look)


class _Server(uvicorn.Server):
    """Lets those who look on go before it waits for them."""

    def __init__(self, config: uvicorn.Config, page: PageServer) -> None:
        super().__init__(config)
        self._page = page

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are their receiver's business."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """The event loop's thread calls this once."""
        self._page.end()
        await super().shutdown(sockets)
