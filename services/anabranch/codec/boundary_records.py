"""Records of a boundary log as bytes.

Written as Avro single objects (schemas/records/boundary_record, branch_ended, epoch_started,
recomputed, ``log_snapshot``). Whatever stands in a log, ``decode`` gives a record that is whole and
within the limits, or raises RemoteProtocolError: a reader rejects it, counts it and goes on.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any, Final, cast

from anabranch.codec import single_object
from anabranch.codec.catalog import catalog
from anabranch.protocol import limits
from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import MIB
from anabranch.protocol.log.records import (
    NODE_CHANGES_MAX,
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
    Origin,
    Part,
    Recomputed,
    ReplicaSnapshot,
    StableRange,
    TentativeRange,
)

BOUNDARY_BYTES_MAX: Final = 8 * MIB
"""A boundary record as a Kafka record: rejected unread above it."""

POSITIONS_MAX: Final = 20_000
"""Input positions in one boundary record, one per partition of a source's topics: every
reader holds the last record of each writer.
"""

SNAPSHOT_BYTES_MAX: Final = 15 * MIB
"""A log snapshot as a Kafka record: below the ``max.message.bytes`` of a boundary log."""

Headers = Sequence[tuple[str, bytes | None]]

_HEADER: Final = "anabranch-record"
"""Says to people and tools what a record is; never read by us."""

_NAMES: Final = ("boundary_record", "branch_ended", "recomputed", "epoch_started", "log_snapshot")


def encode(entry: LogEntry) -> tuple[bytes, Headers]:
    """Value and headers of a record of a boundary log.

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
        }
    else:
        name, value = "log_snapshot", _snapshot_value(entry)
    try:
        _check(entry)
    except RemoteProtocolError as error:
        raise LocalProtocolError(str(error)) from error
    record = catalog().newest(name)
    bytes_max = SNAPSHOT_BYTES_MAX if name == "log_snapshot" else BOUNDARY_BYTES_MAX
    return single_object.write(record, value, bytes_max), [
        (_HEADER, f"{name}.v{record.version}".encode())
    ]


