"""Conversion of one batch of a source: from fetched records to rows with event time, dead
letters, and the facts that ``SourceMachine`` needs.

Reads no clock and writes nothing: the same records and limits give the same result.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa

from anabranch.codec import event_times
from anabranch.codec.blocks import EVENT_TIME
from anabranch.codec.change_schema import SOURCE_TIME
from anabranch.codec.edge import Decoded
from anabranch.codec.framing import VALUE_SCHEMA_ID
from anabranch.ingestion import event_time
from anabranch.protocol.edge.ingestion import ChunkFacts, EventTimeLimits
from anabranch.protocol.errors import RecordRejected, RejectionReason
from anabranch.protocol.limits import EVENT_TIME_MS_MAX

if TYPE_CHECKING:
    from anabranch.pipeline.model import Source
    from anabranch.ports import Chunk

HEARTBEAT: Final = "anabranch-heartbeat"
"""Header that marks a heartbeat: a record that carries only an event time. The header's value is
that time in ms, as ASCII digits; the record's own value is ignored.
"""

EVENT_TIME_FIELD: Final = pa.field(EVENT_TIME, pa.int64(), nullable=False)
"""Event-time column, in ms: the last column of every stream."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Records fetched in one round, numbered from 0 across all chunks."""

    chunks: Sequence[Chunk]
    first: list[int]
    """Number of the first record of each chunk, then the number of records."""
    heartbeats: list[int]
    """Numbers of the records that are heartbeats, ascending."""

    @classmethod
    def of(cls, chunks: Sequence[Chunk]) -> Batch:
        """Return a batch of ``chunks``, none empty, those of one partition in offset order."""
        first, heartbeats = [0], []
        for chunk in chunks:
            if any(chunk.headers):
                start = first[-1]
                heartbeats += [
                    start + i
                    for i, headers in enumerate(chunk.headers)
                    if headers and any(key == HEARTBEAT for key, _ in headers)
                ]
            first.append(first[-1] + len(chunk.offsets))
        return cls(chunks, first, heartbeats)

    @property
    def records(self) -> int:
        """Number of records, heartbeats included."""
        return self.first[-1]

    def locate(self, number: int) -> tuple[int, int]:
        """Return (index of the chunk, index in the chunk) of record ``number``."""
        chunk = bisect_right(self.first, number) - 1
        return chunk, number - self.first[chunk]

    def values(self) -> list[bytes | None]:
        """Return the values of all records but heartbeats, in order."""
        values: list[bytes | None] = []
        for chunk in self.chunks:
            values += chunk.values
        for number in reversed(self.heartbeats):
            del values[number]
        return values

    def schema_ids(self) -> list[bytes | None] | None:
        """Return the header that names the schema of each of ``values``, or None if no record has
        it. If a record has several, the last counts, as for other headers.
        """
        found: list[bytes | None] = []
        for chunk in self.chunks:
            if any(chunk.headers):
                found += [
                    next(
                        (value for key, value in reversed(headers) if key == VALUE_SCHEMA_ID), None
                    )
                    for headers in chunk.headers
                ]
            else:
                found += [None] * len(chunk.offsets)
        for number in reversed(self.heartbeats):
            del found[number]
        return found if any(header is not None for header in found) else None

    def numbers(self, decoded: Decoded) -> event_times.Times | None:
        """Return the record number of each decoded row, or None if row i is record i."""
        if not self.heartbeats:
            return None if decoded.rows is None else np.asarray(decoded.rows, dtype=np.int64)
        all_numbers = np.delete(np.arange(self.records, dtype=np.int64), self.heartbeats)
        return (
            all_numbers
            if decoded.rows is None
            else all_numbers[np.asarray(decoded.rows, dtype=np.int64)]
        )

    def halves(self) -> tuple[Batch, Batch]:
        """Split the batch, which has at least two records, in two. Every partition's records in
        the first half precede its records in the second.
        """
        index, row = self.locate(self.records // 2)
        chunk = self.chunks[index]
        front, back = slice_chunk(chunk, slice(0, row)), slice_chunk(chunk, slice(row, None))
        return (
            Batch.of([*self.chunks[:index], *([front] if row else [])]),
            Batch.of([back, *self.chunks[index + 1 :]]),
        )


def slice_chunk(chunk: Chunk, rows: slice) -> Chunk:
    """Return the records ``rows`` of ``chunk``, whose position stays behind its last record."""
    return replace(
        chunk,
        offsets=chunk.offsets[rows],
        values=chunk.values[rows],
        keys=chunk.keys[rows],
        timestamps_ms=chunk.timestamps_ms[rows],
        headers=chunk.headers[rows],
    )


@dataclass(frozen=True, slots=True)
class Judged:
    """Result of ``judge``: the rows, dead letters and facts of one batch."""

    table: pa.Table
    """Rows of the stream, with event time as the last column."""
    rejected: list[tuple[int, RecordRejected]]
    """(record number, reason) of each dead letter, ascending."""
    facts: list[ChunkFacts]
    """Offset to read next and largest event time of each chunk, in the order of the chunks."""
    reassigned: int = 0
    """Number of rows moved into the oldest open bucket instead of being rejected as late."""
    late: int = 0
    """Number of late records, reassigned ones included. Excludes records that are late only
    because their partition was discovered late.
    """
    size_bytes: int = 0
    """Total size of the values of all records but heartbeats, in bytes."""
    buckets: int = field(default=0)
    """Number of distinct buckets in ``table``."""


def joined(pieces: Sequence[tuple[Batch, Decoded]]) -> tuple[Batch, Decoded]:
    """Return consecutively fetched ``pieces`` as one batch and its decoded values."""
    if len(pieces) == 1:
        return pieces[0]
    batches, found = zip(*pieces, strict=True)
    batch = Batch.of(list(chain.from_iterable(each.chunks for each in batches)))
    values = [each.records - len(each.heartbeats) for each in batches]
    starts = list(accumulate(values, initial=0))[:-1]
    rows: list[int] | None = None
    if any(decoded.rows is not None for decoded in found):
        rows = [
            start + row
            for start, decoded in zip(starts, found, strict=True)
            for row in (range(decoded.table.num_rows) if decoded.rows is None else decoded.rows)
        ]
    return batch, Decoded(
        pa.concat_tables([decoded.table for decoded in found]),
        rows,
        [
            (start + index, why)
            for start, decoded in zip(starts, found, strict=True)
            for index, why in decoded.rejected
        ],
        sum(decoded.size_bytes for decoded in found),
    )


def judge(
    batch: Batch, decoded: Decoded, source: Source, limits: EventTimeLimits, bucket_ms: int
) -> Judged:
    """Classify every record of ``batch`` as a row, a heartbeat or a dead letter. ``decoded`` holds
    the batch's decoded values, ``limits`` the bounds on event time at this moment.
    """
    numbers = batch.numbers(decoded)
    rejected = _undecodable(batch, decoded)
    arrived = _arrivals(batch, limits) if source.event_time.is_arrival else None
    timed = _event_time(batch, decoded.table, numbers, source, arrived)
    if timed.bad is not None:
        rejected += _without_event_time(batch, decoded.table, numbers, source, timed.bad)
    times = timed.event_time_ms
    # A record that has arrived cannot lie in the future: only the clocks differ.
    ahead = (
        times > limits.ahead_above_ms if arrived is None else np.zeros(len(times), dtype=np.bool_)
    )
    closed = (times <= limits.late_upto_ms) & ~ahead
    if timed.bad is not None:
        closed &= ~timed.bad
    from_late_partition = (
        closed & _late_through_partition(batch, numbers, times, limits)
        if limits.never_late
        else np.zeros(len(times), dtype=np.bool_)
    )
    late = closed & ~from_late_partition
    # Times ahead of the clock do not move the low mark: one wrong clock would close the future.
    marks = np.where(ahead, 0, times) if ahead.any() else times
    stated, rejected_heartbeats = _heartbeats(
        batch, arrived, limits.beat_above_ms(int(marks.max()) if len(marks) else 0)
    )
    rejected += rejected_heartbeats
    facts = _facts(batch, numbers, marks, stated)
    drop = ahead if timed.bad is None else ahead | timed.bad
    late_count, reassigned = int(late.sum()), int(from_late_partition.sum())
    if reassigned:
        times = np.where(from_late_partition, limits.reassigned_ms, times)
    rejected += [
        (_number(numbers, row), _ahead_rejection(int(times[row]), limits))
        for row in np.flatnonzero(ahead).tolist()
    ]
    if late_count and source.late == "reassign":
        times, reassigned = np.where(late, limits.reassigned_ms, times), reassigned + late_count
    elif late_count:
        rejected += [
            (_number(numbers, row), _late_rejection(int(times[row]), limits))
            for row in np.flatnonzero(late).tolist()
        ]
        drop = drop | late
    table = decoded.table
    if SOURCE_TIME in table.column_names:
        table = table.drop_columns(SOURCE_TIME)
    table = table.append_column(EVENT_TIME_FIELD, pa.array(times))
    if drop.any():
        table, times = table.filter(pa.array(~drop)), times[~drop]
    rejected.sort(key=lambda item: item[0])
    buckets = len(np.unique(-(-times // bucket_ms)))
    return Judged(
        table,
        rejected,
        facts,
        reassigned=reassigned,
        late=late_count,
        size_bytes=decoded.size_bytes,
        buckets=buckets,
    )


def _number(numbers: event_times.Times | None, row: int) -> int:
    """Return the record number of decoded row ``row``."""
    return row if numbers is None else int(numbers[row])


def _undecodable(batch: Batch, decoded: Decoded) -> list[tuple[int, RecordRejected]]:
    """Return (record number, reason) of each value that the decoder rejected."""
    if not decoded.rejected or not batch.heartbeats:
        return list(decoded.rejected)
    all_numbers = np.delete(np.arange(batch.records), batch.heartbeats)
    return [(int(all_numbers[index]), why) for index, why in decoded.rejected]


def _late_through_partition(
    batch: Batch,
    numbers: event_times.Times | None,
    times: event_times.Times,
    limits: EventTimeLimits,
) -> event_times.Mask:
    """Return which rows, if late, are late only because their partition was discovered late."""
    upto = np.repeat(
        [limits.never_late.get(chunk.at, 0) for chunk in batch.chunks], np.diff(batch.first)
    )
    excused: event_times.Mask = times <= (upto if numbers is None else upto[numbers])
    return excused


def _arrivals(batch: Batch, limits: EventTimeLimits) -> event_times.Times:
    """Return each record's arrival in ms, heartbeats included; 0 if its timestamp is unusable."""
    last = dict(limits.newest_ms)
    found = []
    for chunk in batch.chunks:
        at = (chunk.at.topic, chunk.at.partition)
        timestamps = np.asarray(chunk.timestamps_ms, dtype=np.int64)
        found.append(event_time.arrivals(timestamps, last.get(at, 0), limits.ahead_above_ms))
        last[at] = max(last.get(at, 0), int(found[-1].max()))
    return np.concatenate(found)


def _event_time(
    batch: Batch,
    table: pa.Table,
    numbers: event_times.Times | None,
    source: Source,
    arrived: event_times.Times | None,
) -> event_times.Timed:
    rule = source.event_time
    if rule.field is not None:
        return event_times.times_of(event_times.column_at(table, rule.field), rule.unit, rule.zone)
    if arrived is not None:
        return event_time.from_arrivals(arrived if numbers is None else arrived[numbers])
    stamps = np.asarray(
        list(chain.from_iterable(chunk.timestamps_ms for chunk in batch.chunks)), dtype=np.int64
    )
    return event_time.from_producers(stamps if numbers is None else stamps[numbers])


def _without_event_time(
    batch: Batch,
    table: pa.Table,
    numbers: event_times.Times | None,
    source: Source,
    bad: event_times.Mask,
) -> list[tuple[int, RecordRejected]]:
    rule, result = source.event_time, []
    for row in np.flatnonzero(bad).tolist():
        number = _number(numbers, row)
        if rule.field is not None:
            why = event_times.unusable(
                event_times.column_at(table, rule.field)[row].as_py(),
                f"field {rule.field}",
                has_zone=rule.zone is not None,
                unit=rule.number_unit,
            )
        else:
            chunk, index = batch.locate(number)
            whose = "broker" if rule.is_arrival else "producer"
            why = event_times.unusable(
                batch.chunks[chunk].timestamps_ms[index], f"the {whose}'s timestamp"
            )
        result.append((number, why))
    return result


def _heartbeats(
    batch: Batch, arrived: event_times.Times | None, above_ms: int
) -> tuple[dict[int, int], list[tuple[int, RecordRejected]]]:
    """Return (largest event time stated by heartbeats, per chunk; rejected heartbeats).

    ``arrived`` holds arrival times if they are the source's event time: a heartbeat then states its
    own. ``above_ms`` is the largest event time that a heartbeat may state otherwise.
    """
    stated: dict[int, int] = {}
    rejected: list[tuple[int, RecordRejected]] = []
    for number in batch.heartbeats:
        index, row = batch.locate(number)
        chunk = batch.chunks[index]
        text = next(value for key, value in chunk.headers[row] if key == HEARTBEAT)
        if arrived is not None:
            event_time_ms = int(arrived[number])
        elif text is not None and text.isdigit() and len(text) <= len(str(EVENT_TIME_MS_MAX)):
            event_time_ms = int(text)
        else:
            what = None if text is None else text[:40]
            rejected.append(
                (
                    number,
                    RecordRejected(
                        RejectionReason.NO_EVENT_TIME,
                        f"header {HEARTBEAT} is {what!r}, not a time in ms",
                    ),
                )
            )
            continue
        if not 1 <= event_time_ms <= EVENT_TIME_MS_MAX:
            rejected.append((number, event_times.unusable(event_time_ms, f"header {HEARTBEAT}")))
        elif arrived is None and event_time_ms > above_ms:
            why = (
                f"header {HEARTBEAT} is {event_time_ms}, too far ahead of the clock or of the"
                f" source's newest event time (at most {above_ms} now)"
            )
            rejected.append((number, RecordRejected(RejectionReason.BEYOND_MAX_AHEAD, why)))
        else:
            stated[index] = max(event_time_ms, stated.get(index, 0))
    return stated, rejected


def _facts(
    batch: Batch,
    numbers: event_times.Times | None,
    marks: event_times.Times,
    stated: dict[int, int],
) -> list[ChunkFacts]:
    """Return the next offset and the largest event time of each chunk. ``marks`` holds each row's
    event time, or 0 if it must not count; ``stated`` the heartbeats' times by chunk index.
    """
    cuts = batch.first if numbers is None else np.searchsorted(numbers, batch.first).tolist()
    facts = []
    for index, chunk in enumerate(batch.chunks):
        rows = marks[cuts[index] : cuts[index + 1]]
        largest = max(int(rows.max()) if len(rows) else 0, stated.get(index, 0))
        facts.append(
            ChunkFacts((chunk.at.topic, chunk.at.partition), chunk.offset_next, largest or None)
        )
    return facts


def _ahead_rejection(event_time_ms: int, limits: EventTimeLimits) -> RecordRejected:
    return RecordRejected(
        RejectionReason.BEYOND_MAX_AHEAD,
        f"event_time {event_time_ms} is further ahead of the clock than allowed (at most"
        f" {limits.ahead_above_ms} now)",
    )


def _late_rejection(event_time_ms: int, limits: EventTimeLimits) -> RecordRejected:
    return RecordRejected(
        RejectionReason.LATE,
        f"event_time {event_time_ms} is not newer than the boundary {limits.late_upto_ms}",
    )
