"""The users' records of a seed, and the answer: computed from them in a few lines, without
any code of the project.
"""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from simulation import notes
from simulation.options import WINDOW_BUCKETS, Operator, Options

Row = tuple[int, int, int, int]
"""(event time in ms, id, key, v): its order is the canonical one."""
Buckets = dict[int, list[Row]]
"""Bucket -> its rows in canonical order; empty buckets are left out."""

BASE_MS = 1_000_000
"""Wall clock at the beginning of a run."""
AHEAD_MS = 3_600_000
"""Distance from the clock of records that are too far ahead of it, in ms."""
KEYS = (0, 3, 7)
"""Keys of the records. No one of two, three or four partitions of a topic has them all."""
_MANY_KEYS: Final = range(500)
"""Keys of records of which a share has about that share of the rows."""
FAR_BUCKETS = 8
TIMED_BUCKETS = 8
"""After so many without a row nothing is left of the largest count that a key has here."""
_VERSION_ADDS = 7_000
"""Number that each version of a stage's function adds to the values of the previous one."""


@dataclass(frozen=True)
class Sent:
    """One record of a user. ``row`` is None for a hostile one."""

    at_ms: int
    """Virtual time at which its producer sends it."""
    source: str
    partition: int
    value: bytes | None
    row: Row | None
    key: bytes | None = None
    """Key of the record, which no computation uses."""
    headers: tuple[tuple[str, bytes | None], ...] = ()
    """Headers of its producer, which no computation uses."""


HEARTBEAT_LAG_MS = 40
"""A producer's heartbeat says a time that no record after it is behind, out-of-orderness
apart: records are sent with this much jitter at most.
"""


def first_bucket(options: Options) -> int:
    """Return the bucket of the first records."""
    return BASE_MS // options.bucket_ms + 1


def last_bucket(options: Options) -> int:
    """All data is in buckets up to this one, and every window that has data ends in one."""
    return ends(options, first_bucket(options) + options.buckets + options.ahead[1])


def ends(options: Options, bucket: int) -> int:
    """Return the last bucket that the records of ``bucket`` influence."""
    return (
        bucket
        + WINDOW_BUCKETS
        + sum(
            {"later": 1, "far": FAR_BUCKETS, "timed": TIMED_BUCKETS}.get(stage.operator, 0)
            for stage in options.stages
        )
    )


def data_end_ms(options: Options) -> int:
    """Virtual time from which on there are heartbeats only."""
    return options.buckets * options.bucket_ms + options.out_of_orderness_ms + HEARTBEAT_LAG_MS


def topic_of(source: str) -> str:
    """Return the input topic of a source, or of one of its shards."""
    return f"in.{source.partition('.')[0]}"


def records(options: Options) -> list[Sent]:
    """Return what all producers send, by time."""
    rng, edges = (
        random.Random(f"{options.seed}/records"),
        random.Random(f"{options.seed}/edges of buckets"),
    )
    width = options.bucket_ms
    first = first_bucket(options)
    number = 0
    sent: list[Sent] = []
    is_ahead, ahead_ms = options.ahead[1] > 0, 0
    keys: Sequence[int] = range(options.few_keys) if options.few_keys else _MANY_KEYS
    keys = keys if options.has_many_keys else KEYS
    hot = random.Random(f"{options.seed}/hot key")
    hot_key = hot.choice(keys)
    for source in options.sources:
        for partition in range(options.source_partitions):
            mine: list[tuple[int, Row | None]] = []
            for bucket in range(first, first + options.buckets):
                if options.quiet[0] <= bucket - first < options.quiet[1]:
                    continue
                is_rush = options.rush[0] <= bucket - first < options.rush[1]
                for _ in range(rng.randint(0, options.rows_max * options.rush[2] ** is_rush)):
                    number += 1
                    event_time_ms = (bucket - 1) * width + rng.randint(1, width)
                    key = keys[rng.randrange(len(keys))]
                    if options.hot_percent and hot.randrange(100) < options.hot_percent:
                        key = hot_key
                    if options.edge_percent and edges.randrange(100) < options.edge_percent:
                        event_time_ms = (bucket - 1) * width + edges.choice((1, width))
                    if (source, partition, bucket - first) == (
                        options.sources[0],
                        0,
                        options.ahead[0],
                    ) and is_ahead:
                        is_ahead, ahead_ms = False, options.ahead[1] * width
                    row: Row | None = (
                        event_time_ms + ahead_ms,
                        number,
                        key,
                        rng.randrange(100),
                    )
                    ahead_ms = 0
                    mine.append(
                        (event_time_ms - BASE_MS + rng.randint(0, options.out_of_orderness_ms), row)
                    )
                    if rng.randrange(100) < options.hostile_percent:
                        mine.append((mine[-1][0], None))
            for due_ms, row in sorted(mine, key=lambda item: (item[0], item[1] or (0, 0, 0, 0))):
                sent.append(
                    Sent(
                        due_ms + rng.randint(0, 20),
                        source,
                        partition,
                        _value(row, due_ms, options, rng),
                        row,
                        _key(len(sent)),
                        _headers(len(sent)),
                    )
                )
    # Within a partition in the order of their times: a producer sends one after the other.
    return sorted(_in_order(sent), key=lambda each: each.at_ms)


