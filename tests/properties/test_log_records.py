"""Properties of the records of boundary logs and control topics: whole again after the way,
and no bytes do any harm.
"""

from __future__ import annotations

import json
from typing import Any, TypeVar, get_type_hints

from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec import boundary_records, control_records
from anabranch.codec.catalog import catalog, schemas_folder
from anabranch.codec.part_lists import parts_from_json, parts_to_json
from anabranch.protocol import limits
from anabranch.protocol.control.records import (
    Alarm,
    Ask,
    AskReply,
    ControlRecord,
    DeliveryProgress,
    Fence,
    Heartbeat,
    Move,
    NodeReport,
    ReplicaLoad,
    Restated,
    SplitStep,
    TrimPoint,
    Vote,
)
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchSnapshot,
    EpochStarted,
    InputPosition,
    LogEntry,
    LogSnapshot,
    Part,
    Recomputed,
    ReplicaSnapshot,
    StableRange,
    TentativeRange,
)
from harness.examples import examples

EXAMPLES = examples(300)
GOLDEN = [
    bytes.fromhex(example["bytes"])
    for path in sorted((schemas_folder() / "examples").glob("*/v*.json"))
    for example in json.loads(path.read_text()).values()
]

T = TypeVar("T")
names = st.text(max_size=12)
longs = st.integers(-(2**63), 2**63 - 1)
counts = st.integers(0, 2**62)
buckets = st.integers(0, limits.BUCKET_MAX)
ids = st.builds(BatchId, names, longs)
numbers = st.tuples(counts, counts)


@st.composite
def parts(draw: st.DrawFn, of: st.SearchStrategy[int] = buckets) -> Part:
    first = draw(counts)
    span = draw(st.integers(0, 2**31 - 1))
    return Part(
        draw(of),
        draw(st.integers(0, limits.PARTITIONS_MAX - 1)),
        draw(names),
        draw(st.integers(0, span)),
        first,
        first + span,
        draw(counts),
        draw(st.integers(0, 2**64 - 1)),
        draw(counts),
    )


def several(of: st.SearchStrategy[T]) -> st.SearchStrategy[tuple[T, ...]]:
    return st.lists(of, max_size=3).map(tuple)


@st.composite
def boundaries(draw: st.DrawFn) -> BoundaryRecord:
    kind, epoch = draw(st.sampled_from(BoundaryKind)), draw(counts)
    branch = None if kind is BoundaryKind.STABLE else (epoch, draw(counts))
    rest = st.builds(
        BoundaryRecord,
        replica=names,
        epoch=st.just(epoch),
        id=ids,
        prev=st.none() | ids,
        closed=buckets,
        parts=several(parts()),
        base=st.none() | buckets,
        kind=st.just(kind),
        branch=st.just(branch),
        missing=several(names),
        positions=several(
            st.builds(InputPosition, names, st.integers(0, 2**31 - 1), counts, longs)
        ),
        made_from=several(st.tuples(names, longs)),
        written_ms=longs,
        shed=st.just(0) if branch is None else st.integers(0, 1_000),
    )
    return draw(rest)


@st.composite
def ranges(draw: st.DrawFn) -> StableRange:
    first, last = sorted((draw(buckets), draw(buckets)))
    return StableRange(first, last, draw(names), draw(several(parts(st.integers(first, last)))))


@st.composite
def tentative_ranges(draw: st.DrawFn) -> tuple[TentativeRange, ...]:
    edges = sorted(draw(st.sets(buckets, max_size=6)))
    return tuple(
        TentativeRange(
            first,
            last,
            draw(numbers),
            draw(several(names)),
            draw(several(parts(st.integers(first, last)))),
            draw(st.integers(min_value=0, max_value=1_000)),
        )
        for first, last in zip(edges[::2], edges[1::2], strict=False)
    )


pending = several(st.tuples(ids, parts()))
branches = st.builds(
    BranchSnapshot,
    number=numbers,
    tip=ids,
    closed=buckets,
    upto=buckets,
    pending=pending,
    ranges=tentative_ranges(),
)
replicas = st.builds(
    ReplicaSnapshot,
    replica=names,
    epoch=st.integers(-1, 2**62),
    fingerprint=names,
    schema=names,
    closed=buckets,
    base=buckets,
    path=several(ids),
    timelines=several(ids),
    pending=pending,
    last=st.none() | boundaries(),
    closed_parts=several(parts()),
    branches=st.none() | branches,
)
entries: st.SearchStrategy[LogEntry] = (
    boundaries()
    | st.builds(EpochStarted, names, names, names, names)
    | st.builds(Recomputed, names, counts, several(parts()))
    | st.builds(LogSnapshot, counts, buckets, several(replicas), several(ranges()), buckets)
)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: longs,
    str: names,
    int | None: st.none() | longs,
}


def drawn(kind: type[T], **given_values: st.SearchStrategy[Any]) -> st.SearchStrategy[T]:
    """Return records of ``kind``, with any values in the fields that are not given."""
    any_values = {
        name: VALUES.get(hint, st.from_type(hint))
        for name, hint in get_type_hints(kind).items()
        if name not in given_values
    }
    return st.builds(kind, **any_values, **given_values)


ints = st.integers(0, 2**31 - 1)
places = several(st.tuples(ints, longs))
votes = several(drawn(Vote, digest=st.integers(0, 2**64 - 1)))
control: st.SearchStrategy[ControlRecord] = st.one_of(
    *map(drawn, (Heartbeat, TrimPoint, Alarm, Ask, AskReply, Move, SplitStep)),
    drawn(Fence, votes=votes),
    drawn(DeliveryProgress, positions=places, inherited=places, heirs=ints),
    drawn(Restated, version=ints),
    drawn(NodeReport, replicas=several(drawn(ReplicaLoad))),
)


@EXAMPLES
@given(entries)
def test_a_log_entry_comes_back_as_it_was(entry: LogEntry) -> None:
    value, headers = boundary_records.encode(entry)
    assert boundary_records.decode(value, headers) == entry
    taken_without_harm(entry)


@EXAMPLES
@given(control)
def test_a_control_record_comes_back_as_it_was(entry: ControlRecord) -> None:
    assert control_records.decode(control_records.encode(entry)) == entry


@EXAMPLES
@given(st.lists(parts(), max_size=5).map(tuple))
def test_parts_come_back_from_json(made: tuple[Part, ...]) -> None:
    assert parts_from_json(json.loads(json.dumps(parts_to_json(made)))) == made


def harmless(value: bytes) -> None:
    """Either it is rejected, or it is a record that can be written again."""
    for decode, encode in (
        (boundary_records.decode, boundary_records.encode),
        (control_records.decode, control_records.encode),
    ):
        try:
            entry = decode(value)
        except RemoteProtocolError:
            continue
        encode(entry)  # type: ignore[arg-type]
        if isinstance(entry, (EpochStarted, BoundaryRecord, Recomputed, LogSnapshot)):
            taken_without_harm(entry)


def taken_without_harm(entry: LogEntry) -> None:
    """Whatever can be decoded, a log state takes or rejects with a reason, and a log snapshot
    is a log state or rejected.
    """
    replica = entry.replica if not isinstance(entry, LogSnapshot) else "0"
    log_state = LogState([replica, "another"])
    epoch = entry.epoch if isinstance(entry, (BoundaryRecord, Recomputed)) else 0
    log_state.apply(epoch, EpochStarted(replica, "", ""))
    assert log_state.apply(epoch + 1, entry).reason
    log_state.forget(log_state.upto)
    assert LogState.from_snapshot(log_state.snapshot(0)).snapshot(0) == log_state.snapshot(0)
    if isinstance(entry, LogSnapshot):
        try:
            LogState.from_snapshot(entry).snapshot(0)
        except RemoteProtocolError:
            return


@EXAMPLES
@given(st.sampled_from(sorted(catalog().by_fingerprint)), st.binary(max_size=80))
def test_any_bytes_behind_a_known_fingerprint_are_rejected_in_one_way(
    fingerprint: bytes, body: bytes
) -> None:
    harmless(b"\xc3\x01" + fingerprint + body)


@EXAMPLES
@given(st.sampled_from(GOLDEN), st.data())
def test_flipped_bits_and_lost_bytes_are_rejected_in_one_way(
    value: bytes, data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(value) - 1))
    harmless(
        value[:at] + bytes([value[at] ^ (1 << data.draw(st.integers(0, 7)))]) + value[at + 1 :]
    )
    harmless(value[:at])


@given(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text()
    | st.recursive(st.integers() | st.text(max_size=3), st.lists, max_leaves=20)
)
def test_any_json_is_parts_or_rejected(value: object) -> None:
    try:
        parts_from_json(value)
    except RemoteProtocolError:
        return
