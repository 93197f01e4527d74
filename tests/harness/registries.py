"""A schema registry in this process, by Confluent's protocol over HTTP: what a client sees."""

from __future__ import annotations

import base64
import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

UNKNOWN_ID = 40403
INCOMPATIBLE = 409


class RegistryServer:
    """Ids from 1 on, the same for the same schema. Use it as a context manager."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        """id -> what is answered for it."""
        self.subjects: dict[str, list[int]] = {}
        self.rejects: set[str] = set()
        """Subjects whose compatibility rule nothing meets."""
        self.status = 200
        """Of every answer, unless 200."""
        self.user: str | None = None
        """``name:password`` that is asked for."""
        self.requests: list[str] = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, schema: object, **other: object) -> int:
        """The id of a schema."""
        wanted = {"schema": json.dumps(schema), **other}
        for known, answer in self.schemas.items():
            if answer == wanted:
                return known
        self.schemas[len(self.schemas) + 1] = wanted
        return len(self.schemas)

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, object]:
        if self.status != 200:
            return self.status, {"error_code": self.status, "message": "as the test wants it"}
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "GET" and parts[:2] == ["schemas", "ids"]:
            found = self.schemas.get(int(parts[2]))
            if found is None:
                return 404, {"error_code": UNKNOWN_ID, "message": "Schema not found"}
            return 200, found
        if method == "POST" and parts[0] == "subjects" and parts[-1] == "versions":
            if parts[1] in self.rejects:
                return INCOMPATIBLE, {"error_code": INCOMPATIBLE, "message": "Incompatible schema"}
            ident = self.add(json.loads(body["schema"]))
            versions = self.subjects.setdefault(parts[1], [])
            if ident not in versions:
                versions.append(ident)
            return 200, {"id": ident}
        return 404, {"error_code": 404, "message": f"no {method} {path}"}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self._serve("GET")

            def do_POST(self) -> None:
                self._serve("POST")

            def _serve(self, method: str) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else {}
                server.requests.append(f"{method} {self.path}")
                status, answer = server._answer(method, self.path, body)
                wanted = server.user and f"Basic {base64.b64encode(server.user.encode()).decode()}"
                if wanted and self.headers.get("Authorization") != wanted:
                    status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler
