"""Set-up of structured logs: one JSON object per line on stderr, libraries' lines included."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING, Final, TextIO

import structlog

from anabranch.protocol.errors import headline

if TYPE_CHECKING:
    from structlog.typing import FilteringBoundLogger, Processor

_LIBRARY_LEVEL = logging.WARNING
"""Level from which libraries' lines are written: py4j and Kafka clients log much below it."""
_OURS = "anabranch.boundaries"
"""Name of this project's logger for code that knows no service. It is a standard library logger,
but writes from the process' level.
"""

_LINES_PER_WINDOW: Final = 20
_WINDOW_SECONDS: Final = 10.0
"""Length of the window in which a library's lines are limited, in s. While a broker is down its
client logs every attempt on every connection, hundreds a second, and must not fill the disk.
"""
_STATUS_TEXT_MAX: Final = 2_000
"""Maximum length of an error in the status, in characters."""
_OF_TRACEBACKS: Final = ("at ", "File ", "...", "Traceback ")
"""Prefixes of lines of a traceback that name places, not errors."""


class _Throttle(logging.Filter):
    """Filter that passes a limited number of lines of each library logger per window. The next
    window's first line says how many were dropped.
    """

    def __init__(self) -> None:
        super().__init__()
        self._windows: dict[str, tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether to write ``record``. May be called without the handler's lock: a lost
        count does no harm.
        """
        begun, lines = self._windows.get(record.name, (record.created, 0))
        if not 0 <= record.created - begun < _WINDOW_SECONDS:
            left_out = lines - _LINES_PER_WINDOW
            if left_out > 0:
                record.msg, record.args = (
                    f"{record.getMessage()} ({left_out} lines before this were left out)",
                    None,
                )
            begun, lines = record.created, 0
        self._windows[record.name] = (begun, lines + 1)
        return lines < _LINES_PER_WINDOW


def configure(
    service: str, name: str, level: str = "info", stream: TextIO | None = None
) -> FilteringBoundLogger:
    """Set up this process' logging and return a logger with ``service`` and ``name`` bound. Tests
    may call it repeatedly.
    """
    target = stream if stream is not None else sys.stderr
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="at"),
        structlog.processors.StackInfoRenderer(),
        structlog.processors.format_exc_info,
    ]
    number = logging.getLevelNamesMapping()[level.upper()]
    structlog.configure(
        processors=[*shared, structlog.processors.JSONRenderer(default=str)],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(target),
        cache_logger_on_first_use=False,
    )
    formatter = structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[*shared, structlog.stdlib.add_logger_name],
        processors=[
            structlog.stdlib.ProcessorFormatter.remove_processors_meta,
            structlog.processors.JSONRenderer(default=str),
        ],
    )
    handler = logging.StreamHandler(target)
    handler.setFormatter(formatter)
    handler.addFilter(_Throttle())
    logging.basicConfig(level=max(number, _LIBRARY_LEVEL), handlers=[handler], force=True)
    logging.getLogger(_OURS).setLevel(number)
    logger: FilteringBoundLogger = structlog.get_logger().bind(service=service, name=name)
    return logger


def short(text: str) -> str:
    """Return the last three lines of ``text`` that name errors, or its headline: the gist of a
    message of Spark with a traceback.
    """
    lines = [
        line.strip()
        for line in text.splitlines()
        if line.strip() and not line.strip().startswith(_OF_TRACEBACKS)
    ]
    reported = [
        # The text after an error's name may begin in the next line.
        headline("\n".join(lines[place:]))
        for place, line in enumerate(lines)
        if "Error" in line or "Exception" in line
    ]
    shown: list[str] = []
    for found in reported[-3:] or [headline(text)]:
        # An error whose text begins in the next line has that line in its own headline.
        if not any(earlier.endswith(found) for earlier in shown):
            shown.append(found)
    return " | ".join(shown)[:_STATUS_TEXT_MAX]
