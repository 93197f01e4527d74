"""The logs of a deployment as one stream of lines for people: the last ones of each process
in the order of their times, then what comes.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Final

from anabranch.protocol.errors import ConfigurationError

_SERVERS: Final = {
    "kafka/kafka": "kafka/kafka.log",
    "redis/redis": "redis/redis.log",
    "proxy/proxy": "proxy.log",
}
_TAIL_BYTES: Final = 512 * 1024
_PAUSE_S: Final = 0.3


def files_of(state_dir: Path, names: list[str]) -> dict[str, Path]:
    """Label and log file of each process that ``names`` name, as SERVICE/NAME or SERVICE; all where
    it is empty.

    Raises:
        ConfigurationError: one of ``names`` has no log there, or there are no logs at all.
    """
    found = {label: state_dir / path for label, path in _SERVERS.items()}
    found |= {
        path.stem.replace("-", "/", 1): path for path in sorted((state_dir / "logs").glob("*.log"))
    }
    found = {label: path for label, path in found.items() if path.exists()}
    if not found:
        raise ConfigurationError(
            f"there are no logs in {state_dir.absolute()}: name the deployment with -f FILE or"
            " --state-dir DIR"
        )
    for name in names:
        if not any(name in (label, label.partition("/")[0]) for label in found):
            raise ConfigurationError(f"no log of {name}; there are {', '.join(found)}")
    return {
        label: path
        for label, path in found.items()
        if not names or label in names or label.partition("/")[0] in names
    }


def last_lines(files: Mapping[str, Path], count: int) -> list[tuple[str, str]]:
    """(label, line) of the last ``count`` lines of each, in the order of their times; a line
    without one stays behind the line before it.
    """
    timed: list[tuple[str, int, str, str]] = []
    for label, path in files.items():
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read().decode("utf-8", errors="replace").splitlines()
        at = ""
        for line in lines[-count:] if count else []:
            at = _time_of(line) or at
            timed.append((at, len(timed), label, line))
    return [(label, line) for _, _, label, line in sorted(timed)]


def follow(files: Mapping[str, Path], stopping: threading.Event) -> Iterator[tuple[str, str]]:
    """(label, line) as they are written from now on, until ``stopping`` is set. A file that
    is moved aside is read to its end first.
    """
    open_files = {label: _opened(path, at_end=True) for label, path in files.items()}
    rests = dict.fromkeys(files, "")
    try:
        while not stopping.wait(_PAUSE_S):
            for label, path in files.items():
                *lines, rests[label] = (rests[label] + open_files[label].read()).split("\n")
                yield from ((label, line) for line in lines)
                if (
                    path.exists()
                    and path.stat().st_ino != os.fstat(open_files[label].fileno()).st_ino
                ):
                    open_files[label].close()
                    open_files[label] = _opened(path, at_end=False)
    finally:
        for file in open_files.values():
            file.close()


def in_words(line: str) -> str:
    """A JSON line of a service as a person reads it; any other line as it is. No control
    characters, which could command a terminal.
    """
    entry = _entry(line)
    if entry is None:
        text = line
    else:
        at, level, event = (str(entry.pop(key, "")) for key in ("at", "level", "event"))
        for key in ("service", "name"):
            entry.pop(key, None)
        details = " ".join(f"{key}={value}" for key, value in entry.items())
        text = f"{at[11:23]} {level:<7} {event}{f'  {details}' if details else ''}"
    return "".join(
        character if character.isprintable() or character == "\t" else " " for character in text
    )


def _opened(path: Path, *, at_end: bool) -> IO[str]:
    file = path.open(encoding="utf-8", errors="replace")
    if at_end:
        file.seek(0, os.SEEK_END)
    return file


def _entry(line: str) -> dict[str, object] | None:
    if not line.startswith("{"):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None


def _time_of(line: str) -> str:
    entry = _entry(line)
    return "" if entry is None else str(entry.get("at", ""))
