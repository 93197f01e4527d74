"""Records of a boundary log as bytes.

Written as Avro single objects (schemas/records/boundary_record, branch_ended, epoch_started,
recomputed, ``log_snapshot``). Whatever stands in a log, ``decode`` gives a record that is whole and
within the limits, or raises RemoteProtocolError: a reader rejects it, counts it and continues.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final

from anabranch.codec import single_object
from anabranch.codec.boundary_guard import check
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import MIB
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    BranchNumber,
    BranchSnapshot,
    EpochStarted,
    GivenUp,
    InputPosition,
    LogEntry,
    LogSnapshot,
    MadeOn,
    Part,
    Provenance,
    Recomputed,
    ReplicaSnapshot,
    StableRange,
    TentativeRange,
)

BOUNDARY_BYTES_MAX: Final = 8 * MIB
"""Maximum size of a boundary record as a Kafka record, in bytes. A larger one is rejected unread.
"""

SNAPSHOT_BYTES_MAX: Final = 15 * MIB
"""Maximum size of a log snapshot as a Kafka record, in bytes: below the ``max.message.bytes`` of a
boundary log.
"""

Headers = Sequence[tuple[str, bytes | None]]

_HEADER: Final = "anabranch-record"
"""Header that names the kind of a record, for people and tools; this project never reads it."""

_NAMES: Final = ("boundary_record", "branch_ended", "recomputed", "epoch_started", "log_snapshot")


def encode(entry: LogEntry) -> tuple[bytes, Headers]:
    """Return the value and headers of a boundary log's record.

    Raises:
        LocalProtocolError: the entry is beyond a limit, or is not one that ``decode`` would take: a
            bug here.
    """
    if isinstance(entry, EpochStarted):
        name = "epoch_started"
        value: object = _epoch_value(entry)
    elif isinstance(entry, BoundaryRecord):
        name, value = "boundary_record", _record_value(entry)
    elif isinstance(entry, BranchEnded):
        name, value = "branch_ended", asdict(entry)
    elif isinstance(entry, Recomputed):
        name = "recomputed"
        value = {
            "replica": entry.replica,
            "epoch": entry.epoch,
            "parts": [_part_value(part) for part in entry.parts],
            "token": entry.token,
        }
    else:
        name, value = "log_snapshot", _snapshot_value(entry)
    try:
        check(entry)
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from error
    record = catalog().newest(name)
    bytes_max = SNAPSHOT_BYTES_MAX if name == "log_snapshot" else BOUNDARY_BYTES_MAX
    return single_object.write(record, value, bytes_max), [
        (_HEADER, f"{name}.v{record.version}".encode())
    ]


def decode(value: bytes | None, headers: Headers = ()) -> LogEntry:
    """Return the record in ``value``. ``headers`` are neither needed nor trusted.

    Raises:
        RemoteProtocolError: ``value`` is torn, unknown, too large, or has content that no
            writer may write.
    """
    del headers
    record, fields = single_object.read(
        value, "a boundary log", _NAMES, SNAPSHOT_BYTES_MAX, limits.SNAPSHOT_ITEMS_MAX
    )
    entry: LogEntry
    if record.name in ("boundary_record", "recomputed"):
        if value is not None and len(value) > BOUNDARY_BYTES_MAX:
            raise RemoteProtocolError(f"a {record.name.replace('_', ' ')} of {len(value)} bytes")
        entry = (
            _record_of(fields)
            if record.name == "boundary_record"
            else Recomputed(fields[0], fields[1], _parts_of(fields[2]), fields[3])
        )
    elif record.name == "epoch_started":
        entry = EpochStarted(*fields)
    elif record.name == "branch_ended":
        entry = BranchEnded(*fields)
    else:
        entry = _snapshot_of(fields)
    check(entry)
    return entry


# -- values to what fastavro writes
# --------------------------------------------------------------------------------------------------


def _epoch_value(entry: EpochStarted) -> dict[str, Any]:
    return asdict(entry)


def _id_value(ident: BatchId) -> dict[str, Any]:
    return {"timeline": ident.timeline, "batch": ident.batch}


def _branch_value(number: BranchNumber) -> dict[str, Any]:
    return {"epoch": number[0], "counter": number[1]}


def _branch_value_if_any(number: BranchNumber | None) -> dict[str, Any] | None:
    return None if number is None else _branch_value(number)


def _part_value(part: Part) -> dict[str, Any]:
    return {
        "bucket": part.bucket,
        "partition": part.partition,
        "attempt": part.attempt,
        "blocks": part.blocks,
        "offset_first": part.offset_first,
        "offset_next": part.offset_next,
        "rows": part.rows,
        "digest": (part.digest & 0xFFFF_FFFF_FFFF_FFFF).to_bytes(8, "big"),
        "size_bytes": part.size_bytes,
    }


def _record_value(entry: BoundaryRecord) -> dict[str, Any]:
    return {
        "replica": entry.replica,
        "epoch": entry.epoch,
        "id": _id_value(entry.id),
        "prev": None if entry.prev is None else _id_value(entry.prev),
        "closed": entry.closed,
        "parts": [_part_value(part) for part in entry.parts],
        "base": entry.base,
        "kind": str(entry.kind),
        "branch": _branch_value_if_any(entry.branch),
        "missing": list(entry.missing),
        "positions": [_position_value(position) for position in entry.positions],
        "made_from": [{"stream": stream, "bucket": bucket} for stream, bucket in entry.made_from],
        "written_ms": entry.written_ms,
        "given_up": [asdict(each) for each in entry.given_up],
        "past": entry.past,
        "heirs": entry.heirs,
        "shed": entry.shed,
        "token": entry.token,
    }


def _position_value(p: InputPosition) -> dict[str, Any]:
    return {
        "topic": p.topic,
        "partition": p.partition,
        "offset_next": p.offset_next,
        "event_time_max_ms": p.event_time_max_ms,
        "found_after": p.found_after,
        "idle": p.idle,
        "topic_id": p.topic_id,
    }


def _pending_value(pending: tuple[tuple[BatchId, Part], ...]) -> list[dict[str, Any]]:
    return [{"id": _id_value(ident), "part": _part_value(part)} for ident, part in pending]


def _branches_value(entry: BranchSnapshot) -> dict[str, Any]:
    ranges = [
        {
            "first": r.first,
            "last": r.last,
            "branch": _branch_value(r.branch),
            "missing": list(r.missing),
            "parts": [_part_value(part) for part in r.parts],
            "shed": r.shed,
        }
        for r in entry.ranges
    ]
    return {
        "number": _branch_value(entry.number),
        "tip": _id_value(entry.tip),
        "closed": entry.closed,
        "upto": entry.upto,
        "first_upto": entry.first_upto,
        "pending": _pending_value(entry.pending),
        "ranges": ranges,
    }


def _snapshot_value(entry: LogSnapshot) -> dict[str, Any]:
    replicas = [
        {
            "replica": r.replica,
            "epoch": r.epoch,
            "fingerprint": r.fingerprint,
            "schema": r.schema,
            "closed": r.closed,
            "base": r.base,
            "path": [_id_value(ident) for ident in r.path],
            "timelines": [_id_value(ident) for ident in r.timelines],
            "pending": _pending_value(r.pending),
            "last": None if r.last is None else _record_value(r.last),
            "closed_parts": [_part_value(part) for part in r.closed_parts],
            "branches": None if r.branches is None else _branches_value(r.branches),
            "origin": asdict(r.origin),
            "history": r.history,
            "version": r.version,
            "node": r.node,
            "ended": _branch_value_if_any(r.ended),
            "corrected": _branch_value_if_any(r.corrected),
            "token": r.token,
        }
        for r in entry.replicas
    ]
    ranges = [
        {
            "first": s.first,
            "last": s.last,
            "replica": s.replica,
            "parts": [_part_value(part) for part in s.parts],
            "recomputed": s.recomputed,
        }
        for s in entry.ranges
    ]
    numbers = {
        "past": entry.past,
        "version": entry.version,
        "version_after": entry.version_after,
        "bucket_ms": entry.bucket_ms,
        "share": entry.share,
        "rest_upto": entry.rest_upto,
        "attempt": entry.attempt,
    }
    lists = {
        "replicas": replicas,
        "ranges": ranges,
        "given_up": [asdict(each) for each in entry.given_up],
    }
    return {"as_of": entry.as_of, "forgotten": entry.forgotten, **lists, **numbers}


# -- what the reader gives to values
# --------------------------------------------------------------------------------------------------


def _parts_of(items: Iterable[tuple[Any, ...]]) -> tuple[Part, ...]:
    return tuple(
        [
            Part(b, p, a, n, first, end, rows, int.from_bytes(digest, "big"), size)
            for b, p, a, n, first, end, rows, digest, size in items
        ]
    )


def _record_of(fields: tuple[Any, ...]) -> BoundaryRecord:
    (
        replica,
        epoch,
        ident,
        prev,
        closed,
        parts,
        base,
        kind,
        branch,
        missing,
        positions,
        made_from,
        written_ms,
        given_up,
        past,
        heirs,
        shed,
        token,
    ) = fields
    return BoundaryRecord(
        replica=replica,
        epoch=epoch,
        id=BatchId(*ident),
        prev=None if prev is None else BatchId(*prev),
        closed=closed,
        parts=_parts_of(parts),
        base=base,
        kind=BoundaryKind(kind),
        branch=branch,
        missing=missing,
        positions=tuple([InputPosition(*position) for position in positions]),
        made_from=made_from,
        written_ms=written_ms,
        given_up=tuple([GivenUp(*each) for each in given_up]),
        past=past,
        heirs=heirs,
        shed=shed,
        token=token,
    )


def _pending_of(items: tuple[Any, ...]) -> tuple[tuple[BatchId, Part], ...]:
    parts = _parts_of(part for _, part in items)
    return tuple([(BatchId(*ident), part) for (ident, _), part in zip(items, parts, strict=True)])


def _branches_of(fields: tuple[Any, ...]) -> BranchSnapshot:
    number, tip, closed, upto, first_upto, pending, ranges = fields
    return BranchSnapshot(
        number=number,
        tip=BatchId(*tip),
        closed=closed,
        upto=upto,
        first_upto=first_upto,
        pending=_pending_of(pending),
        ranges=tuple(
            [
                TentativeRange(first, last, branch, missing, _parts_of(parts), shed)
                for first, last, branch, missing, parts, shed in ranges
            ]
        ),
    )


def _origin_of(fields: tuple[Any, ...]) -> Provenance:
    *known, made_on = fields
    return replace(Provenance(*known), made_on=tuple([MadeOn(*each) for each in made_on]))


def _replica_of(fields: tuple[Any, ...]) -> ReplicaSnapshot:
    (
        replica,
        epoch,
        mark,
        schema,
        closed,
        base,
        path,
        timelines,
        pending,
        last,
        closed_parts,
        branches,
        origin,
        history,
        version,
        node,
        ended,
        corrected,
        token,
    ) = fields
    return ReplicaSnapshot(
        replica=replica,
        epoch=epoch,
        fingerprint=mark,
        schema=schema,
        closed=closed,
        base=base,
        path=tuple([BatchId(*ident) for ident in path]),
        timelines=tuple([BatchId(*ident) for ident in timelines]),
        pending=_pending_of(pending),
        last=None if last is None else _record_of(last),
        closed_parts=_parts_of(closed_parts),
        branches=None if branches is None else _branches_of(branches),
        origin=_origin_of(origin),
        history=history,
        version=version,
        node=node,
        ended=ended,
        corrected=corrected,
        token=token,
    )


def _snapshot_of(fields: tuple[Any, ...]) -> LogSnapshot:
    as_of, forgotten, replicas, ranges, past, version, version_after, bucket_ms, *rest = fields
    given_up, share, rest_upto, attempt = rest
    return LogSnapshot(
        as_of=as_of,
        forgotten=forgotten,
        replicas=tuple([_replica_of(replica) for replica in replicas]),
        ranges=tuple(
            [
                StableRange(first, last, replica, _parts_of(parts), recomputed)
                for first, last, replica, parts, recomputed in ranges
            ]
        ),
        past=past,
        version=version,
        version_after=version_after,
        bucket_ms=bucket_ms,
        given_up=tuple([GivenUp(*each) for each in given_up]),
        share=share,
        rest_upto=rest_upto,
        attempt=attempt,
    )