def decode(value: bytes | None, headers: Headers = ()) -> LogEntry:
    """The record of a boundary log in ``value``; ``headers`` are not needed and not trusted.

    Raises:
        RemoteProtocolError: it is torn, unknown, too large, or holds what no writer may say.
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
            else Recomputed(fields[0], fields[1], _parts_of(fields[2]))
        )
    elif record.name == "epoch_started":
        entry = EpochStarted(*fields)
    elif record.name == "branch_ended":
        entry = BranchEnded(*fields)
    else:
        entry = _snapshot_of(fields)
    _check(entry)
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
    }


def _position_value(p: InputPosition) -> dict[str, Any]:
    return {
        "topic": p.topic,
        "partition": p.partition,
        "offset_next": p.offset_next,
        "event_time_max_ms": p.event_time_max_ms,
        "found_after": p.found_after,
        "idle": p.idle,
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
            Part(b, p, a, n, first, end, rows, int.from_bytes(digest, "big"))
            for b, p, a, n, first, end, rows, digest in items
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
                TentativeRange(first, last, branch, missing, _parts_of(parts))
                for first, last, branch, missing, parts in ranges
            ]
        ),
    )


def _origin_of(fields: tuple[Any, ...]) -> Origin:
    *known, made_on = fields
    return replace(Origin(*known), made_on=tuple([MadeOn(*each) for each in made_on]))


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
    )


def _snapshot_of(fields: tuple[Any, ...]) -> LogSnapshot:
    as_of, forgotten, replicas, ranges, past, version, version_after, bucket_ms, given_up = fields
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
    )


# -- what no writer may say
# --------------------------------------------------------------------------------------------------


def _check(entry: LogEntry) -> None:
    if isinstance(entry, EpochStarted):
        _check_texts(entry.replica, entry.fingerprint, entry.token, entry.node)
        _require(len(entry.schema) <= limits.SCHEMA_BYTES_MAX, "a schema that is too large")
        _check_versions(entry.version)
        _require(0 <= entry.bucket_ms <= limits.BUCKET_MAX, "a width out of range")
    elif isinstance(entry, BoundaryRecord):
        _check_record(entry)
    elif isinstance(entry, BranchEnded):
        _check_texts(entry.replica)
        _check_number(entry.branch)
    elif isinstance(entry, Recomputed):
        _check_texts(entry.replica)
        _require(entry.epoch >= 0, "an epoch out of range")
        _check_parts(entry.parts)
    else:
        _check_snapshot(entry)


def _check_snapshot(entry: LogSnapshot) -> None:
    _require(
        entry.as_of >= 0 and len(entry.replicas) <= limits.REPLICAS_MAX,
        "a log snapshot out of range",
    )
    _check_buckets(entry.forgotten, entry.past, entry.version_after)
    _check_given_up(entry.given_up, limits.GIVEN_UP_MAX**2)
    _require(0 <= entry.bucket_ms <= limits.BUCKET_MAX, "a width out of range")
    _check_versions(entry.version, *(replica.version for replica in entry.replicas))
    for replica in entry.replicas:
        _check_texts(
            replica.replica,
            replica.fingerprint,
            replica.origin.tip_by,
            replica.origin.made_by,
            *(each.node for each in replica.origin.made_on),
            replica.history,
            *(ident.timeline for ident in (*replica.path, *replica.timelines)),
        )
        _require(replica.epoch >= -1, "an epoch out of range")
        origin = replica.origin
        _check_buckets(
            replica.closed,
            replica.base,
            origin.made_after,
            origin.gap or 0,
            origin.open_upto,
            origin.late_upto,
            *(each.after for each in origin.made_on),
        )
        _require(len(origin.made_on) <= NODE_CHANGES_MAX, "too many changes of the node")
        _require(len(replica.path) <= limits.CHAIN_RECORDS_MAX, "a chain that is too long")
        _require(len(replica.timelines) <= limits.TIMELINES_MAX, "too many timelines")
        _require(
            len(replica.pending) <= limits.PENDING_PARTS_MAX + limits.PARTS_PER_RECORD_MAX,
            "too many open parts",
        )
        for part in (*replica.closed_parts, *(part for _, part in replica.pending)):
            _check_part(part)
        if replica.last is not None:
            _check_record(replica.last)
        if replica.branches is not None:
            _check_branches(replica.branches)
        for number in (replica.ended, replica.corrected):
            if number is not None:
                _check_number(number)
    for stable in entry.ranges:
        _check_texts(stable.replica)
        _check_range(stable.first, stable.last, stable.parts)


def _check_branches(entry: BranchSnapshot) -> None:
    _check_texts(entry.tip.timeline)
    _check_buckets(entry.closed, entry.upto, entry.first_upto)
    _check_number(entry.number)
    for _, part in entry.pending:
        _check_part(part)
    upto = -1
    for covered in entry.ranges:
        _check_number(covered.branch)
        _check_missing(covered.missing)
        _check_range(covered.first, covered.last, covered.parts)
        _require(covered.first > upto, "ranges that do not ascend")
        upto = covered.last


def _check_range(first: int, last: int, parts: tuple[Part, ...]) -> None:
    _require(first <= last, "a range that ends before it begins")
    _check_buckets(first, last)
    for part in parts:
        _check_part(part)
        _require(first <= part.bucket <= last, "a part outside of its range")


def _check_record(entry: BoundaryRecord) -> None:
    _check_texts(entry.replica, entry.id.timeline, *(stream for stream, _ in entry.made_from))
    _check_missing(entry.missing)
    if entry.prev is not None:
        _check_texts(entry.prev.timeline)
    _require(entry.epoch >= 0, "an epoch out of range")
    _check_buckets(entry.closed, entry.base or 0, entry.past)
    _require(
        (entry.branch is not None) == (entry.kind is BoundaryKind.TENTATIVE),
        "a branch that is not tentative, or a tentative record without",
    )
    if entry.branch is not None:
        _check_number(entry.branch)
        _require(entry.branch[0] == entry.epoch, "a branch of another epoch")
    _require(len(entry.made_from) <= limits.INPUTS_MAX, f"made from {len(entry.made_from)} inputs")
    _require(len(entry.positions) <= POSITIONS_MAX, f"{len(entry.positions)} positions")
    _check_parts(entry.parts)
    _check_given_up(entry.given_up, limits.GIVEN_UP_MAX)
    for position in entry.positions:
        _check_texts(position.topic)
        _check_buckets(position.found_after)
        _require(position.partition >= 0 and position.offset_next >= 0, "a position out of range")


def _check_given_up(given_up: tuple[GivenUp, ...], count_max: int) -> None:
    _require(len(given_up) <= count_max, f"{len(given_up)} ranges that were given up")
    for each in given_up:
        _check_texts(each.source)
        _check_range(each.first, each.last, ())


def _check_missing(missing: tuple[str, ...]) -> None:
    _require(len(missing) <= limits.MISSING_STREAMS_MAX, f"{len(missing)} missing streams")
    _check_texts(*missing)


def _check_number(number: BranchNumber) -> None:
    _require(min(number) >= 0, "the number of a branch out of range")


def _check_buckets(*buckets: int) -> None:
    _require(
        min(buckets) >= 0 and max(buckets) <= limits.BUCKET_MAX, f"a bucket out of range: {buckets}"
    )


def _check_versions(*versions: int) -> None:
    _require(
        min(versions) >= 0 and max(versions) <= limits.STAGE_VERSION_MAX,
        f"a version out of range: {versions}",
    )


def _check_parts(parts: tuple[Part, ...]) -> None:
    _require(len(parts) <= limits.PARTS_PER_RECORD_MAX, f"a boundary record of {len(parts)} parts")
    for part in parts:
        _check_part(part)


def _check_part(part: Part) -> None:
    if not (
        0 <= part.offset_first <= part.offset_next
        and 0 <= part.blocks <= part.offset_next - part.offset_first
        and part.rows >= 0
        and 0 <= part.bucket <= limits.BUCKET_MAX
        and 0 <= part.partition < limits.PARTITIONS_MAX
        and len(part.attempt) <= limits.NAME_CHARACTERS_MAX
        and 0 <= part.digest < 2**64
    ):
        raise RemoteProtocolError(f"a part out of range: {str(part)[:300]}")


def _check_texts(*texts: str) -> None:
    for text in texts:
        if len(text) > limits.NAME_CHARACTERS_MAX:
            raise RemoteProtocolError(f"a name of {len(text)} characters")


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise RemoteProtocolError(what)


# -- parts in Spark's offsets
# --------------------------------------------------------------------------------------------------


def parts_to_json(parts: Iterable[Part]) -> list[list[Any]]:
    """Parts as lists that JSON can carry: first the attempts, then one list per part that names its
    attempt by number.

    Digests are texts: other readers of JSON keep numbers as doubles.
    """
    attempts: dict[str, int] = {}
    rows = [
        [
            p.bucket,
            p.partition,
            attempts.setdefault(p.attempt, len(attempts)),
            p.blocks,
            p.offset_first,
            p.offset_next,
            p.rows,
            f"{p.digest:x}",
        ]
        for p in parts
    ]
    return [list(attempts), *rows]


def parts_from_json(value: object) -> tuple[Part, ...]:
    """The parts that ``parts_to_json`` wrote.

    Raises:
        RemoteProtocolError: it did not write ``value``.
    """
    if not isinstance(value, list):
        raise RemoteProtocolError("not a list of parts")
    try:
        attempts, *rows = cast("list[list[Any]]", value)
        parts = tuple(
            [
                Part(b, p, attempts[a], n, first, end, count, int(digest, 16))
                for b, p, a, n, first, end, count, digest in rows
            ]
        )
        for part in parts:
            _check_part(part)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise RemoteProtocolError(f"not a list of parts: {error}") from error
    return parts
