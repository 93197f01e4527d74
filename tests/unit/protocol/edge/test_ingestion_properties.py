"""Properties of ``protocol.edge.ingestion``: any chunking, any crash, any silence (invariants
IN1-IN7, rule 17).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.edge import ingestion
from anabranch.protocol.edge.ingestion import (
    END_SILENCE_MS,
    LOOK_EVERY_MS,
    LOOK_FRESH_MS,
    LOOK_GAP_MS,
    ChunkFacts,
    SourceMachine,
    SourceProgress,
    SourceRules,
)
from anabranch.protocol.log.buckets import bucket_of, closed_by
from anabranch.protocol.log.records import InputPosition
from harness.examples import examples

WIDTH = 10
OUT_OF_ORDERNESS = 15
Row = tuple[int, int]
"""(input partition, offset)"""


@dataclass
class Log:
    """Content of the accepted boundary records, and of the dead-letter topic."""

    buckets: dict[int, set[Row]] = field(default_factory=dict)
    positions: tuple[InputPosition, ...] = ()
    closed: int = 0
    dead: list[Row] = field(default_factory=list)
    named: list[Row] = field(default_factory=list)

    def append(
        self, rows: list[tuple[int, Row]], positions: tuple[InputPosition, ...], closed: int
    ) -> None:
        assert closed >= self.closed, "the boundary went back"
        for bucket, row in rows:
            assert bucket > self.closed, (
                f"row {row} is in closed bucket {bucket}: readers ignore it"
            )
            self.buckets.setdefault(bucket, set()).add(row)
            self.named.append(row)
        self.positions, self.closed = positions, closed


@dataclass
class Shell:
    """Service around the machine, with a crash if wanted."""

    rules: SourceRules
    data: list[list[int]]
    log: Log
    wall_ms: int = 10**9
    now_ms: int = 0

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        at = {("t", i): 0 for i in range(len(self.data))}
        self.machine = SourceMachine(
            self.rules, at, SourceProgress(self.log.positions, self.log.closed), self.now_ms
        )

    def round(self, counts: list[int], *, crash: str = "") -> None:
        limits = self.machine.limits(self.wall_ms)
        facts = []
        rows = []
        for i, count in enumerate(counts):
            begin = self.machine.offsets()["t", i]
            chunk = self.data[i][begin : begin + count]
            if not chunk:
                continue
            usable = [s for s in chunk if s <= limits.ahead_above_ms]
            facts.append(ChunkFacts(("t", i), begin + len(chunk), max(usable, default=None)))
            for offset, event_time in enumerate(chunk, begin):
                if event_time > limits.ahead_above_ms or event_time <= limits.late_upto_ms:
                    self.log.dead.append((i, offset))
                else:
                    rows.append((bucket_of(event_time, WIDTH), (i, offset)))
        before = self.machine.closed
        self.machine.read(facts, self.now_ms)
        self.machine.advance(self.now_ms)
        if crash != "before" and (facts or self.machine.closed > before):
            self.log.append(rows, self.machine.positions(), self.machine.closed)
        if crash:
            self.restart()

    def drained(self) -> bool:
        return all(self.machine.offsets()["t", i] == len(rows) for i, rows in enumerate(self.data))

    def silence(self, duration_ms: int) -> None:
        """Time passes, with looks that find nothing new."""
        end = self.now_ms + duration_ms
        while self.now_ms < end:
            for at in self.machine.looks_due(self.now_ms):
                empty = self.machine.offsets()[at] == len(self.data[at[1]])
                self.machine.looked(at, empty=empty, begun_ms=self.now_ms, done_ms=self.now_ms)
            self.round([0] * len(self.data))
            self.now_ms += LOOK_EVERY_MS // 2


@st.composite
def partition(draw: st.DrawFn, out_of_orderness: int = OUT_OF_ORDERNESS) -> list[int]:
    """Event times of one partition, none older than the newest before it minus
    ``out_of_orderness``.
    """
    steps = draw(
        st.lists(st.tuples(st.integers(0, 25), st.integers(0, out_of_orderness)), max_size=12)
    )
    newest = clock = draw(st.integers(out_of_orderness + 1, 200))
    event_times: list[int] = []
    for step, back in steps:
        clock += step
        event_times.append(max(clock - back, newest - out_of_orderness))
        newest = max(newest, event_times[-1])
    return event_times


sources = st.lists(partition(), min_size=1, max_size=3)
schedules = st.lists(
    st.tuples(
        st.lists(st.integers(0, 5), min_size=3, max_size=3),
        st.sampled_from(["", "", "before", "after"]),
    ),
    max_size=30,
)
patient = SourceRules(
    bucket_ms=WIDTH,
    out_of_orderness_ms=OUT_OF_ORDERNESS,
    partition_idle_ms=None,
    bounded=True,
    max_ahead_ms=None,
)


def run(
    data: list[list[int]], schedule: list[tuple[list[int], str]], rules: SourceRules = patient
) -> Log:
    shell = Shell(rules, data, Log())
    for counts, crash in schedule:
        shell.now_ms += 1
        shell.round(counts[: len(data)], crash=crash)
    while not shell.drained():
        shell.round([1000] * len(data))
    shell.silence(END_SILENCE_MS + 3 * LOOK_EVERY_MS)
    return shell.log


@examples(100)
@given(sources, schedules)
def test_any_chunking_and_any_crash_give_the_same_buckets(
    data: list[list[int]], schedule: list[tuple[list[int], str]]
) -> None:
    log = run(data, schedule)
    expected: dict[int, set[Row]] = {}
    for i, event_times in enumerate(data):
        for offset, event_time in enumerate(event_times):
            expected.setdefault(bucket_of(event_time, WIDTH), set()).add((i, offset))
    assert log.buckets == expected
    assert len(log.named) == len(set(log.named)), "a record is named twice"
    assert log.dead == []
    assert log.closed == max(expected, default=0)


@examples(100)
@given(st.lists(st.lists(st.integers(1, 300), max_size=10), min_size=1, max_size=3), schedules)
def test_wild_out_of_orderness_neither_loses_nor_repeats(
    data: list[list[int]], schedule: list[tuple[list[int], str]]
) -> None:
    log = run(data, schedule)
    everything = {
        (i, offset) for i, event_times in enumerate(data) for offset in range(len(event_times))
    }
    assert len(log.named) == len(set(log.named)), "a record is named twice"
    assert set(log.named) | set(log.dead) == everything, "a record is lost"
    assert not set(log.named) & set(log.dead), "a record is both late and in the stream"


@examples(100)
@given(sources, schedules)
def test_the_boundary_never_passes_a_partition_that_is_not_idle(
    data: list[list[int]], schedule: list[tuple[list[int], str]]
) -> None:
    rules = SourceRules(
        bucket_ms=WIDTH,
        out_of_orderness_ms=OUT_OF_ORDERNESS,
        partition_idle_ms=None,
        max_ahead_ms=None,
    )
    shell = Shell(rules, data, Log())
    for counts, crash in schedule:
        shell.now_ms += 1
        shell.round(counts[: len(data)], crash=crash)
        read = {p.partition: p.event_time_max_ms for p in shell.log.positions}
        marks = [read.get(i, 0) for i in range(len(data))]
        if min(marks) == 0:
            assert shell.log.closed == 0, "a partition that never spoke was passed"
        else:
            assert shell.log.closed == max(0, closed_by(min(marks) - OUT_OF_ORDERNESS, WIDTH))


@examples(100)
@given(st.lists(partition(), min_size=2, max_size=3), st.permutations([0, 1, 2]))
def test_a_drained_backlog_with_skewed_partitions_equals_the_live_result(
    data: list[list[int]], order: list[int]
) -> None:
    live = sorted(
        (event_time, i) for i, event_times in enumerate(data) for event_time in event_times
    )
    one_by_one = [([int(j == i) for j in range(3)], "") for _, i in live]
    whole = [([1000 if j == i else 0 for j in range(3)], "") for i in order]
    a, b = run(data, one_by_one), run(data, whole)
    assert (a.buckets, a.closed, a.dead) == (b.buckets, b.closed, b.dead)


@examples(100)
@given(sources, schedules, st.integers(0, 2), st.integers(0, 10))
def test_a_record_of_the_year_2100_closes_nothing(
    data: list[list[int]], schedule: list[tuple[list[int], str]], where: int, offset: int
) -> None:
    rules = SourceRules(
        bucket_ms=WIDTH,
        out_of_orderness_ms=OUT_OF_ORDERNESS,
        partition_idle_ms=None,
        bounded=True,
        max_ahead_ms=60_000,
    )
    i = where % len(data)
    far = [list(event_times) for event_times in data]
    far[i].insert(offset, 4_102_444_800_000)
    row = (i, far[i].index(4_102_444_800_000))
    log = run(far, schedule, rules)
    assert row in log.dead
    assert log.closed == max(
        (bucket_of(s, WIDTH) for event_times in data for s in event_times), default=0
    )
    assert len(log.named) == sum(len(event_times) for event_times in data)


@examples(100)
@given(st.lists(st.lists(st.integers(1, 9), max_size=30), min_size=2, max_size=3), st.data())
def test_much_that_is_open_delays_but_neither_loses_nor_stops(
    steps: list[list[int]], choices: st.DataObject
) -> None:
    """IN8: partitions that end together are read to their end in any order, with little open;
    each record is in a bucket of its own.
    """
    hold, at_once = 8, 3
    end = WIDTH * (1 + max(sum(each) for each in steps))
    data = [[*(WIDTH * event_time for event_time in accumulate(each)), end] for each in steps]
    shell = Shell(
        SourceRules(bucket_ms=WIDTH, partition_idle_ms=None, max_ahead_ms=None), data, Log()
    )
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(ingestion, "PENDING_PARTS_HOLD", hold)
        patched.setattr(ingestion, "PENDING_PARTS_NARROW", hold + at_once)
        while not shell.drained():
            still_open = sum(
                len(rows) for bucket, rows in shell.log.buckets.items() if bucket > shell.log.closed
            )
            assert still_open <= hold + at_once * (len(data) + 1)
            readable = shell.machine.to_read(still_open)
            ready = sorted(i for _, i in readable if shell.machine.offsets()["t", i] < len(data[i]))
            assert ready, "nothing is read any more"
            i = choices.draw(st.sampled_from(ready))
            shell.now_ms += 1
            shell.round([at_once if j == i else 0 for j in range(len(data))])
    assert shell.log.dead == []
    assert sorted(shell.log.named) == [
        (i, offset) for i, rows in enumerate(data) for offset in range(len(rows))
    ]


events = st.lists(
    st.tuples(
        st.sampled_from(["speak", "look", "look", "blind", "pass"]),
        st.integers(0, 2),
        st.integers(0, 3_000),
    ),
    min_size=5,
    max_size=80,
)


@examples(400)
@given(events, st.integers(2_000, 6_000))
def test_a_partition_is_left_out_only_after_observed_silence_while_others_speak(
    history: list[tuple[str, int, int]], idle_ms: int
) -> None:
    """An independent reading of IN3 from the history: who passed the low mark of a partition
    had the right to.
    """
    rules = SourceRules(bucket_ms=WIDTH, out_of_orderness_ms=0, partition_idle_ms=idle_ms)
    machine = SourceMachine(rules, {("t", i): 0 for i in range(3)}, SourceProgress(), 0)
    now, marks = 0, [0, 0, 0]
    spoke: list[list[int]] = [[0], [0], [0]]
    looks: list[list[int]] = [[], [], []]
    before = 0
    for kind, i, amount in history:
        now += amount if kind == "pass" else 50
        if kind == "speak":
            marks[i] = max(marks[i], 1_000 + now)
            spoke[i].append(now)
            looks[i].clear()
            machine.read([ChunkFacts(("t", i), machine.offsets()["t", i] + 1, marks[i])], now)
        elif kind in ("look", "blind"):
            machine.looked(("t", i), empty=kind == "look", begun_ms=now, done_ms=now)
            if kind == "look":
                looks[i].append(now)
        closed = machine.advance(now)
        assert closed >= before
        for p in range(3):
            if closed > before and (marks[p] == 0 or closed > closed_by(marks[p], WIDTH)):
                _may_be_left_out(p, now, idle_ms, spoke, looks[p])
        before = closed


def _may_be_left_out(
    p: int, now: int, idle_ms: int, spoke: list[list[int]], looks: list[int]
) -> None:
    assert looks, "left out without a look"
    assert now - looks[-1] <= LOOK_FRESH_MS, "left out on an old look"
    begin = looks[-1]
    for earlier, later in zip(reversed(looks[:-1]), reversed(looks[1:]), strict=True):
        if later - earlier > LOOK_GAP_MS:
            break
        begin = earlier
    assert looks[-1] - begin >= idle_ms, "left out before it was observed to be silent for so long"
    assert max(max(s) for s in spoke) - spoke[p][-1] >= idle_ms, (
        "left out although nobody else spoke meanwhile"
    )


@examples(100)
@given(st.lists(st.integers(1, 4_000), max_size=40), st.integers(1, 3))
def test_a_silent_source_closes_nothing(waits: list[int], partitions: int) -> None:
    rules = SourceRules(bucket_ms=WIDTH, out_of_orderness_ms=0, partition_idle_ms=2_000)
    shell = Shell(rules, [[500 + 7 * i, 600 + 50 * i] for i in range(partitions)], Log())
    shell.round([2] * partitions)
    closed = shell.machine.closed
    assert closed == closed_by(600, WIDTH)
    for wait in waits:
        shell.silence(wait)
        shell.now_ms += wait  # and some of it nobody watches
        assert shell.machine.advance(shell.now_ms) == closed


@examples(100)
@given(
    st.lists(st.tuples(st.sampled_from(["silence", "pause"]), st.integers(1, 5_000)), max_size=12)
)
def test_a_source_that_may_be_silent_goes_on_by_observed_time_only(
    spans: list[tuple[str, int]],
) -> None:
    rules = SourceRules(
        bucket_ms=WIDTH, out_of_orderness_ms=5, partition_idle_ms=None, source_idle_ms=1_000
    )
    shell = Shell(rules, [[500], [900]], Log())
    shell.round([1, 1])
    watched = 0
    for kind, duration in spans:
        if kind == "pause":
            shell.now_ms += duration
        else:
            begun = shell.now_ms
            shell.silence(duration)
            watched += shell.now_ms - begun + LOOK_GAP_MS
        low = 500 - 5 + max(0, watched - 1_000)
        assert shell.machine.closed <= max(closed_by(low, WIDTH), closed_by(495, WIDTH)), (
            "the boundary ran ahead of observed time"
        )
