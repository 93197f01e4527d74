"""Conversion of times, dates, decimals and UUIDs between their JSON texts and plain values.

A timestamp is microseconds since 1970 in UTC, a date days since 1970, a decimal its unscaled
integer. All conversions are exact: what a type cannot hold is rejected, never rounded.
"""

from __future__ import annotations

import base64
import re
import struct
import zoneinfo
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from typing import Final

from anabranch.protocol.errors import RejectionReason

TIMESTAMPS: Final = ("timestamp-millis", "timestamp-micros")
LOCAL_TIMESTAMPS: Final = ("local-timestamp-millis", "local-timestamp-micros")
"""Logical types of times without a zone, as a wall clock at an unknown place shows them."""
INSTANTS: Final = (*TIMESTAMPS, *LOCAL_TIMESTAMPS)
"""Logical types whose column holds microseconds."""
MICROS_MIN: Final = -62_135_596_800_000_000
"""First microsecond of the year 1, with which the timestamps of Spark and Python begin."""
MICROS_MAX: Final = 253_402_300_799_999_999
"""Last microsecond of the year 9999, with which they end."""
DAYS_MIN: Final = -719_162
DAYS_MAX: Final = 2_932_896
PRECISION_MAX: Final = 38
"""Maximum number of digits of a decimal in Spark and in Arrow."""

UUID_PATTERN: Final = r"^[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}$"
"""Pattern of a UUID in the syntax of RE2 and of Python; for Python to be used with ``fullmatch``.
"""
_UUID: Final = re.compile(UUID_PATTERN.strip("^$"))
_LOCAL_TIME: Final = (
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[Tt ]([0-9]{2}:[0-9]{2})(?:(:[0-9]{2})(?:[.,]([0-9]{1,9}))?)?"
)
_ZONE: Final = r"([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)"
_TIMESTAMPS: Final = {
    kind: (
        re.compile(_LOCAL_TIME + ("()" if kind in LOCAL_TIMESTAMPS else _ZONE)),
        3 if kind.endswith("millis") else 6,
    )
    for kind in INSTANTS
}
"""Format of a time, and its number of digits after the point, by logical type."""
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")
_DECIMAL: Final = re.compile(r"(-?)([0-9]{1,100})(?:\.([0-9]{1,100}))?(?:[eE]([+-]?[0-9]{1,3}))?")
_SYMBOLS_SHOWN: Final = 10
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_EPOCH_DAYS: Final = date(1970, 1, 1).toordinal()
_MICROSECOND: Final = timedelta(microseconds=1)


class UnfitError(ValueError):
    """Raised when a text is not a value of its type. Stays inside the codec."""

    def __init__(self, reason: RejectionReason, text: str) -> None:
        super().__init__(text)
        self.reason = reason


def zone_of(name: str) -> tzinfo:
    """Return the time zone with a name such as ``Europe/Berlin``, ``UTC`` or ``+02:00``.

    Raises:
        ValueError: no time zone has this name.
    """
    if name[:1] in ("+", "-"):
        offset = datetime.strptime(name, "%z").utcoffset()
        return timezone(offset or timedelta())
    try:
        return UTC if name == "UTC" else zoneinfo.ZoneInfo(name)
    except (zoneinfo.ZoneInfoNotFoundError, OSError):
        raise ValueError(name) from None


def timestamp_of(text: object, kind: str) -> int:
    """Return the microseconds of an ISO 8601 time, which has a zone unless ``kind`` is local.

    Raises:
        UnfitError: the text is no such time, or finer than ``kind``.
    """
    form, places = _TIMESTAMPS[kind]
    match = form.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        is_local = kind in LOCAL_TIMESTAMPS
        raise UnfitError(
            RejectionReason.WRONG_TYPE,
            "expected a time without a zone such as 2026-05-01T14:00:00.250"
            if is_local
            else "expected a time such as 2026-05-01T14:00:00.250Z",
        )
    day, minute, second, fraction, zone = match.groups()
    digits = (fraction or "").ljust(9, "0")
    if digits[places:].strip("0"):
        raise UnfitError(
            RejectionReason.OUT_OF_RANGE, f"expected a time that is no finer than {kind}"
        )
    try:
        found = datetime.fromisoformat(
            f"{day}T{minute}{second or ':00'}{(zone or 'Z').upper().replace('Z', '+00:00')}"
        )
    except ValueError as error:
        raise UnfitError(
            RejectionReason.OUT_OF_RANGE, f"expected a time that exists: {error}"
        ) from None
    micros = (found - _EPOCH) // _MICROSECOND + int(digits[:6])
    return check_micros(micros)


def check_micros(micros: int) -> int:
    """Check a time in microseconds since 1970, and return it.

    Raises:
        UnfitError: the time is outside of the years 1 to 9999.
    """
    if not MICROS_MIN <= micros <= MICROS_MAX:
        raise UnfitError(RejectionReason.OUT_OF_RANGE, "a time outside of the years 1 to 9999")
    return micros


