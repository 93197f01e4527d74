"""Logs that a run left, read without the code by which the services read: records, boundary logs,
blocks.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from operator import itemgetter

import pyarrow as pa

from anabranch.adapters.memory.partition import Record
from anabranch.codec import boundary_records
from anabranch.codec.blocks import BlockHeaders
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.log.records import LogEntry, Part
from simulation import notes
from simulation.committed import is_committed
from simulation.earlier_lives import is_earlier
from simulation.world import Run


def records(
    run: Run, topic: str, *, of_all_lives: bool = False
) -> Iterator[tuple[int, int, Record]]:
    """(partition, offset, record) of everything that committed readers see of a topic and that is
    of this life of the pipeline, or ``of_all_lives``.
    """
    lives = {life for topic, life in run.log.topic_ids.items() if topic in run.log.topics}
    for number, partition in enumerate(run.log.topics[topic][1]):
        for offset in range(partition.start, partition.end):
            record = partition.at(offset)
            if (
                not record.control
                and is_committed(record)
                and (of_all_lives or not is_earlier(headers_of(record), lives))
            ):
                yield number, offset, record


def with_trimmed(run: Run, topic: str) -> Iterator[tuple[int, int, Record]]:
    """Yield ``records`` and the deleted ones, in order."""
    gone = [(at, offset, record) for (of, at, offset), record in run.trimmed.items() if of == topic]
    yield from sorted([*gone, *records(run, topic)], key=itemgetter(0, 1))


def boundary_log(run: Run, stream: str) -> list[tuple[int, LogEntry]]:
    """Return the entries of a boundary log, trimmed ones included."""
    topic = run.pipeline.topic_names.boundaries(stream)
    gone = [(offset, record) for (of, _, offset), record in run.trimmed.items() if of == topic]
    found = []
    for offset, record in [
        *sorted(gone, key=itemgetter(0)),
        *((offset, record) for _, offset, record in records(run, topic)),
    ]:
        with contextlib.suppress(RemoteProtocolError):
            found.append((offset, boundary_records.decode(record.value, record.headers)))
    return found


class Blocks:
    """Reads the blocks of one stream, part by part."""

    def __init__(self, run: Run, stream: str) -> None:
        self._run, self._stream = run, stream
        self._known: dict[tuple[str, Part], list[tuple[object, ...]] | None] = {}

    def __call__(self, replica: str, part: Part) -> list[tuple[object, ...]] | None:
        """Return the rows of a part; None if its blocks are missing."""
        if (replica, part) not in self._known:
            self._known[replica, part] = self._read(replica, part)
        return self._known[replica, part]

    def _read(self, replica: str, part: Part) -> list[tuple[object, ...]] | None:
        topic = self._run.pipeline.topic_names.blocks(self._stream, replica)
        partition = self._run.log.topics[topic][1][part.partition]
        found: dict[int, Record] = {}
        for offset in range(part.offset_first, min(part.offset_next, partition.end)):
            gone = self._run.trimmed.get((topic, part.partition, offset))
            record = partition.at(offset) if gone is None else gone
            head = BlockHeaders.decode(record.headers)
            if (head.attempt, head.bucket) != (part.attempt, part.bucket):
                continue
            # The client may write a record twice, but no two under one number.
            if found.setdefault(head.number, record).value != record.value:
                return None
        if len(found) != part.blocks:
            return None
        rows: list[tuple[object, ...]] = []
        segments = b""
        for _, record in sorted(found.items(), key=itemgetter(0)):
            segments += record.value or b""
            if not BlockHeaders.decode(record.headers).is_continued:
                rows += rows_of(pa.ipc.open_stream(segments).read_all())
                segments = b""
        return rows if len(rows) == part.rows else None


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """Return a table's rows as the workload has them; notices of rows as ``notes`` has them."""
    if (found := notes.rows_of(table)) is not None:
        return [*found]
    columns = [table.column(name).to_pylist() for name in ("event_time", "id", "key", "v")]
    return list(zip(*columns, strict=True))


def appends(run: Run) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Return the place in the order of all events and the virtual time of every record that a
    service wrote, by (topic, partition, offset).
    """
    return {
        (str(event.facts[0]), int(event.facts[1] or 0), int(event.facts[2] or 0)): (
            number,
            event.at_ms,
        )
        for number, event in enumerate(run.history.events)
        if event.what == "append"
    }


def headers_of(record: Record) -> dict[str, bytes]:
    return {name: value or b"" for name, value in record.headers}


def appended_ms(run: Run, topic: str) -> dict[int, int]:
    """When each record of a topic of one partition was appended; what nobody appended is not
    named.
    """
    return {
        int(facts[2] or 0): at_ms
        for at_ms, _, what, facts in run.history.events
        if what == "append" and facts[0] == topic
    }
