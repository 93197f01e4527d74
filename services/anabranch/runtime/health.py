"""Health over HTTP, for supervisors and people: ``/healthz``, ``/readyz``, ``/statusz``,
``/metrics``. Read-only, no secrets.
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
"""A client that has not sent its request and taken the answer after this, at whatever pace,
is cut off.
"""
_CONNECTIONS_MAX: Final = 32
"""Connections at once, each of which has a thread: beyond it the oldest is cut off, so that
clients that only hold on keep nobody out.
"""


class HealthServer:
    """Serves the health of one process from a daemon thread.

    ``report`` answers what ``/statusz`` shows; its ``state`` decides ``/readyz``, its ``alive``
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
        """The port in use; chosen by the system where 0 was given."""
        return int(self._server.server_address[1])

    def start(self) -> None:
        """Begin to answer."""
        self._thread.start()

    def stop(self) -> None:
        """Close the port. Idempotent."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = _CONNECTIONS_MAX

    def __init__(
        self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler], clock: Clock
    ) -> None:
        self._clock = clock
        self._begun: dict[socket.socket, int] = {}
        """When each open connection began, in monotonic ms, the oldest first."""
        self._lock = threading.Lock()
        """Of ``_begun``: a leaf, nothing is waited for under it."""
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own."""
        with self._lock:
            oldest = list(self._begun)[: max(0, len(self._begun) + 1 - _CONNECTIONS_MAX)]
            self._begun[request] = self._clock.monotonic_ms()
        self._cut_off(oldest)
        super().process_request(request, client_address)

    def service_actions(self) -> None:
        """Called by the serving thread between two requests, every tenth of a second at least."""
        latest = self._clock.monotonic_ms() - _REQUEST_MS_MAX
        with self._lock:
            late = [request for request, begun in self._begun.items() if begun < latest]
        self._cut_off(late)

    def shutdown_request(self, request: Any) -> None:
        """The end of a connection, by its thread."""
        with self._lock:
            self._begun.pop(request, None)
        super().shutdown_request(request)

    def _cut_off(self, requests: list[socket.socket]) -> None:
        """Let their threads end: what they wait for ends at once."""
        for request in requests:
            with self._lock:
                self._begun.pop(request, None)
            with contextlib.suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that went away or sent rubbish is no event of ours: the connection is
        closed, nothing else changes.
        """


class _HealthHandler(BaseHTTPRequestHandler):
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
        """Requests are not logged: a supervisor asks several times a second."""
