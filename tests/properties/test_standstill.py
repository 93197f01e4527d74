"""A week in which one input of a stage stands still and the other goes on, a bucket every 250 ms at
first and every minute later: what the processes hold in memory, and what the index holds, does
not grow with the time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.index import LocalIndex
from anabranch.consistency_manager.index_image import INDEXED_BOUNDARIES_MAX, IndexImage
from anabranch.protocol.control.consistency import StreamAudit
from anabranch.protocol.control.failure_detector import Peer
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.control.trimming import Trimming, TrimOffsets
from anabranch.protocol.edge.sources import SourcePace
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, InputPosition, Part
from anabranch.protocol.stage.availability import STALL_MS, Availability, Policy, Waits

WIDTH_MS = 250
DAY_MS = 86_400_000
BEGUN = 7
"""The bucket at which the one input stands still."""
QUICK_MS = 1_200_000
SLOWLY_MS = 60_000
ROUNDS_PER_WRITE = 48
"""The index is written so seldom, since the one in memory is slow."""
READER = Peer("processing", "tolls", "0")
ACCEPTED = Outcome(accepted=True, reason="accepted", replica="0")


def elements(of: object) -> int:
    """Return how many items all containers hold that can be reached from the machine ``of``."""
    seen, found = set[int](), 0
    left = [of]
    while left:
        each = left.pop()
        if id(each) in seen or isinstance(each, str | bytes | int | float | type | None):
            continue
        seen.add(id(each))
        if isinstance(each, dict):
            found += len(each)
            left += [*each.keys(), *each.values()]
        elif isinstance(each, list | tuple | set | frozenset | deque):
            found += len(each)
            left += each
        else:
            left += getattr(each, "__dict__", {}).values()
            slots = [name for kind in type(each).__mro__ for name in getattr(kind, "__slots__", ())]
            left += [getattr(each, name) for name in slots if hasattr(each, name)]
    return found


class Stream:
    """The boundary log of one input, as every reader folds it, and what the manager makes of it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.log_state = LogState(["0"])
        self.audit = StreamAudit(name, ["0"])
        self.offsets = TrimOffsets()
        self._before: BatchId | None = None
        self._count = 0
        self.log_state.apply(0, EpochStarted("0", "f", "t", bucket_ms=WIDTH_MS))

    def append(self, image: IndexImage, closed: int) -> None:
        """Append the next record, which closes the buckets up to ``closed``."""
        self._count += 1
        record = BoundaryRecord(
            "0",
            0,
            BatchId("timeline", self._count),
            self._before,
            closed=closed,
            positions=(InputPosition("t", 0, self._count, 1_000),),
        )
        self._before = record.id
        outcome = self.log_state.apply(self._count, record)
        assert outcome.accepted, outcome
        self.audit.seen(self.log_state, record, outcome)
        image.boundary(self.name, self._count, record, self.log_state)

    def place(self, bucket: int) -> None:
        """Remember where the blocks of ``bucket`` stand, which no reader has passed."""
        part = Part(bucket, 0, "attempt", 1, 2 * bucket, 2 * bucket + 1, 1, 0)
        record = BoundaryRecord("0", 0, BatchId("blocks", bucket), None, bucket, parts=(part,))
        self.offsets.seen(record, ACCEPTED)


class Week:
    """All that stands still with the one input, under virtual time."""

    def __init__(self) -> None:
        self.still, self.goes_on = Stream("still"), Stream("goes_on")
        self.index = LocalIndex(VirtualClock())
        self.image = IndexImage("p")
        self.timers = Availability(["still", "goes_on"], Waits(3_000, 600), Policy.PROCESS)
        self.trimming = Trimming({"goes_on": [READER]})
        self.pace = SourcePace(0, 0)
        self._rounds = 0
        self._looked_ms, self._bucket = BEGUN * WIDTH_MS, BEGUN
        self.still.append(self.image, BEGUN)

    def round(self, now_ms: int) -> None:
        """Let the one input close a bucket, and the other write a record that closes none."""
        bucket = now_ms // WIDTH_MS
        self.goes_on.append(self.image, bucket)
        self.goes_on.place(bucket)
        self.still.append(self.image, BEGUN)
        self.pace.moved(bucket * WIDTH_MS, now_ms)
        # A replica looks more often than buckets come: what it did not see would not count (AV4).
        for looked_ms in range(self._looked_ms + STALL_MS, now_ms, STALL_MS):
            self.timers.observe(looked_ms, self._bucket)
        self._looked_ms, self._bucket = now_ms, bucket
        self.timers.observe(now_ms, bucket)
        self.timers.closed("goes_on", bucket, now_ms)
        self.timers.forget(BEGUN)
        beat = Heartbeat("processing", "tolls", "0", 1, "running", BEGUN, now_ms)
        self.trimming.receive(beat, now_ms)
        self.image.heartbeat(beat, now_ms)
        self.trimming.due(now_ms, {"goes_on": bucket}, wall_ms=now_ms)
        self._rounds += 1
        if self._rounds % ROUNDS_PER_WRITE == 0:
            self._write(now_ms)

    def _write(self, now_ms: int) -> None:
        while (write := self.image.next_write(now_ms)) is not None:
            if write.fields is not None:
                self.index.put(write.key, write.fields)
            else:
                for member, score in write.members:
                    self.index.rank(write.key, member, score)
                self.index.unrank_below(write.key, write.keep_from)
            self.image.written(write)

    def sizes(self) -> dict[str, int]:
        """Return what each machine holds, and the index."""
        parts = vars(self) | {
            f"{stream.name} {name}": part
            for stream in (self.still, self.goes_on)
            for name, part in vars(stream).items()
        }
        machines = {name: elements(part) for name, part in parts.items() if name != "index"}
        keys = self.index.keys("")
        ranked = {key: len(self.index.ranked(key, 0, 10**15, count_max=10**9)) for key in keys}
        assert max(ranked.values()) <= INDEXED_BOUNDARIES_MAX, ranked
        return machines | {"index": len(keys) + sum(ranked.values())}


def moments() -> Iterator[int]:
    """Return the times at which the input that goes on closes a bucket."""
    yield from range((BEGUN + 1) * WIDTH_MS, QUICK_MS, WIDTH_MS)
    yield from range(QUICK_MS, 7 * DAY_MS, SLOWLY_MS)


def test_a_week_in_which_an_input_stands_still_holds_no_more_than_its_first_days() -> None:
    week, early = Week(), dict[str, int]()
    for now_ms in moments():
        week.round(now_ms)
        if now_ms == 2 * DAY_MS:
            early = week.sizes()
    late = week.sizes()
    assert {name for name in late if late[name] > 1.25 * early[name]} == set(), (early, late)
