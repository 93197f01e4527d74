"""The records of a live topic and of its progress, as bytes: headers, small JSON values of the
control kinds, one Avro single object.

A client in any language needs the header ``anabranch-kind`` and, for control kinds, two numbers of
a flat JSON object (docs/concepts.md).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from anabranch.codec import single_object
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.edge.live_delivery import Kind, LiveProgress
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.edge.views import KeyState, LiveRecord, Version, ViewRecord
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.log.records import BranchNumber
from anabranch.protocol.stage.kept_rows import KEPT_ALL

ID_HEADER: Final = "anabranch-id"
EVENT_TIME_HEADER: Final = "anabranch-event-time"
KIND_HEADER: Final = "anabranch-kind"
MISSING_HEADER: Final = "anabranch-missing"
SHED_HEADER: Final = "anabranch-shed"
"""Header of a tentative record that was made from a part of the rows: per mille of its input's rows
that overloaded stages left out, at most. Absent if none were.
"""
ORIGIN_HEADER: Final = "anabranch-origin"
"""Header that names the output which wrote a record, and the life of its stream
(``protocol.edge.origins``). It and the id together identify a record.
"""
STABLE_HEADER: Final = "anabranch-stable"
"""Header of a tentative record of an upsert view: the last stable value of its key; two further
headers have its id and event time. All three are absent if there is none.
"""
STABLE_ID_HEADER: Final = "anabranch-stable-id"
STABLE_EVENT_TIME_HEADER: Final = "anabranch-stable-event-time"
STABLE_MISSING_HEADER: Final = "anabranch-stable-missing"
"""Header beside these: the sources that were given up and that the stable value lacks, if there are
any.
"""

_KINDS: Final = {kind.value.encode(): kind for kind in Kind}
_CONTROL_BYTES_MAX: Final = 4_096

Headers = list[tuple[str, bytes]]


def tentative_suffix(branch: BranchNumber) -> bytes:
    """Return the part of a tentative record's id after bucket and position."""
    return b"/%d.%d" % branch


def control(
    kind: Kind, progress: LiveProgress, width_ms: int, origin: Origin
) -> tuple[bytes, Headers]:
    """Return the value and headers of a control record. ``progress``: the progress after the
    transaction; for an undo, the one before it.
    """
    fields: dict[str, Any] = {
        "kind": kind.value,
        "stable": progress.stable,
        "stable_ms": bound_ms(progress.stable, width_ms),
    }
    headers: Headers = [(KIND_HEADER, kind.value.encode()), (ORIGIN_HEADER, origin.header)]
    if kind is Kind.UNDO:
        fields["last_id"] = None if progress.last is None else str(progress.last)
        if progress.last is not None:
            headers.append((ID_HEADER, str(progress.last).encode()))
    if kind is Kind.BOUNDARY:
        fields |= {
            "shown": progress.shown,
            "shown_ms": bound_ms(progress.shown, width_ms),
            "sequence": progress.sequence,
        }
    return json.dumps(fields, separators=(",", ":")).encode(), headers


def upsert(write: ViewRecord, origin: Origin) -> tuple[bytes | None, Headers]:
    """Return the value and headers of a record of an upsert view."""
    visible = write.state.visible
    headers: Headers = [(KIND_HEADER, write.kind.value.encode()), (ORIGIN_HEADER, origin.header)]
    if visible is None:
        return None, headers
    ident = str(visible.id).encode()
    if visible.branch is not None or visible.missing:
        headers.append((MISSING_HEADER, ",".join(visible.missing).encode()))
    if visible.branch is not None:
        if visible.shed:
            headers.append((SHED_HEADER, b"%d" % visible.shed))
        ident += tentative_suffix(visible.branch)
        stable = write.state.stable
        if stable is not None:
            headers += [
                (STABLE_HEADER, stable.value),
                (STABLE_ID_HEADER, str(stable.id).encode()),
                (STABLE_EVENT_TIME_HEADER, b"%d" % stable.event_time_ms),
            ]
            if stable.missing:
                headers.append((STABLE_MISSING_HEADER, ",".join(stable.missing).encode()))
    headers += [(ID_HEADER, ident), (EVENT_TIME_HEADER, b"%d" % visible.event_time_ms)]
    return visible.value, headers


def decode(
    headers: Sequence[tuple[str, bytes | None]], key: bytes | None, value: bytes | None
) -> LiveRecord:
    """Decode a record of a live topic.

    Raises:
        RemoteProtocolError: the record is not as delivery writes it.
    """
    named = _named(headers)
    kind = _KINDS.get(named.get(KIND_HEADER, b""))
    if kind is None:
        raise RemoteProtocolError(f"header {KIND_HEADER} is {named.get(KIND_HEADER, b'')[:40]!r}")
    origin = named.get(ORIGIN_HEADER, b"").decode("ascii", "replace")
    if kind in (Kind.INSERTION, Kind.TENTATIVE):
        ident, branch = _id(named.get(ID_HEADER, b""))
        if (branch is None) is (kind is Kind.TENTATIVE):
            raise RemoteProtocolError(f"{kind.value} with id {named.get(ID_HEADER, b'')[:60]!r}")
        return LiveRecord(
            kind,
            ident,
            branch,
            names_in(named.get(MISSING_HEADER, b"")),
            number_in(named.get(EVENT_TIME_HEADER, b"")),
            key,
            value,
            origin=origin,
            shed=shed_in(named.get(SHED_HEADER)),
        )
    return _control(kind, value, origin)


