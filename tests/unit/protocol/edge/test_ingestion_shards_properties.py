"""IN13 as a property: shards that hear of each other at once close together what one process would,
and no less where a record comes the bound of which its own shard has closed past.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import example, given
from hypothesis import strategies as st

from anabranch.protocol.edge.ingestion import (
    ChunkFacts,
    SourceMachine,
    SourceProgress,
    SourceRules,
)
from anabranch.protocol.log.records import InputPosition
from harness.examples import examples

PARTITIONS = 4
RULES = SourceRules(bucket_ms=100, out_of_orderness_ms=50, partition_idle_ms=1_000)
STEPS = st.lists(
    st.tuples(st.integers(0, PARTITIONS - 1), st.integers(-300, 900), st.integers(1, 15)),
    min_size=3,
    max_size=10,
)
"""(partition that speaks, its time as seen from the clock, rounds of 100 ms until the next one)."""


class Process:
    """A shard's machine, and what its boundary records say to the others."""

    def __init__(self, shard: int, shards: int) -> None:
        own = {("cars", i): 0 for i in range(PARTITIONS) if i % shards == shard}
        self.machine = SourceMachine(replace(RULES, shards=shards), own, SourceProgress(), 0)
        self.published: tuple[InputPosition, ...] = ()

    def read(self, partition: int, event_time_ms: int, now_ms: int) -> None:
        """One record, and the boundary record that names it."""
        at = ("cars", partition)
        chunk = ChunkFacts(at, self.machine.offsets()[at] + 1, event_time_ms)
        self.machine.read([chunk], now_ms)
        self.machine.advance(now_ms)
        self.published = self.machine.positions()
        self.machine.named()

    def look(self, now_ms: int) -> None:
        """At partitions that say nothing."""
        for at in self.machine.looks_due(now_ms):
            self.machine.looked(at, empty=True, begun_ms=now_ms, done_ms=now_ms)

    def go_on(self, others: list[Process], now_ms: int) -> None:
        """Hear of the others; a record if one is due."""
        for other in others:
            if other is not self:
                self.machine.receive(other.published, now_ms)
        if self.machine.moves_unread(now_ms):
            self.published = self.machine.positions()


def round_of(processes: list[Process], now_ms: int) -> int:
    """All look, hear of each other, and close what they can; what they have closed together."""
    for process in processes:
        process.look(now_ms)
    for _ in range(PARTITIONS):
        for process in processes:
            process.go_on(processes, now_ms)
    return min(process.machine.closed for process in processes)


@examples(60)
@example([(1, 0, 6), (2, 751, 8), (3, 0, 2), (0, -250, 1)], 2)
@given(STEPS, st.integers(2, PARTITIONS))
def test_shards_close_together_what_one_process_closes(
    steps: list[tuple[int, int, int]], shards: int
) -> None:
    whole, parts = [Process(0, 1)], [Process(shard, shards) for shard in range(shards)]
    now_ms = 0
    alike = True
    for partition, apart_ms, rounds in steps:
        own, event_time_ms = parts[partition % shards], max(1, 1_000 + now_ms + apart_ms)
        # Where its own shard has closed past the bound of a record, that holds the shard back no
        # more. One process, which slower partitions may have held back, still waits for it.
        bound_ms = event_time_ms - RULES.out_of_orderness_ms
        alike = alike and bound_ms > own.machine.closed * RULES.bucket_ms
        for process in (whole[0], own):
            process.read(partition, event_time_ms, now_ms)
        for _ in range(rounds):
            together, alone = round_of(parts, now_ms), round_of(whole, now_ms)
            assert together >= alone
            assert together == alone or not alike
            now_ms += 100
