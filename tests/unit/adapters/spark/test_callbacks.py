"""``adapters.spark.callbacks``: a connection is taken from the one process only, whoever else
of the same user tries.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from anabranch.adapters.spark import callbacks
from anabranch.adapters.spark.callbacks import OnlyFrom, guard

CALLS = (
    "import socket, sys; c = socket.create_connection(('127.0.0.1', int(sys.argv[1])));"
    " c.sendall(b'call\\n'); print(c.recv(9), flush=True)"
)
DUAL = """
import socket, sys
c = socket.socket(socket.AF_INET6)
c.connect(('::ffff:127.0.0.1', int(sys.argv[1])))
c.sendall(b'call\\n'); print(c.recv(9), flush=True)
"""


def answered(pid_of: str, program: str = CALLS) -> bytes:
    """Return what the server reads of a call by another process. ``pid_of``: the process whose
    calls it accepts.
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        command = [sys.executable, "-c", program, str(server.getsockname()[1])]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as caller:
            connection, _ = server.accept()
            assert connection.recv(9, socket.MSG_PEEK) == b"call\n", "it has come"
            only = OnlyFrom(
                {"caller": caller.pid, "another": os.getpid(), "gone": 2**22 + 1}[pid_of]
            )
            with (
                only.wrap_socket(connection, server_side=True) as taken,
                taken.makefile("rb") as stream,
            ):
                return stream.readline()


@pytest.mark.parametrize("program", [CALLS, DUAL])
def test_a_call_of_the_process_is_taken(program: str) -> None:
    """Java has one kind of socket for both versions of IP."""
    assert answered("caller", program) == b"call\n"


@pytest.mark.parametrize("pid_of", ["another", "gone"])
def test_a_call_of_another_process_is_not_read(pid_of: str) -> None:
    assert answered(pid_of) == b""


def test_the_server_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    gateway = SimpleNamespace(
        proc=SimpleNamespace(pid=1), callback_server_parameters=SimpleNamespace(ssl_context=None)
    )
    guard(gateway)
    assert isinstance(gateway.callback_server_parameters.ssl_context, OnlyFrom)
    monkeypatch.setattr(callbacks, "_PROC", Path("/nothing"))
    gateway.callback_server_parameters.ssl_context = None
    guard(gateway)
    assert gateway.callback_server_parameters.ssl_context is None
