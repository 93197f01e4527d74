"""Health server of a process, over HTTP: ``/healthz``, ``/readyz``, ``/statusz``, ``/metrics``.
Read-only, and without secrets.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from prometheus_client import CollectorRegistry

    from anabranch.ports import Clock

READY_STATES = frozenset({"running", "waiting", "standby"})
_JSON = "application/json"
_REQUEST_MS_MAX: Final = 5_000
"""Time after which a connection is closed, in ms, if the client has not sent its request and read
the answer by then.
"""
_CONNECTIONS_MAX: Final = 32
"""Maximum number of connections, each of which has a thread. Beyond it the oldest is closed, so
that idle clients do not keep others out.
"""


class HealthServer:
    """HTTP server of one process' health, with a daemon thread.

    ``report`` returns the content of ``/statusz``; its ``state`` decides ``/readyz``, its ``alive``
    (default true) ``/healthz``.
    """

    def __init__(
        self,
        host: str,
        port: int,
        report: Callable[[], Mapping[str, object]],
        registry: CollectorRegistry,
        clock: Clock,
    ) -> None:
        handler = type(
            "_Handler", (_HealthHandler,), {"report": staticmethod(report), "registry": registry}
        )
        self._server = _Server((host, port), handler, clock)
        self._thread = threading.Thread(
            target=self._server.serve_forever,
            kwargs={"poll_interval": 0.1},
            name="health",
            daemon=True,
        )

    @property
    def port(self) -> int:
        """Port in use; chosen by the system if 0 was given."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Start the thread that answers requests."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port. Idempotent."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """HTTP server that bounds the number and the duration of connections."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = _CONNECTIONS_MAX

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clock: Clock
    ) -> None:
        self._clock = clock
        self._begun: dict[socket.socket, int] = {}
        """Start of each open connection, in monotonic ms, oldest first."""
        self._lock = threading.Lock()
        """Lock of ``_begun``. A leaf: nothing is awaited while it is held."""
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Handle a connection in a thread of its own; close the oldest if there are too many."""
        with self._lock:
            oldest = list(self._begun)[: max(0, len(self._begun) + 1 - _CONNECTIONS_MAX)]
            self._begun[request] = self._clock.monotonic_ms()
        self._cut_off(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Close connections that take too long. The serving thread calls this between requests, at
        least every tenth of a second.
        """
        latest = self._clock.monotonic_ms() - _REQUEST_MS_MAX
        with self._lock:
            late = [request for request, begun in self._begun.items() if begun < latest]
        self._cut_off(late)

    def shutdown_request(self, request: Any) -> None:
        """Forget a connection that its thread has finished, and close it."""
        with self._lock:
            self._begun.pop(request, None)
        super().shutdown_request(request)

    def _cut_off(self, requests: list[socket.socket]) -> None:
        """Shut the sockets down, so that the threads that wait for them end at once."""
        for request in requests:
            with self._lock:
                self._begun.pop(request, None)
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client disconnected or sent an invalid request. The connection is
        closed and nothing else changes.
        """


class _HealthHandler(BaseHTTPRequestHandler):
    """Handler of one request."""

    report: Callable[[], Mapping[str, object]]
    registry: CollectorRegistry
    timeout = _REQUEST_MS_MAX / 1_000

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(200, CONTENT_TYPE_LATEST, generate_latest(self.registry))
            return
        report = type(self).report()
        if path == "/healthz":
            self._answer_json(
                200 if report.get("alive", True) else 503, {"alive": report.get("alive", True)}
            )
        elif path == "/readyz":
            self._answer_json(
                200 if report.get("state") in READY_STATES else 503, {"state": report.get("state")}
            )
        elif path == "/statusz":
            self._answer_json(200, report)
        else:
            self._answer_json(
                404, {"error": "not found; there are /healthz /readyz /statusz /metrics"}
            )

    def _answer_json(self, code: int, content: Mapping[str, object]) -> None:
        self._answer(code, _JSON, json.dumps(content, default=str).encode())

    def _answer(self, code: int, content_type: str, body: bytes) -> None:
        self.send_response(code)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002 - the name is the standard library's
        """Log nothing: a supervisor sends several requests a second."""
