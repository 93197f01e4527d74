"""A process that cannot be asked is None, whatever the trouble."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

import pytest

from anabranch.local import probe
from anabranch.process.frame import run_file, write_run_file


def test_only_the_port_of_this_very_process_counts(tmp_path: Path) -> None:
    import os

    write_run_file(tmp_path, "ingestion", "reports", 1234)
    assert probe.metrics_port(tmp_path, "ingestion", "reports", os.getpid()) == 1234
    assert probe.metrics_port(tmp_path, "ingestion", "reports", os.getpid() + 1) is None
    assert probe.metrics_port(tmp_path, "ingestion", "other", os.getpid()) is None
    run_file(tmp_path, "ingestion", "reports").write_text("{")
    assert probe.metrics_port(tmp_path, "ingestion", "reports", os.getpid()) is None


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"rubbish\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n[1]",
        b"HTTP/1.1 200 OK\r\n\r\n{",
    ],
)
def test_wrong_answers_are_none(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(1_000)
                connection.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        assert probe.status(server.getsockname()[1]) is None
        thread.join(10)


def test_a_paused_process_costs_no_more_than_the_time_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:  # connects, never answers
        assert probe.get(server.getsockname()[1], "/readyz", 0.05) is None
        assert not probe.ready(server.getsockname()[1])