def _in_order(sent: list[Sent]) -> list[Sent]:
    latest: dict[tuple[str, int], int] = {}
    result = []
    for each in sent:
        at_ms = max(each.at_ms, latest.get((each.source, each.partition), 0))
        latest[each.source, each.partition] = at_ms
        result.append(replace(each, at_ms=at_ms))
    return result


def _key(number: int) -> bytes | None:
    """Return the key of the record with that number: some have none, some an empty one."""
    return {0: None, 1: b""}.get(number % 5, b"sent %d" % number)


def _headers(number: int) -> tuple[tuple[str, bytes | None], ...]:
    """Return the headers of the record with that number: some have none, some one that looks like
    the project's.
    """
    return {
        0: (("trace", b"%d" % number), ("trace", b"again")),
        1: (("empty", None), ("Anabranch-Offset", b"7")),
        2: (("anabranch-reason", b"late"),),
    }.get(number % 4, ())


_HOSTILE: Final[dict[bytes | None, str]] = {
    b"{": "not_json",
    b"": "empty_value",
    None: "null_value",
    b'{"time": null, "id": 1, "key": 1, "v": 1}': "no_event_time",
    b'{"id": "x"}': "missing_field",
}
"""Values that are no row -> why."""


def reason_of(value: bytes | None) -> str:
    """Why a record with ``value`` becomes a dead letter, if it does."""
    if value in _HOSTILE:
        return _HOSTILE[value]
    return "beyond_max_ahead" if row_of(value) is None else "late"


def _value(row: Row | None, due_ms: int, options: Options, rng: random.Random) -> bytes | None:
    if row is None and options.max_ahead_ms is not None and rng.random() < 0.5:
        row = BASE_MS + due_ms + AHEAD_MS, 0, 0, 0
    if row is None:
        return rng.choice(tuple(_HOSTILE))
    event_time_ms, ident, key, v = row
    return json.dumps({"time": event_time_ms, "id": ident, "key": key, "v": v}).encode()


def typed(values: tuple[object, ...]) -> Row:
    """``values`` as a row."""
    event_time_ms, ident, key, v = (int(str(value)) for value in values)
    return event_time_ms, ident, key, v


def row_of(value: bytes | None) -> Row | None:
    """Parse a record; None if it is hostile."""
    try:
        fields = json.loads(value or b"")
        event_time_ms, ident, key, v = (fields[name] for name in ("time", "id", "key", "v"))
    except (ValueError, KeyError):
        return None
    return (
        None
        if event_time_ms is None or event_time_ms >= BASE_MS + AHEAD_MS // 2
        else (event_time_ms, ident, key, v)
    )


def bucket_of(event_time_ms: int, width_ms: int) -> int:
    """Return the bucket of a time, which includes its upper bound."""
    return (event_time_ms + width_ms - 1) // width_ms


def source_buckets(options: Options, sent: list[Sent], source: str) -> Buckets:
    """Return the stream of a source that loses nothing and has no late records."""
    found: defaultdict[int, list[Row]] = defaultdict(list)
    for each in sent:
        if each.source == source and each.row is not None:
            found[bucket_of(each.row[0], options.bucket_ms)].append(each.row)
    return {bucket: sorted(found[bucket]) for bucket in sorted(found)}


def mapped(row: Row) -> Row:
    """Return the result of ``map`` for a row."""
    return row[0], row[1], row[2], 2 * row[3] + 1


def mixed(rows: Collection[Row], width_ms: int) -> list[Row]:
    """Return the results of ``mixed`` for whole buckets: each row with the number of all rows of
    its bucket.
    """
    counts = Counter(bucket_of(row[0], width_ms) for row in rows)
    return [(*row[:3], row[3] + counts[bucket_of(row[0], width_ms)]) for row in rows]