def text_of_timestamp(micros: int) -> str:
    """Return the text of a timestamp that ``timestamp_of`` reads, with as few digits as it can."""
    found = _EPOCH + timedelta(microseconds=micros)
    return (
        found.isoformat(timespec="milliseconds" if micros % 1_000 == 0 else "microseconds")[:-6]
        + "Z"
    )


def date_of(text: object) -> int:
    """Return the days since 1970 of a date written as YYYY-MM-DD.

    Raises:
        UnfitError: the text is no such date.
    """
    if not isinstance(text, str) or _DATE.fullmatch(text) is None:
        raise UnfitError(RejectionReason.WRONG_TYPE, "expected a date such as 2026-05-01")
    try:
        return date.fromisoformat(text).toordinal() - _EPOCH_DAYS
    except ValueError as error:
        raise UnfitError(
            RejectionReason.OUT_OF_RANGE, f"expected a date that exists: {error}"
        ) from None


def check_days(days: int) -> int:
    """Check a date in days since 1970, and return it.

    Raises:
        UnfitError: the date is outside of the years 1 to 9999.
    """
    if not DAYS_MIN <= days <= DAYS_MAX:
        raise UnfitError(RejectionReason.OUT_OF_RANGE, "a date outside of the years 1 to 9999")
    return days


def decimal_of(text: object, precision: int, scale: int) -> int:
    """Return the unscaled integer of a decimal number written as text.

    Raises:
        UnfitError: the text is no decimal number, or has more digits than the type on either side
            of the point.
    """
    match = _DECIMAL.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise UnfitError(RejectionReason.WRONG_TYPE, 'expected a number in a text such as "-12.50"')
    sign, whole, fraction, exponent = match.groups()
    unscaled = int(whole + (fraction or ""))
    shift = int(exponent or 0) - len(fraction or "") + scale
    if shift >= 0:
        unscaled *= 10**shift
    else:
        unscaled, rest = divmod(unscaled, 10**-shift)
        if rest:
            raise UnfitError(
                RejectionReason.OUT_OF_RANGE,
                f"expected a decimal of at most {scale} digits after the point",
            )
    return check_unscaled(-unscaled if sign else unscaled, precision, scale)


def check_unscaled(unscaled: int, precision: int, scale: int) -> int:
    """Check the unscaled value of a decimal, and return it.

    Raises:
        UnfitError: the value has more digits than the type.
    """
    if abs(unscaled) >= 10**precision:
        raise UnfitError(
            RejectionReason.OUT_OF_RANGE,
            f"expected a decimal of at most {precision - scale} digits before the point",
        )
    return unscaled


def unscaled_of(data: bytes, precision: int, scale: int) -> int:
    """Decode the unscaled integer of a decimal from Avro's bytes.

    Raises:
        UnfitError: the integer has more digits than the type.
    """
    return check_unscaled(int.from_bytes(data, "big", signed=True), precision, scale)


def bytes_of_unscaled(unscaled: int, size: int = 0) -> bytes:
    """Encode an unscaled integer as ``unscaled_of`` reads it: in as few bytes as possible, or in
    ``size`` bytes.
    """
    shortest = (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(size or shortest, "big", signed=True)


def duration_of(data: bytes) -> tuple[int, ...]:
    """Decode the months, days and milliseconds of Avro's twelve bytes of a duration."""
    return struct.unpack("<3I", data)


def uuid_of(text: object) -> str:
    """Check a UUID in text form, and return it as it is.

    Raises:
        UnfitError: the text is no UUID.
    """
    if not isinstance(text, str) or _UUID.fullmatch(text) is None:
        raise UnfitError(
            RejectionReason.WRONG_TYPE,
            "expected a UUID such as 123e4567-e89b-12d3-a456-426614174000",
        )
    return text


def fixed_of(text: object, size: int) -> bytes:
    """Decode the ``size`` bytes of a text in base64.

    Raises:
        UnfitError: the text is no base64, or has another number of bytes.
    """
    expected = f"expected {size} bytes in base64"
    if not isinstance(text, str):
        raise UnfitError(RejectionReason.WRONG_TYPE, expected)
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError:
        raise UnfitError(RejectionReason.WRONG_TYPE, expected) from None
    if len(data) != size:
        raise UnfitError(RejectionReason.OUT_OF_RANGE, f"{expected}, not {len(data)}")
    return data


def symbol_of(text: object, symbols: tuple[str, ...], default: str) -> str:
    """Return the enum symbol for ``text``; ``default`` replaces a text that is none of ``symbols``.

    Raises:
        UnfitError: ``text`` is no symbol, and there is no default.
    """
    if isinstance(text, str) and (text in symbols or default):
        return text if text in symbols else default
    shown = ", ".join(symbols[:_SYMBOLS_SHOWN])
    raise UnfitError(RejectionReason.WRONG_TYPE, f"expected one of {len(symbols)} symbols: {shown}")
