"""``anabranch logs``: the log files of a local deployment, merged into one stream of lines.

The last lines of each process come first, in the order of their times, then new lines as they are
written.
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
"""Log files of processes other than services, in the state directory, by SERVICE/NAME."""
_TAIL_BYTES: Final = 512 * 1024
"""Size of the end of a file, in bytes, in which its last lines are searched."""
# Interval between checks for new lines.
_PAUSE_S: Final = 0.3


def files_of(state_dir: Path, names: list[str]) -> dict[str, Path]:
    """Return the log file of each process in ``names``, by its label SERVICE/NAME.

    A name is SERVICE/NAME, or SERVICE for all of its processes. No names: all processes.

    Raises:
        ConfigurationError: one of ``names`` has no log in ``state_dir``, or there are no logs.
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
    """Return (label, line) for the last ``count`` lines of each file, in the order of their times.

    A line without a time, as of a traceback, stays behind the line before it.
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
    """Yield (label, line) for lines that are written from now on, until ``stopping`` is set."""
    open_files = {label: _opened(path, at_end=True) for label, path in files.items()}
    rests = dict.fromkeys(files, "")
    try:
        while not stopping.wait(_PAUSE_S):
            for label, path in files.items():
                *lines, rests[label] = (rests[label] + open_files[label].read()).split("\n")
                yield from ((label, line) for line in lines)
                # Rotation moves the file aside. Its rest has just been read; the new file is read
                # from its beginning.
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
    """Return a JSON line of a service as readable text, and any other line as it is.

    Control characters become spaces: a line may hold a user's data, which could command the
    terminal.
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
    """Return the fields of a service's JSON line; None: it is another line."""
    if not line.startswith("{"):
        return None
    try:
        entry = json.loads(line)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) and "event" in entry else None


def _time_of(line: str) -> str:
    """Return the time that a JSON line states, which sorts as text; empty: it states none."""
    entry = _entry(line)
    return "" if entry is None else str(entry.get("at", ""))
