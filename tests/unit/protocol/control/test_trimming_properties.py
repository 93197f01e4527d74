"""Rule 18: whatever writers and readers do, nothing is deleted that a reader still has to read."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.control.failure_detector import Peer
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.control.trimming import Place, Trimming, TrimOffsets
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX, TRIM_EVERY_MS
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, EpochStarted, Part
from harness.examples import examples

WRITERS, PARTITIONS = "01", 2
NAMES = "xyz"

Batch = tuple[int, list[tuple[int, int]]]
"""(how many buckets it closes, (buckets ahead, partition) of its parts)."""


@dataclass
class Reader:
    """Reads the stream in order; a restart goes back to what it has synced, which it says now
    and then.
    """

    name: str
    position: int = 0
    synced: int = 0


@dataclass
class Writer:
    """A replica: the stable query, and a branch that writes to the same topic. A batch's
    blocks are there before its record.
    """

    name: str
    epoch: int
    number: int = 0
    closed: int = 0
    tip: BatchId | None = None
    branch_tip: BatchId | None = None
    branch_closed: int = 0
    under_way: dict[bool, tuple[int, tuple[Part, ...]]] = field(default_factory=dict)


class World:
    """A stream of two replicas, its readers, and who trims it."""

    def __init__(self) -> None:
        self.log_state, self.offsets = LogState(WRITERS), TrimOffsets()
        self.readers = [Reader(name) for name in NAMES]
        self.trimming = Trimming({"s": [Peer("delivery", name, "0") for name in NAMES]})
        self.ends: dict[Place, int] = {}
        self.published: dict[Place, int] = {}
        """Trim points that the running manager has published."""
        self.deleted: dict[Place, int] = {}
        self.tentative: set[tuple[Place, int]] = set()
        """Places and first offsets of the parts that tentative records have named."""
        self.writers = [Writer(name, epoch) for epoch, name in enumerate(WRITERS)]
        self.now_ms = 1_000_000
        self.offset = 0
        for writer in self.writers:
            self._append(EpochStarted(writer.name, "f", "t"))
        for reader in self.readers:
            self._say(reader)

    def _append(self, entry: EpochStarted | BoundaryRecord) -> None:
        self.offsets.seen(entry, self.log_state.apply(self.offset, entry))
        self.offset += 1

    def write(self, number: int, batch: Batch, *, tentative: bool) -> None:
        """Blocks; the record comes later."""
        writer = self.writers[number]
        if tentative in writer.under_way:
            return
        closes, wanted = batch
        closed = (max(writer.branch_closed, writer.closed) if tentative else writer.closed) + closes
        first = (max(writer.branch_closed, writer.closed) if tentative else writer.closed) + 1
        parts = []
        for ahead, partition in wanted:
            place = writer.name, partition
            at = self.ends.get(place, 0)
            self.ends[place] = at + 1
            parts.append(Part(first + ahead, partition, f"{self.offset}", 1, at, at + 1, 1, 0))
        writer.under_way[tentative] = (closed, tuple(parts))

    def append(self, number: int, *, tentative: bool) -> None:
        """Append the record of what was written."""
        writer = self.writers[number]
        found = writer.under_way.pop(tentative, None)
        if found is None:
            return
        closed, parts = found
        writer.number += 1
        ident = BatchId("b" if tentative else "a", writer.number)
        if tentative:
            base = writer.closed if writer.branch_tip is None else None
            prev = writer.branch_tip if writer.branch_tip is not None else writer.tip
            record = BoundaryRecord(
                writer.name,
                writer.epoch,
                ident,
                prev,
                closed,
                parts,
                base=base,
                kind=BoundaryKind.TENTATIVE,
                branch=(writer.epoch, 1),
            )
            writer.branch_tip, writer.branch_closed = ident, closed
            self.tentative |= {((writer.name, part.partition), part.offset_first) for part in parts}
        else:
            record = BoundaryRecord(writer.name, writer.epoch, ident, writer.tip, closed, parts)
            writer.tip, writer.closed = ident, closed
        self._append(record)
        assert self.log_state.accepted(writer.name, ident)

    def batch(self, number: int, batch: Batch) -> None:
        """Write a stable batch, and the previous one if that is still in flight."""
        self.append(number, tentative=False)
        self.write(number, batch, tentative=False)
        self.append(number, tentative=False)

    def read(self, number: int, count: int) -> None:
        reader = self.readers[number]
        upto = min(self.log_state.upto, reader.position + count)
        if upto > reader.position:
            for bucket, writer, parts in self.log_state.stable(reader.position + 1, upto):
                for part in parts:
                    assert part.offset_first >= self.deleted.get((writer, part.partition), 0), (
                        f"{reader} misses bucket {bucket}"
                    )
            reader.position = upto

    def sync(self, number: int, *, says: bool) -> None:
        reader = self.readers[number]
        reader.synced = reader.position
        if says:
            self._say(reader)

    def everybody_passes(self, count: int) -> None:
        """Do what happens most: all read on and report it, and what can be deleted is."""
        for number in range(len(self.readers)):
            self.read(number, count)
            self.sync(number, says=True)
        self.trim()

    def _say(self, reader: Reader) -> None:
        self.trimming.receive(
            Heartbeat(
                "delivery",
                reader.name,
                "0",
                -1,
                "running",
                reader.position,
                self.now_ms,
                checkpoint_bucket=reader.synced,
            ),
            self.now_ms,
        )

    def restart(self, number: int) -> None:
        self.readers[number].position = self.readers[number].synced

    def trim(self) -> None:
        self.now_ms += TRIM_EVERY_MS
        for point in self.trimming.due(
            self.now_ms, {"s": self.log_state.upto}, wall_ms=self.now_ms
        ):
            for place, offset in self.offsets.below(point.bucket).items():
                is_named_late = (place, offset) in self.tentative
                assert offset >= self.published.get(place, 0) or is_named_late, "TO3"
                assert offset <= self.ends[place]
                self.published[place] = offset
                self.deleted[place] = max(offset, self.deleted.get(place, 0))
        for writer in self.writers:
            for part in writer.under_way.get(False, (0, ()))[1]:
                assert part.offset_first >= self.deleted.get((writer.name, part.partition), 0), (
                    "TO2"
                )

    def fail_over(self) -> None:
        """Another manager, which begins to read at a log snapshot."""
        self.offsets, self.published = TrimOffsets(), {}
        log_snapshot = self.log_state.snapshot(self.offset, self.trimming.point("s"))
        self.offsets.seen(log_snapshot, Outcome(accepted=True, reason="adopted", replica=""))


BATCH = st.tuples(
    st.integers(0, 3),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, PARTITIONS - 1)), max_size=4),
)
ACTION = st.one_of(
    st.tuples(st.just("write"), st.integers(0, 1), BATCH, st.booleans()),
    st.tuples(st.just("batch"), st.integers(0, 1), BATCH),
    st.tuples(st.just("batch"), st.integers(0, 1), BATCH),
    st.tuples(st.just("append"), st.integers(0, 1), st.booleans()),
    st.tuples(st.just("read"), st.integers(0, 2), st.integers(1, 4)),
    st.tuples(st.just("sync"), st.integers(0, 2), st.booleans()),
    st.tuples(st.just("pass"), st.integers(1, 4)),
    st.tuples(st.just("restart"), st.integers(0, 2)),
    st.tuples(st.just("trim")),
    st.tuples(st.just("failover")),
)


@examples(400)
@given(st.lists(ACTION, min_size=10, max_size=120))
def test_nothing_is_deleted_that_a_reader_has_still_to_read(actions: list[tuple]) -> None:  # type: ignore[type-arg]
    world = World()
    for name, *arguments in actions:
        if name == "write":
            world.write(arguments[0], arguments[1], tentative=arguments[2])
        elif name == "batch":
            world.batch(*arguments)
        elif name == "append":
            world.append(arguments[0], tentative=arguments[1])
        elif name == "read":
            world.read(*arguments)
        elif name == "sync":
            world.sync(arguments[0], says=arguments[1])
        elif name == "pass":
            world.everybody_passes(*arguments)
        elif name == "restart":
            world.restart(*arguments)
        elif name == "failover":
            world.fail_over()
        else:
            world.trim()
    for writer in (0, 1):
        world.batch(writer, (0, []))
        world.batch(writer, (9, []))
    for number in range(len(NAMES)):
        world.restart(number)
        world.read(number, 10_000)


def test_in_the_end_everything_is_deleted() -> None:
    world = World()
    for _ in range(5):
        for writer in (0, 1):
            world.write(writer, (2, [(0, 0), (1, 1)]), tentative=False)
            world.append(writer, tentative=False)
    for reader in range(3):
        world.read(reader, 100)
        world.sync(reader, says=True)
    world.trim()
    assert world.deleted == world.ends


LIE = st.builds(
    Heartbeat,
    st.just("processing"),
    st.just("sold"),
    st.just("0"),
    st.integers(-1, 2**62),
    st.sampled_from(["running", "starting", "ended"]),
    st.integers(0, BUCKET_MAX),
    st.integers(0, 2**62),
    checkpoint_bucket=st.integers(0, BUCKET_MAX),
    life=st.sampled_from(["", "made up"]),
)


@examples(300)
@given(st.lists(st.tuples(st.integers(0, 3), st.lists(LIE, min_size=1, max_size=3)), max_size=30))
def test_tm9_whatever_a_partner_says_its_log_alone_decides(
    rounds: list[tuple[int, list[Heartbeat]]],
) -> None:
    """The stage's log closes some buckets in each round; the input is far ahead."""
    sold = Peer("processing", "sold", "0")
    trimming = Trimming({"s": [sold]}, others=[sold])
    now_ms, unneeded = 1_000_000, 0
    for closes, lies in rounds:
        now_ms, unneeded = now_ms + TRIM_EVERY_MS, unneeded + closes
        for lie in lies:
            trimming.receive(lie, now_ms)
        trimming.due(now_ms, {"s": 1_000}, wall_ms=now_ms, unneeded={"sold": unneeded})
        assert trimming.point("s") == unneeded
