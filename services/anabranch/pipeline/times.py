"""Points in time as people write them in options and read them in messages: ISO 8601, in UTC."""

from __future__ import annotations

from datetime import UTC, datetime

from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import EVENT_TIME_MS_MAX


def parse_time_ms(option: str, text: str) -> int:
    """Return the time that ``text`` states, in ms since 1970.

    ``text`` is ISO 8601, in UTC unless it names a zone, or a number of ms. ``option`` is the name
    of the option that it was given to.

    Raises:
        ConfigurationError: ``text`` is no such time, or outside of the years 1970 to 9999.
    """
    try:
        found = int(text) if text.isdecimal() else _milliseconds(datetime.fromisoformat(text))
    except ValueError as error:
        raise ConfigurationError(
            f"{option} {text}: give a time as 2026-05-01T14:00:00Z, or as ms since 1970"
        ) from error
    if not 0 <= found <= EVENT_TIME_MS_MAX:
        raise ConfigurationError(f"{option} {text}: not between 1970 and the year 9999")
    return found


def format_time(moment_ms: int) -> str:
    """Return a time in the form that ``parse_time_ms`` takes, with milliseconds."""
    return (
        datetime.fromtimestamp(moment_ms / 1_000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )


def _milliseconds(moment: datetime) -> int:
    return round(
        (moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)).timestamp() * 1_000
    )
