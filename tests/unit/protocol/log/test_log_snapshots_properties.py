"""A log that is trimmed below snapshots on the way says to every reader what the whole log
says, whenever it begins to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from anabranch.codec import boundary_records
from anabranch.protocol.control.consistency import Mismatch, StreamAudit
from anabranch.protocol.log.boundary_log import LogState, Outcome, contents
from anabranch.protocol.log.log_snapshots import LogSnapshots, LogStart, forgettable
from anabranch.protocol.log.records import LogEntry, LogSnapshot, Part, Recomputed
from anabranch.protocol.stage.recovery import CleanPoints
from harness.boundary_logs import LAST, WRITERS, logs
from harness.examples import examples

Entries = list[tuple[int, LogEntry]]


@dataclass
class Listening:
    """Conclusions from a log besides the log state."""

    points: CleanPoints = field(default_factory=lambda: CleanPoints(WRITERS))
    audit: StreamAudit = field(default_factory=lambda: StreamAudit("s", WRITERS))
    outcomes: dict[int, Outcome] = field(default_factory=dict)
    mismatches: list[Mismatch] = field(default_factory=list)

    def hear(self, log_state: LogState, offset: int, entry: LogEntry, outcome: Outcome) -> None:
        self.points.seen(log_state, entry, outcome)
        found = self.audit.seen(log_state, entry, outcome)
        for mismatch in found:
            for replica, rows, digest in (mismatch.first, mismatch.second):
                parts = log_state.replica_bucket(replica, mismatch.bucket)
                assert parts is None or contents(parts) == (rows, digest), "CN1: its own"
        self.mismatches += found
        if not isinstance(entry, LogSnapshot):
            self.outcomes[offset] = outcome


class Reader:
    """Somebody who began to read when the log began at ``first``."""

    def __init__(self, first: int, position: int = 0) -> None:
        self.log_state = LogState(WRITERS)
        self.position = position
        self.heard = Listening()
        self.start = LogStart(self.log_state, first)
        self.blank = self.log_state.snapshot(0)

    def read(self, entries: Entries, begin: int, end: int) -> bool:
        """Read on to ``end`` of ``entries``, of which those from ``begin`` on are there;
        False: it was overtaken.
        """
        if self.position < begin:
            return False
        for offset, entry in entries[self.position : end]:
            for at, taken, outcome in self.start.apply(offset, entry):
                self.heard.hear(self.log_state, at, taken, outcome)
            assert self.start.is_over or self.log_state.snapshot(0) == self.blank, "LS1"
        self.position = end
        return True


class World:
    """A log, who writes log snapshots of it and deletes, and one who remembers everything."""

    def __init__(self, every: int) -> None:
        self.entries: Entries = []
        self.begin = 0
        """Entries below this index are deleted."""
        self.first = 0
        """First offset."""
        self.whole, self.heard = LogState(WRITERS), Listening()
        self.log_snapshots = LogSnapshots(WRITERS, every)
        self.late: list[tuple[int, LogSnapshot]] = []
        self.trim_point = 0

    def append(self, offset: int, entry: LogEntry) -> None:
        self.entries.append((offset, entry))
        outcome = self.whole.apply(offset, entry)
        self.heard.hear(self.whole, offset, entry, outcome)
        self.log_snapshots.seen(offset, entry, outcome)

    def trim_below_snapshot(self, offset_next: int, late: int) -> None:
        """Trim as a manager whose log state has forgotten nothing; the log snapshot comes into the
        log after ``late`` more entries.
        """
        histories = {w: self.heard.audit.history(w) for w in WRITERS}
        made = self.log_snapshots.make(
            self.whole, offset_next, forgettable(self.whole, self.trim_point, "0", 0), histories
        )
        assert made is not None
        back = boundary_records.decode(boundary_records.encode(made)[0])
        assert back == made
        self.late.append((len(self.entries) + late, made))

    def arrivals(self) -> Iterator[LogSnapshot]:
        for due, made in list(self.late):
            if due <= len(self.entries):
                self.late.remove((due, made))
                yield made

    def cut(self) -> None:
        self.first = max(self.first, self.log_snapshots.cut())
        while self.begin < len(self.entries) and self.entries[self.begin][0] < self.first:
            self.begin += 1


def agrees(reader: Reader, world: World) -> None:
    """Check that the reader knows what the whole log says."""
    assert reader.start.is_over, "a log snapshot is there that it can begin with"
    floor = max(world.trim_point, reader.log_state.forgotten)
    assert reader.log_state.forgotten <= world.trim_point
    assert reader.log_state.snapshot(0, floor) == world.whole.snapshot(0, floor)
    for bucket in range(floor + 1, LAST + 1):
        assert reader.log_state.recomputed_after(bucket) == world.whole.recomputed_after(bucket)
        for w in WRITERS:
            assert reader.log_state.replica_bucket(w, bucket) == world.whole.replica_bucket(
                w, bucket
            )
    for w in WRITERS:
        assert reader.log_state.origin(w) == world.whole.origin(w)
        assert reader.heard.audit.history(w) in ("", world.heard.audit.history(w)), "CN4"
    heard, whole = reader.heard, world.heard
    assert heard.outcomes.items() <= whole.outcomes.items()
    assert [m for m in heard.mismatches if m not in whole.mismatches] == []
    for _, entry in world.entries:
        if not isinstance(entry, (LogSnapshot, Recomputed)) and hasattr(entry, "id"):
            for fingerprint in ("plan of 0", "plan of 1"):
                found = heard.points.base(entry.replica, entry.id, fingerprint, LAST)
                assert found in (
                    None,
                    whole.points.base(entry.replica, entry.id, fingerprint, LAST),
                ), "CP1, CP5"


@examples(100)
@given(logs(steps=30), st.integers(0, 6), st.data())
def test_ls1_whenever_a_reader_begins_it_knows_what_the_whole_log_says(
    entries: list[LogEntry], every: int, data: st.DataObject
) -> None:
    """A log snapshot has the offset of the record that it stands before: epochs of the log
    are offsets.
    """
    world, readers = World(every), [Reader(0)]
    for offset, entry in enumerate(entries):
        for made in world.arrivals():
            world.append(offset, made)
        world.append(offset, entry)
        what = data.draw(
            st.sampled_from(
                (
                    "",
                    "",
                    "recomputed",
                    "snapshot",
                    "snapshot",
                    "trim",
                    "cut",
                    "begin",
                    "begin",
                    "read",
                )
            )
        )
        if (
            what == "recomputed"
            and world.whole.upto
            and (stable := world.whole.stable(1, world.whole.upto))
        ):
            writer, (bucket, _, was) = (
                data.draw(st.sampled_from(WRITERS)),
                data.draw(st.sampled_from(stable)),
            )
            rows, digest = contents(was)
            parts = (
                Part(
                    bucket,
                    0,
                    f"again {offset}",
                    1,
                    50,
                    51,
                    rows + data.draw(st.sampled_from((0, 0, 1))),
                    digest,
                ),
            )
            world.append(offset, Recomputed(writer, world.whole.epoch(writer) or 0, parts))
        elif what == "snapshot":
            world.trim_below_snapshot(offset + 1, data.draw(st.integers(0, 4)))
        elif what == "trim":
            world.trim_point = min(
                world.whole.upto, world.trim_point + data.draw(st.integers(0, 4))
            )
        elif what == "cut":
            world.cut()
        elif what == "begin":
            readers.append(Reader(world.first, world.begin))
        elif what == "read":
            reader = data.draw(st.sampled_from(readers))
            end = data.draw(st.integers(reader.position, len(world.entries)))
            if not reader.read(world.entries, world.begin, end):
                readers.remove(reader)
                readers.append(Reader(world.first, world.begin))
    for reader in [*readers, Reader(world.first, world.begin)]:
        if reader.read(world.entries, world.begin, len(world.entries)):
            agrees(reader, world)
