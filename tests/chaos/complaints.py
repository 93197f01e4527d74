"""The errors in the logs of a run."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Final, NamedTuple


class Complaint(NamedTuple):
    """An error in a log."""

    file: str
    text: str
    at_ms: int | None = None
    """Time in the line, or in the line before it; None if there is none."""


def complaints(file: str, lines: Iterable[str]) -> list[Complaint]:
    """Return the errors in a log: JSON lines of level error or critical, other lines that name an
    error, and tracebacks.
    """
    found = []
    at_ms: int | None = None
    for text in _with_whole_tracebacks(lines):
        entry = _json_line(text)
        at_ms = _time_ms(text, entry) or at_ms
        if entry is not None:
            if entry.get("level") in {"error", "critical"} or "exception" in entry:
                found.append(Complaint(file, text, at_ms))
        elif _ERROR_TEXT.search(text):
            found.append(Complaint(file, text, at_ms))
    return found


_BROKERS_TIME: Final = re.compile(r"^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d),(\d{3}) ")


def _time_ms(text: str, entry: Mapping[str, object] | None) -> int | None:
    """Services write their time in UTC, the broker that of the machine."""
    if entry is not None:
        try:
            return int(datetime.fromisoformat(str(entry.get("at"))).timestamp() * 1_000)
        except ValueError:
            return None
    found = _BROKERS_TIME.match(text)
    return (
        None
        if found is None
        else int(datetime.fromisoformat(found[1]).timestamp() * 1_000) + int(found[2])
    )


_TRACEBACK: Final = "Traceback (most recent call last)"
_BETWEEN: Final = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)


def _with_whole_tracebacks(lines: Iterable[str]) -> Iterator[str]:
    """Yield the lines of a log, each traceback as one text up to the line that names the exception,
    with those that it led to.
    """
    traceback: list[str] = []
    is_open = is_chained = False
    for line in lines:
        text = line.rstrip()
        if is_open and not text.startswith("{"):  # else its process was killed while it wrote
            traceback.append(text)
            is_open = text.startswith(" ")
            continue
        if traceback and not is_open and (not text or text in _BETWEEN):
            is_chained = is_chained or bool(text)
            continue
        if traceback and not (is_chained and text.startswith(_TRACEBACK)):
            yield "\n".join(traceback)
            traceback = []
        is_open, is_chained = text.startswith(_TRACEBACK), False
        if is_open:
            traceback.append(text)
        else:
            yield text.strip()
    if traceback:
        yield "\n".join(traceback)


_ERROR_TEXT: Final = re.compile(
    r"\b(?:ERROR|FATAL|CRITICAL)\b|^Traceback \(most recent call last\)|\bpanic\b|Segmentation"
    r" fault|^Fatal Python error|^Timeout \(\d+:\d\d:\d\d"
)
"""The last two are written where a library breaks down, and by the watch over a service's
loop before it ends the process.
"""


def _json_line(text: str) -> Mapping[str, object] | None:
    if not text.startswith("{"):
        return None
    try:
        entry = json.loads(text)
    except ValueError:
        return None
    return entry if isinstance(entry, dict) else None
