"""Process that has imported what light services need and waits for the one that it is to become.

A service that died costs its readers the start of Python and a second of imports, more on busy
cores, before its replacement contacts the broker. This process has that behind it. Its supervisor
writes one line to its standard input (``Role``); then it is that service, with its log, its
arguments and its process id. It holds no connection and no thread before, so it needs nothing but
memory, and dies with its supervisor, whose end closes the input.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

SERVICES: Final = ("delivery", "ingestion")
"""Services that a waiting process can become. Each one's results stop while it is dead; they share
nearly all imports, so one process can wait for both.
"""


@dataclass(frozen=True, slots=True)
class Role:
    """Service that a waiting process is to become."""

    service: str
    arguments: tuple[str, ...]
    """Command line, without the program."""
    environment: dict[str, str]
    """Variables to add. They may hold secrets, so they are never logged."""
    log: str
    """Path of the file that takes its output from then on."""

    def line(self) -> bytes:
        """Return the role as the line that the waiting process reads."""
        return json.dumps(asdict(self)).encode() + b"\n"


def role_in(line: bytes) -> Role | None:
    """Return the role in ``line``; None if the input was closed before a whole line."""
    if not line.endswith(b"\n"):
        return None
    fields = json.loads(line)
    return Role(fields["service"], tuple(fields["arguments"]), fields["environment"], fields["log"])


def become(role: Role) -> None:
    """Run the service of ``role`` in this process. Ends the process, as the service does."""
    with Path(role.log).open("ab") as log, Path(os.devnull).open("rb") as nothing:
        os.dup2(log.fileno(), sys.stdout.fileno())
        os.dup2(log.fileno(), sys.stderr.fileno())
        os.dup2(nothing.fileno(), sys.stdin.fileno())
    os.environ.update(role.environment)
    sys.argv[1:] = role.arguments
    runpy.run_module(f"anabranch.{role.service}", run_name="__main__", alter_sys=True)


def main() -> None:
    """Import what the services need, then wait for a role; without one, end."""
    # Here, since the command line imports this module where Arrow is not installed.
    import pyarrow as pa

    importlib.import_module("anabranch.adapters.connect")
    for service in SERVICES:
        importlib.import_module(f"anabranch.{service}.service")
    pa.array([None])  # Arrow imports pandas with its first array: 0.2 s
    role = role_in(sys.stdin.buffer.readline())
    if role is not None:
        become(role)


if __name__ == "__main__":
    main()
