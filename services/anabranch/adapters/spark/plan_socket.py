"""Transport of plans from the stage's planner to the data source readers, which Spark runs in
processes of their own.

Requests and answers are lines of JSON over a socket in a folder that only this user can access. The
answer is an offset, or null if there is no plan yet. The readers hold no state: they repeat a
request that was lost with a connection.

Before a plan is sent, the watermark of its query is set to its end (``own_watermark``). A reader,
and so its connection, serves one source of one run of one query: this distinguishes the sources of
an input that a function uses twice.
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
"""Function (query, input, position fields, connection) that returns the next offset, or None."""
WatermarkOf = Callable[[str], Callable[[int], None]]
"""Function (query) that returns the function which sets the query's watermark to the end of a
bucket.
"""
_TIMEOUT_S: Final = 30.0
"""Timeout of a reader's request, in seconds."""


class _Handler(socketserver.StreamRequestHandler):
    """Connection of one reader."""

    server: _Server

    def handle(self) -> None:
        """Answer the reader's requests, one a line, until it closes the connection."""
        set_watermark: Callable[[int], None] | None = None
        for line in self.rfile:
            request = json.loads(line)
            query = request["query"]
            try:
                answer = self.server.answer(query, request["input"], request["start"], self)
                # The watermark before the answer: Spark reads it once the last source has answered.
                if answer is not None:
                    set_watermark = set_watermark or self.server.watermark_of(query)
                    set_watermark(answer["bucket"])
            except Exception as error:
                self.server.errors[query] = error
                raise
            self.wfile.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    """Socket server with one thread per reader."""

    daemon_threads = True
    block_on_close = False
    answer: Answer
    watermark_of: WatermarkOf
    errors: dict[str, Exception]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the end of a connection. A reader that went away asks again; a reader whose
        request failed sees a closed connection, and ``errors`` has the cause.
        """


class PlanServer:
    """Server of plans at a socket in a private folder, until closed."""

    def __init__(self, answer: Answer, watermark_of: WatermarkOf, path: str) -> None:
        """Serve ``answer`` at ``path``, where no file exists yet. ``watermark_of``: returns the
        function that sets a query's watermark.
        """
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
        """Error of the last failed request of each query: the readers see only a closed
        connection.
        """
        return self._server.errors

    def close(self) -> None:
        """Stop the server and remove its socket. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        Path(self.path).unlink(missing_ok=True)


class PlanClient:
    """Client of a ``PlanServer``. Its calls raise OSError when the node's process has ended; the
    query then fails with it.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self._socket: socket.socket | None = None

    def ask(self, query: str, name: str, start: dict[str, Any]) -> dict[str, Any] | None:
        """Return the next offset of input ``name`` of ``query`` after ``start``; None if there is
        no plan yet.
        """
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
