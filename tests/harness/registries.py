"""A schema registry in this process, by Confluent's protocol over HTTP: what a client sees."""

from __future__ import annotations

import base64
import json
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from anabranch.codec.writer_schema import SchemaDocument, WriterSchema

UNKNOWN_ID = 40403
UNKNOWN_VERSION = 40402
INCOMPATIBLE = 409


def alone(text: str) -> WriterSchema:
    """Return a schema that refers to no other."""
    return WriterSchema((SchemaDocument("", text.encode()),))


class RegistryServer:
    """Ids from 1 on, the same for the same schema. Use it as a context manager."""

    def __init__(self) -> None:
        self.schemas: dict[int, dict[str, Any]] = {}
        """id -> what is answered for it."""
        self.subjects: dict[str, list[int]] = {}
        """Ids of the versions of each subject, from version 1 on."""
        self.rejects: set[str] = set()
        """Subjects whose compatibility rule nothing meets."""
        self.status = 200
        """Status of every answer."""
        self.body: bytes | None = None
        """Every answer, instead of the right one."""
        self.has_guids = True
        self.user: str | None = None
        """``name:password`` that is asked for."""
        self.token: str | None = None
        """Bearer token that is asked for."""
        self.awake = threading.Event()
        """No answer until it is set, as it is at first."""
        self.awake.set()
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
        """Address at which it listens."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def add(self, schema: object, subject: str | None = None, **other: object) -> int:
        """Register a schema, JSON or the text of another kind, as a version of ``subject``. Return
        its id.
        """
        text = schema if isinstance(schema, str) else json.dumps(schema)
        wanted = {"schema": text, **other}
        known = next((key for key, answer in self.schemas.items() if answer == wanted), None)
        if known is None:
            known = len(self.schemas) + 1
            self.schemas[known] = wanted
        if subject is not None and known not in self.subjects.setdefault(subject, []):
            self.subjects[subject].append(known)
        return known

    @staticmethod
    def guid(schema_id: int) -> str:
        """Return the GUID of a schema."""
        return str(uuid.UUID(int=schema_id << 64))

    def close(self) -> None:
        """Stop listening. Idempotent."""
        self.awake.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _answer(self, method: str, path: str, body: dict[str, Any]) -> tuple[int, object]:
        if self.status != 200:
            return self.status, {"error_code": self.status, "message": "as the test wants it"}
        parts = path.partition("?")[0].strip("/").split("/")
        if method == "GET" and parts[:2] in (["schemas", "ids"], ["schemas", "guids"]):
            if parts[1] == "guids" and not self.has_guids:
                return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
            known = {
                self.guid(key) if parts[1] == "guids" else str(key): key for key in self.schemas
            }
            if parts[2] not in known:
                return 404, {"error_code": UNKNOWN_ID, "message": "Schema not found"}
            return 200, {"guid": self.guid(known[parts[2]]), **self.schemas[known[parts[2]]]}
        if parts[0] == "subjects" and len(parts) > 1:
            return self._subject(method, parts[1], parts[2:], body)
        return 404, {"error_code": 404, "message": f"no {method} {path}"}

    def _subject(
        self, method: str, subject: str, rest: list[str], body: dict[str, Any]
    ) -> tuple[int, object]:
        if method == "GET" and rest[:1] == ["versions"]:
            versions = self.subjects.get(subject, [])
            if not 1 <= int(rest[1]) <= len(versions):
                return 404, {"error_code": UNKNOWN_VERSION, "message": "Version not found"}
            return 200, self._version(subject, versions[int(rest[1]) - 1])
        if subject in self.rejects:
            return INCOMPATIBLE, {"error_code": INCOMPATIBLE, "message": "Incompatible schema"}
        kept = {key: body[key] for key in ("schemaType", "references") if body.get(key)}
        kept = {key: value for key, value in kept.items() if value != "AVRO"}
        is_json = kept.get("schemaType") != "PROTOBUF"
        text = json.dumps(json.loads(body["schema"])) if is_json else body["schema"]
        return 200, self._version(subject, self.add(text, subject, **kept))

    def _version(self, subject: str, known: int) -> dict[str, Any]:
        return {
            "subject": subject,
            "version": self.subjects[subject].index(known) + 1,
            "id": known,
            "guid": self.guid(known),
            **self.schemas[known],
        }

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
                server.awake.wait()
                status, answer = server._answer(method, self.path, body)
                wanted = server.user and f"Basic {base64.b64encode(server.user.encode()).decode()}"
                wanted = wanted or (server.token and f"Bearer {server.token}")
                if wanted and self.headers.get("Authorization") != wanted:
                    status, answer = 401, {"error_code": 401, "message": "Unauthorized"}
                data = json.dumps(answer).encode() if server.body is None else server.body
                self.send_response(status)
                self.send_header("Content-Type", "application/vnd.schemaregistry.v1+json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: object) -> None:
                """Nothing."""

        return Handler
