"""Tests of what all servers of a local deployment share; integration tests try each server."""

from __future__ import annotations

import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.local.owned_server import OwnedServer, port_of_last_time
from anabranch.local.tcp_ports import LOOPBACK, free_port
from anabranch.protocol.errors import ConfigurationError, Unavailable


class _Server(OwnedServer):
    """Answers at once, or ends."""

    def start(self, *, ends: bool = False) -> str:
        self._port = self._needed_port() or free_port()
        program = "pass" if ends else "import signal; signal.pause()"
        if self._run([sys.executable, "-c", program], lambda: not ends, 20):
            return self.address
        raise self._ended()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[_Server]:
    made = _Server("server", tmp_path, "log")
    yield made
    made.stop(5)


def taken(port: int) -> socket.socket:
    other = socket.socket()
    other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    other.bind((LOOPBACK, port))
    other.listen()
    return other


def test_once_it_has_run_it_comes_back_at_its_port_or_not_at_all(server: _Server) -> None:
    """Its clients were told that one, and would wait at it for ever."""
    address = server.start()
    server.kill()
    with (
        taken(int(address.rpartition(":")[2])),
        pytest.raises(Unavailable, match="which the server had before, is taken by another"),
    ):
        server.start()
    assert server.start() == address


def test_before_that_it_may_take_another(server: _Server) -> None:
    with pytest.raises(Unavailable, match="the server ended with code 0"):
        server.start(ends=True)
    with taken(int(server.address.rpartition(":")[2])):
        server.start()


def test_a_port_that_was_asked_for_is_taken_by_somebodys_mistake(tmp_path: Path) -> None:
    port = free_port()
    with (
        taken(port),
        pytest.raises(
            ConfigurationError,
            match=f"port {port} for the server is taken: end what uses it, or let anabranch",
        ),
    ):
        _Server("server", tmp_path, "log", port=port).start()
    assert port_of_last_time(port) == port
