"""The corrected topic of a run, as its readers see it, and the rejected results beside it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from anabranch.adapters.memory.partition import Record
from anabranch.codec import control_records
from anabranch.protocol.control.records import DeliveryProgress
from checkers import upsert
from checkers.corrected import Delivered
from demo.oracle import murmur2
from simulation import more_columns, notes
from simulation.options import OutputOptions
from simulation.raw_logs import headers_of, records, with_trimmed
from simulation.world import Run

_REJECTED = -1
"""The number of the first partition of rejected results, beside those of the output topic; the
others have the numbers before it.
"""

_OF_NOTICES = 0
"""The partition of notices, which have no keys: of no importance."""


def delivered(run: Run, output: OutputOptions) -> list[Delivered]:
    """Return the corrected topic, and rejected results as further partitions: if shards change,
    only the records of one partition of the corrected topic are in order.
    """
    there = [
        (partition, offset, record, partition)
        for partition, offset, record in records(run, output.name)
    ]
    there += [
        (place - 100 * partition * (len(output.numbers) > 1), offset, record, partition)
        for place, offset, record in _rejected(run, output)
        for partition in [
            _OF_NOTICES
            if _is_notice(record)
            else _partition_of(record.key or b"", output.partitions)
        ]
    ]
    return [
        Delivered(
            place,
            offset,
            *pair(headers_of(record)["anabranch-id"].decode()),
            read_row(partition, record),
        )
        for place, offset, record, partition in there
    ]


def _rejected(run: Run, output: OutputOptions) -> list[tuple[int, int, Record]]:
    topic = f"{output.name}.rejected"
    return (
        [(_REJECTED - number, offset, record) for number, offset, record in records(run, topic)]
        if topic in run.log.topics
        else []
    )


def check_ended(run: Run, output: OutputOptions) -> list[str]:
    """Check that the shards of earlier numbers have ended, each for the number after its own, and
    have written nothing afterwards.
    """
    if len(output.numbers) == 1:
        return []
    wrong = []
    due = [
        heirs
        for count, heirs in zip(output.numbers, (*output.numbers[1:], 0), strict=True)
        for _ in range(count)
    ]
    for process, heirs in zip(output.every_process, due, strict=True):
        named = [
            entry.heirs
            for _, _, record in with_trimmed(run, run.pipeline.topic_names.progress(process))
            if isinstance(entry := control_records.decode(record.value), DeliveryProgress)
            and entry.output == process
        ]
        if any(named[:-1]) or (named and named[-1] not in (0, heirs)):
            wrong.append(f"{process} has {named} heirs, due are {heirs} at its end")
        if run.is_complete and heirs and (not named or not named[-1]):
            wrong.append(f"{process} has not ended")
    return wrong


def check_more_columns(run: Run, output: OutputOptions) -> list[str]:
    """Check further columns of results. Return what is wrong."""
    if not any(
        stage.has_more_columns for stage in run.options.stages if stage.name == output.stream
    ):
        return []
    found = (
        more_columns.wrong(json.loads(record.value or b""))
        for *_, record in records(run, output.name)
    )
    return [each for each in found if each]


def check_rejected(run: Run, output: OutputOptions) -> list[str]:
    """Results that the output topic would have taken."""
    wrong = []
    for _, _, record in _rejected(run, output):
        headers = {
            name: value
            for name, value in headers_of(record).items()
            if name in ("anabranch-id", "anabranch-event-time", "anabranch-missing")
        }
        # The origin has as many bytes in every record: the bound of a run leaves room for it.
        size = (
            len(record.value or b"")
            + len(record.key or b"")
            + sum(len(name) + len(value) for name, value in headers.items())
        )
        if _is_notice(record):
            run.history.reached("notice delivered")
            found = notes.wrong(headers_of(record), json.loads(record.value or b""))
            wrong += [f"rejected: {headers['anabranch-id'].decode()}: {found}"] if found else []
            continue
        run.history.reached("result rejected")
        if run.options.output_bytes_max is None or size <= run.options.output_bytes_max:
            wrong.append(
                f"rejected: {headers['anabranch-id'].decode()} of {size} bytes, of which the topic"
                f" takes {run.options.output_bytes_max}"
            )
    return wrong


def read_row(partition: int, record: Record) -> tuple[object, ...]:
    """Return a result as a reader gets it: its value, and what else must be right."""
    row = json.loads(record.value or b"")
    return (
        row["id"],
        row["key"],
        row["v"] + notes.NOTICE_ADDS * _is_notice(record),
        int(headers_of(record)["anabranch-event-time"]),
        record.key,
        partition,
    )


def result(row: Sequence[object], partitions: int) -> tuple[object, ...]:
    """Return a result as it must be."""
    event_time, ident, key, v = row
    if notes.is_notice(row):
        return ident, key, v, event_time, None, _OF_NOTICES
    text = f'{{"key":{key}}}'.encode()
    return ident, key, v, event_time, text, _partition_of(text, partitions)


def _is_notice(record: Record) -> bool:
    return any(name == "anabranch-row-digest" for name, _ in record.headers)


def _partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def user_rows(
    buckets: Mapping[int, Sequence[Sequence[object]]], partitions: int
) -> dict[int, list[tuple[object, ...]]]:
    """Return a stream as its users see it."""
    return {bucket: [result(row, partitions) for row in rows] for bucket, rows in buckets.items()}


def check_upsert(
    run: Run, output: OutputOptions, answer: dict[int, list[tuple[object, ...]]]
) -> list[str]:
    newest: dict[object, tuple[str, tuple[object, ...] | None]] = {}
    for partition, _, record in records(run, output.live_topic, of_all_lives=True):
        kind = headers_of(record)["anabranch-kind"].decode()
        newest[json.loads(record.key or b"")["key"]] = (
            kind,
            None if record.value is None else read_row(partition, record),
        )
    return upsert.check(newest, answer, key_index=1)


def pair(text: str) -> tuple[int, int]:
    first, second = text.split(".")
    return int(first), int(second)
