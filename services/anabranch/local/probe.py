"""Requests to a process' health port. A missing answer is None, never an error: the process may be
paused, dead, or starting.
"""

from __future__ import annotations

import http.client
import json
from typing import TYPE_CHECKING, Any, Final

from anabranch.process.frame import run_file

if TYPE_CHECKING:
    from pathlib import Path

TIMEOUT_S: Final = 0.5
_ANSWER_BYTES_MAX: Final = 1024 * 1024


def metrics_port(state_dir: Path, service: str, name: str, pid: int) -> int | None:
    """Return the health port of process ``pid``; None if it has not reported it yet."""
    try:
        content = json.loads(run_file(state_dir, service, name).read_text(encoding="utf-8"))
        return int(content["metrics_port"]) if content["pid"] == pid else None
    except (OSError, ValueError, KeyError, TypeError):
        return None


def get(
    port: int, path: str, timeout_s: float = TIMEOUT_S, *, host: str = "127.0.0.1"
) -> tuple[int, bytes] | None:
    """Return status code and body of ``http://<host>:<port><path>``; None without an answer."""
    connection = http.client.HTTPConnection(host, port, timeout=timeout_s)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read(_ANSWER_BYTES_MAX)
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()


def ready(port: int) -> bool:
    """Return whether the process at ``port`` reports that it is ready."""
    answer = get(port, "/readyz")
    return answer is not None and answer[0] == 200


def status(port: int) -> dict[str, Any] | None:
    """Return the status that the process at ``port`` reports; None without a valid answer."""
    answer = get(port, "/statusz")
    if answer is None or answer[0] != 200:
        return None
    try:
        content = json.loads(answer[1])
    except ValueError:
        return None
    return content if isinstance(content, dict) else None
