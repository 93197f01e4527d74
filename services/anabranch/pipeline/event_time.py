"""Reader of the key ``event_time`` of a source: the rule by which its records have a time."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from anabranch.codec.logical_types import LOCAL_TIMESTAMPS, TIMESTAMPS, zone_of
from anabranch.pipeline.document import MISSING, Document, Place, shown, words
from anabranch.pipeline.model import EventTime

if TYPE_CHECKING:
    from anabranch.codec.field_types import Field
    from anabranch.codec.record_schema import RecordSchema

_UNITS: Final = ("ms", "s", "us", "ns")
_NUMBERS: Final = ("int", "long", "float", "double")
_TIMES_OF_DAY: Final = ("time-millis", "time-micros")


def read_event_time(
    document: Document, value: object, at: Place, rows: RecordSchema | None
) -> EventTime | None:
    """Return the rule that ``value`` describes; None after a mistake.

    ``rows``: columns of the source; None: they have mistakes.
    """
    if value is MISSING:
        document.mistake(
            at[:-1],
            "event_time is missing; name the field, event_time: {field: NAME, unit: ms}, or"
            " event_time: arrival",
        )
        return None
    if value == "arrival":
        return EventTime(field=None)
    if isinstance(value, str):
        document.mistake(
            at, f"{value!r} is not known; use arrival, or {{field: {value}, unit: ms}}"
        )
        return None
    if isinstance(value, dict) and "timestamp" in value:
        raw = document.mapping(value, at, ("timestamp",))
        document.choice(raw["timestamp"], (*at, "timestamp"), ("create",))
        return EventTime(field=None, of_producer=True)
    return _by_field(document, value, at, rows)


def _by_field(
    document: Document, value: object, at: Place, rows: RecordSchema | None
) -> EventTime | None:
    raw = document.mapping(value, at, ("field", "unit", "zone"))
    if not isinstance(value, dict):
        return None
    unit = document.choice(raw.get("unit", "ms"), (*at, "unit"), _UNITS)
    zone = _zone(document, raw.get("zone"), (*at, "zone"))
    path = document.text(raw.get("field", MISSING), (*at, "field"))
    if path is None:
        return None
    found = EventTime(field=path, unit=cast("Any", unit), zone=zone)
    field = None if rows is None else _field(document, path, (*at, "field"), rows)
    return found if field is None else _of_field(document, raw, at, field, found)


def _zone(document: Document, value: object, at: Place) -> str | None:
    if value is None:
        return None
    try:
        zone_of(cast("str", value))
    except (ValueError, TypeError):
        document.mistake(
            at, f"{shown(value)} is no zone; use one such as Europe/Berlin, UTC or '+02:00'"
        )
        return None
    return str(value)


def _field(document: Document, path: str, at: Place, rows: RecordSchema) -> Field | None:
    """Return the column, or part of one, of that path; None after a mistake."""
    fields, before = rows.fields, f"record {rows.name}"
    found: Field | None = None
    for name in path.split("."):
        found = next((each for each in fields if each.name == name), None)
        if found is None:
            known = [each.name for each in fields if each.kind == "record" or _is_time(each)]
            close = difflib.get_close_matches(name, [each.name for each in fields], 1)
            hint = f"did you mean {close[0]!r}?" if close else f"its times are {words(known)}"
            document.mistake(at, f"{before} has no field {name}; {hint}")
            return None
        fields, before = found.inner if found.kind == "record" else (), f"field {name}"
    if found is not None and not _is_time(found):
        known = [each.name for each in rows.fields if _is_time(each)]
        document.mistake(
            at,
            f"{path} is no time, but {found.shown()}: name a number, a timestamp or a text, of"
            f" {words(known)}, a part of a record with dots, or event_time: arrival",
        )
        return None
    return found


def _is_time(field: Field) -> bool:
    is_text = field.kind == "string" and not field.symbols
    is_number = field.kind in _NUMBERS and field.logical not in _TIMES_OF_DAY
    return is_text or is_number or field.kind in (*TIMESTAMPS, *LOCAL_TIMESTAMPS)


def _of_field(
    document: Document, raw: dict[str, object], at: Place, field: Field, found: EventTime
) -> EventTime:
    """Return ``found`` as the type of its field completes it."""
    unit: Literal["ms", "s", "us", "ns"] = found.unit
    is_number = field.kind in _NUMBERS
    if not is_number or field.logical == "timestamp-nanos":
        unit = "ns" if is_number else "us"
        if "unit" in raw:
            what = field.logical or ("text" if field.kind == "string" else field.kind)
            document.mistake(
                (*at, "unit"), f"{found.field} is a {what}, which sets the unit; leave it out"
            )
    has_no_zone = field.kind in LOCAL_TIMESTAMPS
    if has_no_zone and "zone" not in raw:
        document.mistake(
            at, f"{found.field} is a {field.kind}, which has no zone: add it, zone: Europe/Berlin"
        )
    if "zone" in raw and not has_no_zone and field.kind != "string":
        document.mistake(
            (*at, "zone"), f"{found.field} is a {field.shown()}, which is in UTC; leave it out"
        )
    return found.model_copy(update={"unit": unit, "is_text": not is_number})
