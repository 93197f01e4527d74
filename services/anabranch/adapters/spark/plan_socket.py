"""Carries plans from the stage's planner to the data source readers, which Spark runs in processes
of their own.

Requests and answers are lines of JSON over a socket in a folder that only this user may look into;
the answer is an offset, or null for "nothing yet". The readers hold no state: they repeat whatever
request was lost with a connection.

Before a plan goes out the watermark of its query is set to the end of it (``own_watermark``). A
reader serves one source of one run of one query, and so does its connection: this tells the sources
of an input apart that a function uses twice.
"""

from __future__ import annotations

import json
import socket
import socketserver
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

Answer = Callable[[str, str, dict[str, Any], object], dict[str, Any] | None]
"""(query, input, position fields, connection) -> the next offset."""
WatermarkOf = Callable[[str], Callable[[int], None]]
_TIMEOUT_S: Final = 30.0


class _Handler(socketserver.StreamRequestHandler):
    server: _Server

    def handle(self) -> None:
        set_watermark: Callable[[int], None] | None = None
        for line in self.rfile:
            request = json.loads(line)
            query = request["query"]
            try:
                answer = self.server.answer(query, request["input"], request["start"], self)
                if answer is not None:
                    set_watermark = set_watermark or self.server.watermark_of(query)
                    set_watermark(answer["bucket"])
            except Exception as error:
                self.server.errors[query] = error
                raise
            self.wfile.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True
    block_on_close = False
    answer: Answer
    watermark_of: WatermarkOf
    errors: dict[str, Exception]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A reader that went away in the middle of an answer asks again; one whose question
        cannot be answered sees a closed connection.
        """


class PlanServer:
    """Serves ``answer`` at a socket until closed. ``path``: in a private folder; nothing is there
    yet.

    ``watermark_of(query)``: sets the watermark of the query to the end of a bucket.
    """

    def __init__(self, answer: Answer, watermark_of: WatermarkOf, path: str) -> None:
        self.path = path
        self._server = _Server(path, _Handler)
        self._server.answer = answer
        self._server.watermark_of = watermark_of
        self._server.errors = {}
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.2},
            name="plans",
            daemon=True,
        )
        self._thread.start()

    @property
    def errors(self) -> dict[str, Exception]:
        """By query what its last question that could not be answered ended with: the readers
        see no more than a closed connection.
        """
        return self._server.errors

    def close(self) -> None:
        """Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        Path(self.path).unlink(missing_ok=True)


class PlanClient:
    """Asks a ``PlanServer``. Raises OSError when the node's process is gone: the query fails
    with it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def ask(self, query: str, name: str, start: dict[str, Any]) -> dict[str, Any] | None:
        """The next offset of input ``name`` of ``query`` after ``start``; None: nothing yet."""
        if self._socket is None:
            self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            self._socket.settimeout(_TIMEOUT_S)
            self._socket.connect(self._path)
            self._lines = self._socket.makefile("rb")
        self._socket.sendall(
            json.dumps({"query": query, "input": name, "start": start}).encode() + b"\n"
        )
        line = self._lines.readline()
        if not line:
            message = "the planner closed the connection"
            raise ConnectionError(message)
        answer: dict[str, Any] | None = json.loads(line)
        return answer
