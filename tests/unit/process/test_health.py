"""The health server answers, and survives clients that do not behave."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import probe
from anabranch.process import health
from anabranch.process.health import HealthServer
from harness.waiting import wait_until


@pytest.fixture
def report() -> dict[str, object]:
    return {"state": "starting", "alive": True}


@pytest.fixture
def server(report: dict[str, object]) -> Iterator[HealthServer]:
    registry = CollectorRegistry()
    Counter("fish", "Fish", registry=registry).inc(2)
    server = HealthServer("127.0.0.1", 0, lambda: report, registry, SystemClock())
    server.start()
    yield server
    server.stop()


def _code(server: HealthServer, path: str) -> int:
    answer = probe.get(server.port, path, 20)
    assert answer is not None
    return answer[0]


@pytest.mark.parametrize(
    ("state", "code"),
    [("starting", 503), ("running", 200), ("waiting", 200), ("failed", 503), ("stopping", 503)],
)
def test_ready_only_when_running_or_waiting(
    server: HealthServer, report: dict[str, object], state: str, code: int
) -> None:
    report["state"] = state
    assert _code(server, "/readyz") == code
    assert _code(server, "/healthz") == 200


def test_not_healthy_when_the_loop_is_stuck(
    server: HealthServer, report: dict[str, object]
) -> None:
    report["alive"] = False
    assert _code(server, "/healthz") == 503


def test_status_and_metrics_and_nothing_else(
    server: HealthServer, report: dict[str, object]
) -> None:
    report["waiting_for"] = "reports partition 1"
    answer = probe.get(server.port, "/statusz", 20)
    assert answer is not None
    assert json.loads(answer[1]) == report
    metrics = probe.get(server.port, "/metrics", 20)
    assert metrics is not None
    assert b"fish_total 2.0" in metrics[1]
    assert _code(server, "/etc/passwd") == 404


def test_rubbish_and_half_requests_do_no_harm(server: HealthServer) -> None:
    for rubbish in (
        b"",
        b"\x00\xff" * 100,
        b"GET / HTTP/1.1\r\nX: " + b"y" * 200_000,
        b"POST /statusz HTTP/1.1\r\n\r\n",
    ):
        with (
            socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection,
            contextlib.suppress(ConnectionError),  # it may be cut off before it has sent all
        ):
            connection.sendall(rubbish)
    assert _code(server, "/healthz") == 200


def test_clients_that_hold_on_have_a_deadline_and_few_threads(
    server: HealthServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each sends a byte now and then, for ever; others are answered all the while, and all of
    them are cut off.
    """
    monkeypatch.setattr(health, "_REQUEST_MS_MAX", 600_000)
    monkeypatch.setattr(health._HealthHandler, "timeout", 600)  # of one that says nothing

    def answering() -> int:
        """Threads of connections, those of other tests' servers too: they end as soon."""
        return sum("process_request" in thread.name for thread in threading.enumerate())

    slow = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(100)]
    try:

        def dribbled() -> bool:
            for connection in slow:
                with contextlib.suppress(OSError):
                    connection.sendall(b"G")
            return answering() == 0

        assert _code(server, "/healthz") == 200
        assert not dribbled(), "some of them are still heard"
        wait_until(
            lambda: answering() <= health._CONNECTIONS_MAX,
            60,
            "more threads than connections are allowed",
        )
        monkeypatch.setattr(health, "_REQUEST_MS_MAX", 1_000)
        wait_until(dribbled, 60, "they still have threads", every_s=0.1)
    finally:
        for connection in slow:
            connection.close()
    monkeypatch.setattr(health, "_REQUEST_MS_MAX", 600_000)
    assert _code(server, "/healthz") == 200


def test_stop_is_idempotent_and_closes_the_port(server: HealthServer) -> None:
    port = server.port
    server.stop()
    server.stop()
    assert probe.get(port, "/healthz", 1.0) is None
