"""The batch-safe list on real Spark: one bucket per batch and many buckets in one batch give the
same buckets.

Replica 0 of each stage is fed bucket by bucket; replica 1 is started when all input is there and
takes it in a few batches. What each wrote is compared bucket by bucket: digests and rows. So this
is also the test that replicas agree.
"""

from __future__ import annotations

import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from decimal import ROUND_HALF_UP, Decimal
from fractions import Fraction
from functools import reduce
from operator import and_, or_, xor
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.spark import plan_facts, query
from anabranch.adapters.spark.known_names import SPARK
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.catalog import topic_settings
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.stage.planner import PlanFacts, PlanTraits
from harness import outputs
from harness.batch_safe_functions import FUNCTIONS
from harness.manager_world import started_manager
from harness.sources import everything
from harness.spark_sessions import small_session
from harness.stages import Feed, Output, RunningStage, create_topics, readings, write_pipeline
from harness.waiting import wait_until

pytestmark = pytest.mark.integration

REJECTED = {
    "shown": "collect_set(key) has no fixed order",
    "mean_of_longs": "adds floating-point numbers",
    "mean_of_ints": "adds floating-point numbers",
    "sum_of_floats": "adds floating-point numbers",
    "own_function": "MapInArrow sees whole batches",
}
BUCKETS = 14
QUIET = (15, 16, 20)
FILLED = BUCKETS - len(QUIET)
END = 10 + BUCKETS
END_MS = END * 100
Rows = dict[str, list[tuple[int, int, int]]]


def rows_of(stream: str) -> list[tuple[int, int, int]]:
    """(event time, key, value): busy and empty buckets, rows exactly on bounds, and some twice."""
    g = random.Random(stream)
    rows = []
    for bucket in range(11, 11 + BUCKETS):
        if bucket in QUIET:
            continue
        rows += [
            (
                (bucket - 1) * 100 + g.choice((1, 50, 99, 100, g.randint(1, 100))),
                g.randint(0, 3),
                g.randint(0, 30),
            )
            for _ in range(6)
        ]
        rows += [(bucket * 100, 1, 7), (bucket * 100, 1, 7), ((bucket - 1) * 100 + 1, 2, 8)]
    return rows


def count_windows(
    rows: list[tuple[int, int, int]], size: int, slide: int
) -> Counter[tuple[int, int]]:
    """(window end, key) -> rows, for windows that end within the closed buckets. Spark's
    windows include their start, not their end.
    """
    found: Counter[tuple[int, int]] = Counter()
    for event_time, key, _ in rows:
        end = event_time // slide * slide + slide
        while end - size <= event_time:
            if end <= END_MS:
                found[end, key] += 1
            end += slide
    return found


def by_window(rows: list[tuple[int, int, int]], size: int) -> dict[int, list[tuple[int, int, int]]]:
    """Window end -> rows, of the windows of ``size`` that end within the closed buckets."""
    found: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for row in rows:
        end = row[0] // size * size + size
        if end <= END_MS:
            found[end].append(row)
    return found


def windowed(rows: list[tuple[int, int, int]], size: int) -> dict[tuple[int, int], list[int]]:
    """(window end, key) -> values, of the windows of ``size`` that end within the closed
    buckets.
    """
    found: dict[tuple[int, int], list[int]] = defaultdict(list)
    for end, inside in by_window(rows, size).items():
        for _, key, value in inside:
            found[end, key].append(value)
    return found


def expect_stateless(rows: Rows) -> Counter[Any]:
    found = Counter((s, k, v, "b", 0) for s, k, v in rows["b"])
    for s, k, v in rows["a"]:
        if v % 3:
            found.update(
                (s, k, e, what, much)
                for e in (k, v)
                for what, much in (("twice", 2 * v), ("more", v + 1), ("square", v * v))
            )
    return found