def moved(row: Row, width_ms: int) -> Row:
    """Return the result of ``later`` for a row: the same, a bucket later."""
    return row[0] + width_ms, row[1], row[2], row[3]


def window_end(bucket: int) -> int:
    """Return the last bucket of the long window of ``bucket``."""
    return -(-bucket // FAR_BUCKETS) * FAR_BUCKETS


def far(row: Row, width_ms: int) -> Row:
    """Return the result of ``far`` for a row: the same, at the end of its long window."""
    return window_end(bucket_of(row[0], width_ms)) * width_ms, row[1], row[2], row[3]


def result_row(bucket: int, width_ms: int, key: int, total: int) -> Row:
    """Return the result of a window that ends with ``bucket``."""
    return bucket * width_ms, -bucket, key, 1_000 + total


def of_version(row: Row, version: int) -> Row:
    """Return the row that a version of the function computes where the first one computes
    ``row``.
    """
    return row[0], row[1], row[2], row[3] + version_adds(version)


def version_adds(version: int) -> int:
    """Return what a version of the function adds to each value of the first one."""
    return _VERSION_ADDS * (version - 1)


def is_window(row: Row) -> bool:
    """Whether a stage made the row of a window (``result_row``)."""
    return row[1] < 0


def apply(operator: Operator, data: Buckets, width_ms: int) -> Buckets:
    """Compute a stage from whole buckets."""
    if operator == "map":
        return {bucket: sorted(map(mapped, rows)) for bucket, rows in data.items()}
    if operator == "mixed":
        return {bucket: sorted(mixed(rows, width_ms)) for bucket, rows in data.items()}
    if operator == "later":
        return {
            bucket + 1: sorted(moved(row, width_ms) for row in rows)
            for bucket, rows in data.items()
        }
    found: defaultdict[int, list[Row]] = defaultdict(list)
    if operator == "far":
        for bucket, rows in data.items():
            found[window_end(bucket)] += [far(row, width_ms) for row in rows]
        return {bucket: sorted(found[bucket]) for bucket in sorted(found)}
    if operator == "timed":
        return _timed(data, width_ms)
    span = WINDOW_BUCKETS if operator == "sum" else 1
    totals: defaultdict[tuple[int, int], int] = defaultdict(int)
    for bucket, rows in data.items():
        end = -(-bucket // span) * span
        for row in rows:
            totals[end, row[2]] += row[3] if operator == "sum" else 1
            if operator == "both":
                found[bucket].append(row)
    for (end, key), total in totals.items():
        found[end].append(result_row(end, width_ms, key, total))
    return {bucket: sorted(found[bucket]) for bucket in sorted(found)}


def _timed(data: Buckets, width_ms: int) -> Buckets:
    """At the end of every bucket each key tells its count, and forgets half of it."""
    counts: dict[int, int] = {}
    found: Buckets = {}
    for bucket in range(min(data, default=0), max(data, default=-1) + TIMED_BUCKETS):
        for row in data.get(bucket, ()):
            counts[row[2]] = counts.get(row[2], 0) + 1
        if counts:
            found[bucket] = sorted(
                result_row(bucket, width_ms, key, count) for key, count in counts.items()
            )
        counts = {key: count // 2 for key, count in counts.items() if count > 1}
    return found


def answers(
    options: Options,
    sources: dict[str, Buckets],
    missing: Collection[str] = (),
    since: int = 0,
    *,
    gaps: Mapping[str, Collection[int]] | None = None,
) -> dict[str, Buckets]:
    """Every stream, from the streams of the sources. Those that are ``missing`` have nothing
    after bucket ``since``; in buckets of ``gaps`` a stream has nothing.
    """
    gaps = gaps or {}

    def cut(name: str, data: Buckets) -> Buckets:
        given_up = gaps.get(name, ())
        return {
            bucket: rows
            for bucket, rows in data.items()
            if bucket not in given_up and (name not in missing or bucket <= since)
        }

    streams = {name: cut(name, data) for name, data in sources.items()}
    for stage in options.stages:
        joined: defaultdict[int, list[Row]] = defaultdict(list)
        for stream in stage.reads:
            for bucket, rows in streams[stream].items():
                joined[bucket] += notes.readable(rows)
        made = apply(stage.operator, joined, options.bucket_ms)
        streams[stage.name] = cut(stage.name, notes.marked(made) if stage.has_notes else made)
    return streams