def restored(headers: Sequence[tuple[str, bytes | None]], value: bytes | None) -> KeyState:
    """Return the state of a key from its newest record in an upsert view.

    Raises:
        RemoteProtocolError: the record is none of an upsert view.
    """
    named = _named(headers)
    kind = _KINDS.get(named.get(KIND_HEADER, b""))
    if kind not in (Kind.INSERTION, Kind.TENTATIVE, Kind.UNDO):
        raise RemoteProtocolError(f"header {KIND_HEADER} is {named.get(KIND_HEADER, b'')[:40]!r}")
    if value is None:
        return KeyState()
    ident, branch = _id(named.get(ID_HEADER, b""))
    visible = Version(
        ident,
        number_in(named.get(EVENT_TIME_HEADER, b"")),
        value,
        branch,
        names_in(named.get(MISSING_HEADER, b"")),
        shed_in(named.get(SHED_HEADER)),
    )
    if branch is None:
        return KeyState(visible)
    if STABLE_HEADER not in named:
        return KeyState(None, visible)
    stable_id, _ = _id(named.get(STABLE_ID_HEADER, b""))
    stable = Version(
        stable_id,
        number_in(named.get(STABLE_EVENT_TIME_HEADER, b"")),
        named[STABLE_HEADER],
        missing=names_in(named.get(STABLE_MISSING_HEADER, b"")),
    )
    return KeyState(stable, visible)


def encode_progress(progress: LiveProgress) -> bytes:
    """Return the value of a progress record.

    Raises:
        LocalProtocolError: the record does not fit its schema: a bug here.
    """
    fields = {name: getattr(progress, name) for name in LiveProgress.__slots__}
    return single_object.write(catalog().newest("live_progress"), fields, limits.CONTROL_BYTES_MAX)


def decode_progress(value: bytes | None) -> LiveProgress:
    """Return the progress record in ``value``.

    Raises:
        RemoteProtocolError: ``value`` is no progress record, or torn, unknown or too large.
    """
    _, fields = single_object.read(
        value,
        "a live progress topic",
        ("live_progress",),
        limits.CONTROL_BYTES_MAX,
        limits.CONTROL_ITEMS_MAX,
    )
    return LiveProgress(*fields)


def _named(headers: Sequence[tuple[str, bytes | None]]) -> dict[str, bytes]:
    """Return ``headers`` by name, without those that have no value, which delivery never writes."""
    return {name: value for name, value in headers if value is not None}


def _control(kind: Kind, value: bytes | None, origin: str) -> LiveRecord:
    try:
        if value is None or len(value) > _CONTROL_BYTES_MAX:
            raise RemoteProtocolError(
                f"{kind.value} without a value, or with one of more than {_CONTROL_BYTES_MAX} bytes"
            )
        fields = json.loads(value)
        last = fields.get("last_id")
        return LiveRecord(
            kind,
            None if last is None else RecordId.parse(last),
            stable=int(fields["stable"]),
            shown=int(fields.get("shown", 0)),
            stable_ms=int(fields["stable_ms"]),
            shown_ms=int(fields.get("shown_ms", 0)),
            sequence=int(fields.get("sequence", 0)),
            origin=origin,
        )
    except (
        ValueError,
        KeyError,
        TypeError,
        AttributeError,
        RecursionError,
        OverflowError,
    ) as error:
        raise RemoteProtocolError(
            f"{kind.value} with value {value[:60] if value else value!r}: {error}"
        ) from error


def _id(text: bytes) -> tuple[RecordId, BranchNumber | None]:
    stable, slash, rest = text.decode("ascii", "replace").partition("/")
    if not slash:
        return RecordId.parse(stable), None
    branch = RecordId.parse(rest)  # of the same form: two numbers with a point
    return RecordId.parse(stable), (branch.bucket, branch.position)


def number_in(text: bytes | None) -> int:
    """Return the time in ms that the header text ``text`` states.

    Raises:
        RemoteProtocolError: ``text`` is no number.
    """
    if text is None or not text.isdigit() or len(text) > 20:
        raise RemoteProtocolError(f"{(text or b'')[:40]!r} is not a time in ms")
    return int(text)


def shed_in(text: bytes | None) -> int:
    """Return the per mille that the header text ``text`` states; 0 if the header is missing.

    Raises:
        RemoteProtocolError: ``text`` is no number from 0 to 1 000.
    """
    if text is None:
        return 0
    if not text.isdigit() or len(text) > 4 or int(text) > KEPT_ALL:
        raise RemoteProtocolError(f"{text[:40]!r} is not a number of per mille")
    return int(text)


def names_in(text: bytes | None) -> tuple[str, ...]:
    """Return the names that the header text ``text`` lists; none if the header is missing or
    empty.
    """
    return tuple(text.decode("utf-8", "replace").split(",")) if text else ()