def expect_window(rows: Rows) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for (end, key), values in windowed(rows["a"], 300).items():
        price, members = Decimal(sum(values)) * Decimal("0.37"), sorted(set(values))
        mean_price = (price / len(values)).quantize(Decimal("1e-8"), ROUND_HALF_UP)
        found[
            end,
            key,
            len(values),
            sum(values),
            min(values),
            max(values),
            len(members),
            str(members),
            sum(values) / len(values),
            f"{price:.4f}",
            f"{mean_price:.8f}",
            max(values) < 28,
            max(values) > 28,
            reduce(and_, values),
            reduce(or_, values),
            reduce(xor, values),
            sum(v > 10 for v in values),
        ] += 1
    return found


def expect_sliding(rows: Rows) -> Counter[Any]:
    found: Counter[Any] = Counter(
        {(end, key, -1, n): 1 for (end, key), n in count_windows(rows["a"], 400, 200).items()}
    )
    groups: Counter[Any] = Counter()
    for (end, key), values in windowed(rows["a"], 300).items():
        for value in values:
            groups.update([(end, key, value % 2), (end, key, None), (end, None, None)])
    return found + Counter((*group, n) for group, n in groups.items())


def expect_window_of_windows(rows: Rows) -> Counter[Any]:
    totals: dict[int, list[int]] = defaultdict(list)
    for (end, _), values in windowed(rows["a"], 200).items():
        totals[(end - 1) // 400 * 400 + 400].append(sum(values))
    return Counter((end, max(tops), len(tops)) for end, tops in totals.items() if end <= END_MS)


def expect_deduplicate(rows: Rows) -> Counter[Any]:
    return Counter(set(rows["a"])) + Counter({(s, k, -1) for s, k, _ in rows["a"]})


def expect_join(rows: Rows) -> Counter[Any]:
    found = Counter(
        (max(s, t), "both", k, v, w)
        for s, k, v in rows["a"]
        for t, j, w in rows["b"]
        if j == k and abs(s - t) <= 200
    )
    of_file = ["nought", "one"]
    found.update(
        (s, f"key {k}{of_file[k]}!", k, v, w)
        for s, k, v in rows["a"]
        if k in {0, 1} and v % 3 in {0, 1}
        for w in (10, 20)
    )
    return found


def expect_session_windows(rows: Rows) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key in {k for _, k, _ in rows["a"]}:
        n = total = 0
        end = 0
        for s, v in [*sorted((s, v) for s, k, v in rows["a"] if k == key), (END_MS + 1000, 0)]:
            if n and s > end:
                found[end, key, n, total] += end <= END_MS
                n, total = 0, 0
            n += 1
            total += v
            end = s + 100
    return +found


def expect_pending(rows: Rows) -> Counter[Any]:
    windows = count_windows([(s, 0, v) for s, _, v in rows["a"]], 200, 200)
    return Counter((s, k) for s, k, _ in rows["a"]) + Counter(
        (end, n) for (end, _), n in windows.items()
    )


def expect_sessions(rows: Rows) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for key in {k for _, k, _ in rows["a"]}:
        events = 0
        total = 0
        due = END_MS + 1
        for s, v in [*sorted((s, v) for s, k, v in rows["a"] if k == key), (END_MS + 1, -1)]:
            if due < s:
                found[due, key, events, total] += 1
                events, total = 0, 0
            if s <= END_MS:
                found[s, key, -1, total * 10 + v] += v % 5 == 0
                events += 1
                total = (total * 10 + v) % 1_000_003
                due = s + 150
    return +found


def expect_twice(rows: Rows) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for s, k, v in rows["a"]:
        found.update(
            (max(s, t), "pair", k, v, w)
            for t, other, w in rows["a"]
            if other == k and v < w and abs(t - s) <= 200
        )
        if v < 20:
            found[s, "low", k, v, None] += 1
        if v % 2:
            found[s, "odd", k, None, v] += 1
    return found


def expect_with_clause(rows: Rows) -> Counter[Any]:
    low = [row for row in rows["a"] if row[2] < 20]
    found = Counter((s, "few", k, v) for s, k, v in low if k < 3)
    counts = {each: len(values) for each, values in windowed(low, 300).items()}
    for (end, key), n in counts.items():
        if n == max(m for (other, _), m in counts.items() if other == end):
            found[end, "most", key, n] += 1
    return found


def expect_generators(rows: Rows) -> Counter[Any]:
    found: Counter[Any] = Counter()
    for s, k, v in rows["a"]:
        found.update((s, name, k, v) for name in ("inline", "stack", "json_tuple"))
        found.update((s, name, v, k) for name in ("inline", "stack"))
        found.update((s, "posexplode", i, x) for i, x in enumerate((k, v)))
    return found


def expect_hard(rows: Rows) -> Counter[Any]:
    def number(value: int) -> float | None:
        return (math.nan, 0.0, 0.0, None, value / 2)[value % 5]

    def rank(d: float | None) -> tuple[int, float]:  # of Spark: null, numbers, NaN
        return (-1, 0.0) if d is None else (1, 0.0) if math.isnan(d) else (0, d)

    def text(d: float | None) -> str:
        return "null" if d is None else "NaN" if math.isnan(d) else str(d)

    found: Counter[Any] = Counter()
    for end, inside in by_window(rows["a"], 300).items():
        values = [v for _, _, v in inside]
        numbers = [d for d in map(number, values) if d is not None]
        top = max(values, key=lambda v: (rank(number(v)), v))
        members = sorted({(k, v % 2) for _, k, v in inside})
        judged = [v > 28 for v in values if v % 5 != 3]
        parts = [
            *([text(min(numbers, key=rank)), text(max(numbers, key=rank))] if numbers else []),
            f"{{{text(number(top))}, {top}}}",
            str(min([v % 3, k] for _, k, v in inside)),
            str(sum((1 if v % 2 == 0 else -1) * (2**63 - 1) for v in values)),
            "[" + ", ".join(f"{{{k}, [{odd}]}}" for k, odd in members) + "]",
            str(len({min(v % 5, 1) if v % 5 < 3 else v + 2 for v in values if v % 5 != 3})),
            str(len(numbers)),
            *([str(any(judged)).lower()] if judged else []),
        ]
        found[end, "window", "|".join(parts)] += 1
    for s, k in {(s, k) for s, k, _ in rows["a"]}:
        found.update((s, name, f"{k}|0.0") for name in ("kept", "distinct"))
    return found


CASES: dict[str, tuple[list[str], list[str], Callable[[Rows], Counter[Any]]]] = {
    "stateless": (["a", "b"], ["event_time", "key", "each", "what", "much"], expect_stateless),
    "window": (
        ["a"],
        [
            "event_time",
            "key",
            "n",
            "total",
            "low",
            "high",
            "distinct",
            "members",
            "mean",
            "price",
            "mean_price",
            "all_below",
            "any_above",
            "all_bits",
            "any_bits",
            "odd_bits",
            "above",
        ],
        expect_window,
    ),
    "generators": (["a"], ["event_time", "name", "x", "y"], expect_generators),
    "hard": (["a"], ["event_time", "name", "text"], expect_hard),
    "sliding": (["a"], ["event_time", "key", "odd", "count"], expect_sliding),
    "session_windows": (["a"], ["event_time", "key", "n", "total"], expect_session_windows),
    "window_of_windows": (["a"], ["event_time", "top", "keys"], expect_window_of_windows),
    "deduplicate": (["a"], ["event_time", "key", "value"], expect_deduplicate),
    "join": (["a", "b"], ["event_time", "name", "key", "value", "v"], expect_join),
    "twice": (["a"], ["event_time", "name", "key", "value", "v"], expect_twice),
    "with_clause": (["a"], ["event_time", "name", "key", "value"], expect_with_clause),
    "pending": (["a"], ["event_time", "key"], expect_pending),
    "sessions": (["a"], ["event_time", "key", "events", "total"], expect_sessions),
}


@dataclass(frozen=True)
class Ran:
    """Results of two replicas over the same rows, one of which ran bucket by bucket, the other
    everything at once.
    """

    rows: Rows
    found: dict[str, dict[int, list[dict[str, Any]]]]
    """Rows of each bucket, by replica."""
    digests: dict[str, dict[int, int]]
    batches: dict[str, int]
    is_batch_safe: object
    why: object


def run_both(reads: list[str], kafka: str, pipeline: Pipeline, folder: Path) -> Ran:
    """Replica 0, then replica 1, each with a state directory of its own."""
    rows = {name: rows_of(name) for name in reads}
    feeds = {name: Feed(kafka, pipeline, name) for name in reads}
    output = Output(kafka, pipeline, "s")
    batches = {}
    with RunningStage(pipeline, "s.0", kafka, folder / "state") as stage:
        for bucket in range(11, END + 1):
            for name, feed in feeds.items():
                mine = [r for r in rows[name] if (bucket - 1) * 100 < r[0] <= bucket * 100]
                feed.append(readings(mine) if mine else None, bucket)
            output.wait_closed(bucket, stage)
        batches["0"] = stage.batches_upto(END)
        detail = stage.service.status.detail
    # a machine of its own: with the first one's checkpoint within reach it would go on from that
    with RunningStage(pipeline, "s.1", kafka, folder / "state of the other") as stage:
        output.wait_replica("1", END, stage)
        batches["1"] = stage.batches_upto(END)
    found = {replica: output.replica_rows(replica, 1, END) for replica in "01"}
    digests = {
        r: {
            b: sum(p.digest for p in output.reader.log_state.replica_bucket(r, b) or ()) % 2**64
            for b in range(1, END + 1)
        }
        for r in "01"
    }
    output.close()
    for feed in feeds.values():
        feed.close()
    assert any(found["0"].values()), "a test of nothing"
    return Ran(rows, found, digests, batches, detail["batch_safe"], detail["why"])


def pipeline_of(function: str, reads: list[str], kafka: str, prefix: str, folder: Path) -> Pipeline:
    stages = (
        f"s:\n  reads: [{', '.join(reads)}]\n  participant: north\n  transform: MODULE:{function}\n"
        "  replicas: 2\n"
    )
    pipeline = write_pipeline(folder, prefix, FUNCTIONS, sources=reads, stages=stages)
    create_topics(kafka, pipeline)
    return pipeline


@pytest.mark.parametrize(
    "function",
    [pytest.param(name, marks=() if name == "window" else pytest.mark.nightly) for name in CASES],
)
def test_one_bucket_per_batch_and_many_in_one_give_the_same(
    function: str, kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    reads, columns, expect = CASES[function]
    ran = run_both(
        reads, kafka, pipeline_of(function, reads, kafka, topic_prefix, tmp_path), tmp_path
    )
    assert ran.is_batch_safe, ran.why
    assert ran.batches["0"] >= BUCKETS, "one bucket per batch"
    assert ran.batches["1"] <= 3, "all in one batch, and what a warm-up needs"
    assert ran.found["0"] == ran.found["1"]
    assert ran.digests["0"] == ran.digests["1"]
    for bucket, made in ran.found["0"].items():
        assert all((bucket - 1) * 100 < row["event_time"] <= bucket * 100 for row in made)
    given = Counter(
        tuple(row[c] for c in columns)
        for bucket_rows in ran.found["0"].values()
        for row in bucket_rows
    )
    assert given == expect(ran.rows)


@pytest.mark.nightly
def test_sums_of_floats_are_the_same_at_two_replicas_and_raise_no_alarm(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """Their last digits depend on the order of addition: so a batch has one bucket, at both,
    and its rows are in order.
    """
    pipeline = pipeline_of("sum_of_floats", ["a"], kafka, topic_prefix, tmp_path)
    ran = run_both(["a"], kafka, pipeline, tmp_path)
    values = [row["sum"] for bucket in ran.found["0"].values() for row in bucket]
    exact = [
        float(sum(Fraction(v, 7) for _, _, v in rows))
        for rows in by_window(ran.rows["a"], 300).values()
    ]
    assert sorted(values) == pytest.approx(sorted(exact), rel=1e-12)
    assert any(
        value != right for value, right in zip(sorted(values), sorted(exact), strict=True)
    ), "sums that are exact show nothing"
    assert not ran.is_batch_safe
    assert ran.batches["0"] >= BUCKETS > ran.batches["1"] >= FILLED
    assert ran.digests["0"] == ran.digests["1"]
    log = KafkaEventLog(kafka)
    admin = log.admin()
    admin.create([topic_settings("alarms", pipeline.topic_names.alarms())])
    admin.close()
    manager = started_manager(log, pipeline, SystemClock(), SystemEntropy())
    try:
        compared = {"a": 0, "s": len(ran.found["0"])}
        wait_until(
            outputs.after_step(manager, lambda: manager.status.detail["compared"] == compared),
            30,
            f"{compared} are compared",
        )
        manager.step()
    finally:
        manager.stop()
    assert everything(log, pipeline.topic_names.alarms()) == []


@pytest.mark.nightly
def test_without_timers_empty_buckets_in_the_same_batch_change_nothing(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    ran = run_both(
        ["a", "b"],
        kafka,
        pipeline_of("by_bucket", ["a", "b"], kafka, topic_prefix, tmp_path),
        tmp_path,
    )
    assert not ran.is_batch_safe
    assert ran.batches["0"] >= BUCKETS > ran.batches["1"] >= FILLED
    assert ran.found["0"] == ran.found["1"]
    assert ran.digests["0"] == ran.digests["1"]
    given = Counter(
        (row["name"], row["event_time"], row["key"], row["x"])
        for rows in ran.found["0"].values()
        for row in rows
    )
    outer: Counter[Any] = Counter()
    for event_time, key, _ in ran.rows["a"]:
        values = [
            v for t, k, v in ran.rows["b"] if k == key and event_time <= t <= event_time + 200
        ]
        outer.update(
            ("outer", event_time + 400, key, float(value))
            for value in values or [-1]
            if event_time + 400 <= END_MS
        )
    assert Counter({row: n for row, n in given.items() if row[0] == "outer"}) == outer
    firsts = {
        key: min(row for row in ran.rows["a"] if row[1] == key)
        for key in {row[1] for row in ran.rows["a"]}
    }
    assert Counter({row: n for row, n in given.items() if row[0] == "first"}) == Counter(
        ("first", event_time, key, float(value)) for event_time, key, value in firsts.values()
    )
    assert sum(n for row, n in given.items() if row[0] == "sum") == len(
        by_window(ran.rows["a"], 300)
    )


@pytest.mark.nightly
def test_a_time_out_of_a_pandas_function_is_over_by_its_own_watermark(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """It must not lie before the end of its bucket, which is the watermark while the function
    runs; it fires in the batch that passes it.
    """
    ran = run_both(
        ["a"], kafka, pipeline_of("timeouts", ["a"], kafka, topic_prefix, tmp_path), tmp_path
    )
    assert min(ran.batches.values()) >= BUCKETS, "every bucket has its batch"
    assert ran.found["0"] == ran.found["1"]
    assert ran.digests["0"] == ran.digests["1"]
    expected: Counter[Any] = Counter()
    for key in {k for _, k, _ in ran.rows["a"]}:
        seen = 0
        last = 0
        due = END_MS
        for bucket in range(11, END + 1):
            times = [t for t, k, _ in ran.rows["a"] if k == key and -(-t // 100) == bucket]
            if times:
                seen, last = seen + len(times), max(times)
                due = max(last + 150, bucket * 100)
            elif seen and due < bucket * 100:
                expected[last + 200, key, seen] += last + 200 <= END_MS
                seen = 0
    assert +expected, "a test of nothing"
    given = Counter(
        (row["event_time"], row["key"], row["events"])
        for rows in ran.found["0"].values()
        for row in rows
    )
    assert given == +expected


@pytest.mark.nightly
def test_right_and_full_outer_joins_take_one_bucket_per_batch(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A row's time may be over while it is joined, where buckets after it are in the same batch."""
    ran = run_both(
        ["a", "b"],
        kafka,
        pipeline_of("outers", ["a", "b"], kafka, topic_prefix, tmp_path),
        tmp_path,
    )
    assert min(ran.batches.values()) >= BUCKETS, "every bucket has its batch"
    assert ran.found["0"] == ran.found["1"]
    assert ran.digests["0"] == ran.digests["1"]
    given = Counter(
        (row["name"], row["event_time"], row["value"], row["v"])
        for rows in ran.found["0"].values()
        for row in rows
    )
    pairs = Counter[Any]()
    lonely_a = Counter[Any](ran.rows["a"])
    lonely_b = Counter[Any](ran.rows["b"])
    for left in ran.rows["a"]:
        for right in ran.rows["b"]:
            if left[1] == right[1] and left[0] <= right[0] <= left[0] + 200:
                pairs[right[0] + 400, left[2], right[2]] += 1
                lonely_a.pop(left, None)
                lonely_b.pop(right, None)
    without_a = Counter[Any]((t + 400, -1, v) for t, _, v in lonely_b.elements())
    without_b = Counter[Any]((t + 400, v, -1) for t, _, v in lonely_a.elements())
    expected = Counter(("right", *row) for row in (pairs + without_a).elements())
    expected.update(("full", *row) for row in (pairs + without_a + without_b).elements())
    assert without_a
    assert without_b
    assert given == Counter({row: n for row, n in expected.items() if row[1] <= END_MS})


@pytest.mark.nightly
def test_where_time_that_passes_counts_every_bucket_has_its_batch(
    kafka: str, topic_prefix: str, tmp_path: Path
) -> None:
    """A key is forgotten when its bucket's time has passed, which is before the rows of the
    next bucket, however many are there.
    """
    ran = run_both(
        ["a"], kafka, pipeline_of("within", ["a"], kafka, topic_prefix, tmp_path), tmp_path
    )
    assert min(ran.batches.values()) >= BUCKETS
    assert ran.found["0"] == ran.found["1"]
    firsts: dict[tuple[int, int], int] = {}
    for event_time, key, _ in sorted(ran.rows["a"]):
        firsts.setdefault((-(-event_time // 100), key), event_time)
    expected = sorted((event_time, key) for (_, key), event_time in firsts.items())
    assert (
        sorted((row["event_time"], row["key"]) for rows in ran.found["0"].values() for row in rows)
        == expected
    )


@pytest.fixture
def judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> dict[str, tuple[PlanFacts, PlanTraits]]:
    """Return the facts that Spark states about the functions, and their judgement, without running
    anything.
    """
    read: list[PlanFacts] = []

    def note(*arguments: Any) -> PlanFacts:
        read.append(plan_facts.read_facts(*arguments))
        return read[-1]

    monkeypatch.setattr(query, "read_facts", note)
    reads = {
        **{name: case[0] for name, case in CASES.items()},
        **{name: ["a"] for name in REJECTED},
    }
    stages = [
        f"{n}:\n  reads: [{', '.join(r)}]\n  participant: north\n  transform: MODULE:{n}\n"
        for n, r in reads.items()
    ]
    pipeline = write_pipeline(
        tmp_path, "judged", FUNCTIONS, sources=["a", "b"], stages="".join(stages)
    )
    with small_session(tmp_path / "scratch", [str(tmp_path)]) as session:
        made = {}
        for name, inputs in reads.items():
            schemas = dict.fromkeys(inputs, readings([]).schema)
            traits = query.build_query(session, pipeline, name, schemas, kafka="", socket="").traits
            made[name] = (read[-1], traits)
        return made


def test_every_entry_of_the_list_has_a_case_and_what_is_not_safe_is_rejected(
    judged: dict[str, tuple[PlanFacts, PlanTraits]],
) -> None:
    tried = [judged[name] for name in CASES]
    assert [traits.reasons for _, traits in tried] == [()] * len(CASES)
    operators, aggregates, joins, generators = (
        set().union(*(getattr(facts, kind) for facts, _ in tried))
        for kind in ("operators", "aggregates", "join_types", "generators")
    )
    assert sorted(SPARK.generators - generators) == []
    assert sorted((SPARK.stateless - SPARK.whole_batch | SPARK.stateful_safe) - operators) == []
    assert sorted(SPARK.order_free_aggregates - aggregates) == []
    assert sorted(SPARK.safe_joins - joins) == []
    for name, says in REJECTED.items():
        (reason,) = judged[name][1].reasons
        assert says in reason, name
