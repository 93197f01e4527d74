"""The proxy between a client and a server that sends back what it gets: passing on, cuts,
heals, and the ends of connections.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import drill_links
from anabranch.local.drill_links import Cut, Direction, Link
from anabranch.local.drill_proxy import Proxy
from anabranch.local.tcp_ports import LOOPBACK, free_port
from harness.waiting import wait_until

LABEL = "ingestion/a"
SILENCE_S = 0.3


class Echo(threading.Thread):
    """A server that sends back what it gets and remembers it."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server((LOOPBACK, port))
        self.got = bytearray()
        self.ended = 0
        self.connections: list[socket.socket] = []

    def run(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while data := connection.recv(65_536):
                self.got += data
                connection.sendall(data)
        self.ended += 1


class Running:
    """A proxy on a thread, in front of an echo."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.link = Link(LABEL, free_port(), free_port())
        drill_links.lay(folder, [self.link])
        self.echo = Echo(self.link.broker_port)
        self.echo.start()
        self.logged: list[str] = []
        self.proxy = Proxy(folder, self.logged.append)
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        while not self._stopping.is_set():
            self.proxy.step()

    def cut(self, cut: Cut | None) -> None:
        drill_links.want(self.folder, LABEL, cut)
        wait_until(
            lambda: drill_links.applied(self.folder).get(LABEL) == cut, 30, "the proxy did it"
        )

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()
        self.proxy.close()
        self.echo.listener.close()

    def connect(self) -> socket.socket:
        client = socket.create_connection((LOOPBACK, self.link.port), timeout=30)
        client.settimeout(30)
        return client


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    made = Running(tmp_path / "drills")
    yield made
    made.stop()


def exactly(client: socket.socket, count: int) -> bytes:
    got = bytearray()
    while len(got) < count:
        data = client.recv(count - len(got))
        assert data, "closed early"
        got += data
    return bytes(got)


def talk(running: Running) -> None:
    """Which of the steps meets a reset is the kernel's choice."""
    with running.connect() as connection:
        connection.sendall(b"y")
        connection.recv(1)


def silent(client: socket.socket) -> bool:
    client.settimeout(SILENCE_S)
    try:
        return client.recv(1, socket.MSG_PEEK) is None
    except TimeoutError:
        return True
    finally:
        client.settimeout(30)


def test_bytes_pass_both_ways_unchanged_also_more_than_any_buffer_holds(running: Running) -> None:
    sent = bytes(range(256)) * 100_000
    with running.connect() as client:
        sender = threading.Thread(target=client.sendall, args=(sent,))
        sender.start()
        assert exactly(client, len(sent)) == sent
        sender.join()
    wait_until(
        lambda: running.echo.ended == 1 and running.proxy._proxies[LABEL].connections == 0,
        30,
        "the end was passed on, and forgotten",
    )


def test_a_cut_holds_everything_and_a_heal_lets_it_go_on(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"before")
        assert exactly(client, 6) == b"before"
        running.cut(Cut())
        client.sendall(b"during")
        assert silent(client)
        assert bytes(running.echo.got) == b"before"
        running.cut(None)
        assert exactly(client, 6) == b"during"
    assert [json.loads(line)["event"] for line in running.logged] == ["cut (both)", "healed"]
    assert {json.loads(line)["connections"] for line in running.logged} == {1}


def test_requests_alone_or_answers_alone_may_be_cut(running: Running) -> None:
    with running.connect() as client:
        client.sendall(b"1")
        assert exactly(client, 1) == b"1"
        running.cut(Cut(Direction.TO))
        client.sendall(b"2")
        assert silent(client)
        assert bytes(running.echo.got) == b"1"
        running.echo.connections[0].sendall(b"an answer under way")
        assert exactly(client, 19) == b"an answer under way"
        running.cut(Cut(Direction.FROM))
        wait_until(lambda: bytes(running.echo.got) == b"12", 30, "the request arrives")
        assert silent(client)
        running.cut(None)
        assert exactly(client, 1) == b"2"


def test_what_the_proxy_itself_holds_at_the_cut_stays_there(running: Running) -> None:
    sent = b"x" * 30_000_000
    (proxy,) = running.proxy._proxies.values()
    with running.connect() as client:
        sender = threading.Thread(target=client.sendall, args=(sent,))
        sender.start()  # and reads nothing: the answers fill every buffer on their way back
        wait_until(lambda: proxy._connections, 10, "it is open")
        (connection,) = proxy._connections

        def pending_at_the_cut() -> bytes:
            """Nothing as long as the kernel takes all."""
            running.cut(Cut(Direction.FROM))
            pending = bytes(connection.back.pending)
            if not pending:
                running.cut(None)
            return pending

        pending = wait_until(pending_at_the_cut, 20, "the proxy holds some")
        got = len(exactly(client, 100_000))
        while not silent(client):
            got += len(client.recv(65_536))
        assert bytes(connection.back.pending) == pending
        running.cut(None)
        assert exactly(client, len(sent) - got) == sent[got:]
        sender.join()


def test_a_new_connection_during_a_cut_is_open_and_unanswered_until_the_heal(
    running: Running,
) -> None:
    running.cut(Cut())
    with running.connect() as client:
        client.sendall(b"hello")
        assert silent(client)
        assert bytes(running.echo.got) == b""
        running.cut(None)
        assert exactly(client, 5) == b"hello"


def test_what_a_client_sent_before_it_gave_up_arrives_late(running: Running) -> None:
    """On a real network the kernel goes on retransmitting for an ended process, too."""
    running.cut(Cut())
    client = running.connect()
    client.sendall(b"given up")
    client.close()
    running.cut(None)
    wait_until(lambda: bytes(running.echo.got) == b"given up", 30, "it arrives")
    wait_until(lambda: running.proxy._proxies[LABEL].connections == 0, 30, "and is forgotten")


def test_reset_closes_connections_and_refuses_new_ones(running: Running) -> None:
    client = running.connect()
    client.sendall(b"x")
    assert exactly(client, 1) == b"x"
    running.cut(Cut(reset=True))
    with pytest.raises(ConnectionResetError):
        client.recv(1)
    client.close()
    wait_until(lambda: running.echo.ended == 1, 30, "the broker's side was closed too")
    with pytest.raises(ConnectionError):
        talk(running)
    running.cut(None)
    with running.connect() as again:
        again.sendall(b"z")
        assert exactly(again, 1) == b"z"


@pytest.mark.parametrize(
    ("direction", "ways"), [(Direction.BOTH, 2), (Direction.TO, 1), (Direction.FROM, 1)]
)
def test_a_slow_link_passes_everything_later_each_way_that_it_is_slow(
    running: Running, direction: Direction, ways: int
) -> None:
    delay_ms = 150
    clock = SystemClock()
    running.cut(Cut(direction, delay_ms=delay_ms))
    with running.connect() as client:
        for sent in (b"one", b"two"):
            begun_ms = clock.monotonic_ms()
            client.sendall(sent)
            assert exactly(client, 3) == sent
            assert clock.monotonic_ms() - begun_ms >= ways * delay_ms
        client.sendall(b"three")
        running.cut(None)
        assert exactly(client, 5) == b"three", "what it held goes on at the heal"

        def is_quick() -> bool:
            begun_ms = clock.monotonic_ms()
            client.sendall(b"four")
            assert exactly(client, 4) == b"four"
            return clock.monotonic_ms() - begun_ms < delay_ms

        wait_until(is_quick, 20, "nothing is held any more")
    assert [json.loads(line)["event"] for line in running.logged] == [
        f"slow ({direction}, 150 ms)",
        "healed",
    ]


def test_a_slow_link_passes_on_the_end_after_what_came_before(running: Running) -> None:
    running.cut(Cut(delay_ms=50))
    sent = bytes(range(256)) * 4_000
    with running.connect() as client:
        sender = threading.Thread(target=client.sendall, args=(sent,))
        sender.start()
        assert exactly(client, len(sent)) == sent
        sender.join()
        client.shutdown(socket.SHUT_WR)
        assert client.recv(1) == b""
    wait_until(
        lambda: running.proxy._proxies[LABEL].connections == 0,
        30,
        "the end was passed on, and forgotten",
    )


def test_a_broker_that_is_down_closes_the_connection(running: Running) -> None:
    running.echo.listener.shutdown(socket.SHUT_RDWR)
    running.echo.listener.close()
    with pytest.raises(ConnectionResetError), running.connect() as client:
        client.recv(1)
    wait_until(lambda: running.proxy._proxies[LABEL].connections == 0, 30, "nothing is kept")


def test_a_restarted_proxy_keeps_the_cut(running: Running, tmp_path: Path) -> None:
    running.cut(Cut(Direction.TO))
    other = Link("delivery/o", free_port(), free_port())
    drill_links.write_applied(running.folder, {})
    running.stop()
    (tmp_path / "drills" / "drill_links.json").write_text(
        json.dumps([{"label": LABEL, "port": other.port, "broker_port": other.broker_port}])
    )
    again = Proxy(running.folder, running.logged.append)
    again.step()
    assert drill_links.applied(running.folder) == {LABEL: Cut(Direction.TO)}
    again.close()
