"""The fold of a boundary log: each rule by example, then against a slow reference that states the rules bucket by bucket."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.boundary_log import StreamFold
from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHAIN_RECORDS_MAX
from anabranch.protocol.records import BoundaryKind, BoundaryRecord, EpochStarted, LogEntry, Part, Summary


def part(bucket: int, attempt: str = "a", rows: int = 1) -> Part:
    return Part(bucket, 0, attempt, 1, 0, 1, rows, 7)


def started(replica: str = "0", token: str = "t") -> EpochStarted:
    return EpochStarted(replica, f"plan of {replica}", token, schema=f"schema of {replica}")


def record(
    epoch: int, batch: int, closed: int, parts: tuple[Part, ...] = (), *, replica: str = "0", lineage: str = "l", prev: BatchId | str | None = "",
    base: int | None = None, kind: BoundaryKind = BoundaryKind.STABLE,
) -> BoundaryRecord:  # fmt: skip
    """``prev``: left out means the batch before in the same lineage, or None for the first."""
    if isinstance(prev, str):
        prev = BatchId(lineage, batch - 1) if batch else None
    return BoundaryRecord(replica, epoch, BatchId(lineage, batch), prev, closed, parts, base, kind)


def folded(*entries: LogEntry, writers: tuple[str, ...] = ("0", "1")) -> StreamFold:
    fold = StreamFold(writers)
    for offset, entry in enumerate(entries):
        fold.apply(offset, entry)
    return fold


def test_an_empty_log_has_nothing() -> None:
    fold = StreamFold(["0"])
    assert (fold.upto, fold.forgotten, fold.epoch("0"), fold.closed("0"), fold.tip("0"), fold.last("0")) == (0, 0, None, 0, None, None)
    assert fold.fingerprint("0") == fold.schema() == ""
    assert not fold.past(1)


def test_parts_belong_to_the_bucket_that_a_later_record_closes() -> None:
    fold = folded(started(), record(0, 0, 0, (part(2, "a"),)), record(0, 1, 5, (part(2, "b"), part(4), part(9))))
    assert fold.stable(1, 5) == [(2, "0", (part(2, "a"), part(2, "b"))), (4, "0", (part(4),))]
    assert fold.pending("0") == (part(9),)
    assert (fold.upto, fold.closed("0"), fold.tip("0")) == (5, 5, BatchId("l", 1))
    assert fold.last("0") == record(0, 1, 5, (part(2, "b"), part(4), part(9)))
    assert fold.schema() == "schema of 0"
    assert fold.fingerprint("0") == "plan of 0"


def test_rule_13_a_named_part_is_a_sign_of_what_lies_before_it() -> None:
    fold = folded(started(), record(0, 0, 5, (part(9),)))
    assert [fold.past(n) for n in (5, 8, 9)] == [True, True, False]


def test_rule_1_an_older_epoch_counts_no_more() -> None:
    fold = folded(started(), record(0, 0, 1, (part(1),)), started())
    outcome = fold.apply(3, record(0, 1, 2, (part(2),)))
    assert (outcome.accepted, outcome.reason, outcome.replica, fold.upto) == (False, "fenced", "0", 1)
    assert fold.epoch("0") == 2


def test_rule_4_a_second_record_of_an_id_is_ignored() -> None:
    fold = folded(started(), record(0, 0, 0, (part(1),)))
    assert fold.apply(2, record(0, 0, 0, (part(1),))).reason == "known"
    fold.apply(3, record(0, 1, 1))
    assert fold.stable(1, 1) == [(1, "0", (part(1),))]


def test_rule_4_a_restart_from_an_older_checkpoint_cuts_the_chain_and_its_parts() -> None:
    fold = folded(
        started(), record(0, 0, 1, (part(1),)), record(0, 1, 2, (part(3, "cut off"),)), started(),
        record(3, 1, 4, (part(3, "again"),), lineage="m", prev=BatchId("l", 0)),
    )  # fmt: skip
    assert fold.stable(1, 4) == [(1, "0", (part(1),)), (3, "0", (part(3, "again"),))]
    assert fold.accepted("0", BatchId("l", 0))
    assert not fold.accepted("0", BatchId("l", 1))


def test_rule_4_a_restart_at_the_tip_keeps_pending_parts() -> None:
    fold = folded(started(), record(0, 0, 1, (part(3),)), started(), record(2, 1, 3, (part(2),), lineage="m", prev=BatchId("l", 0)))
    assert fold.stable(1, 3) == [(2, "0", (part(2),)), (3, "0", (part(3),))]


def test_rule_4_a_rewind_keeps_the_pending_parts_of_what_stays_on_the_chain() -> None:
    fold = folded(
        started(), record(0, 0, 1, (part(3, "kept"),)), record(0, 1, 2, (part(3, "cut"),)), started(),
        record(3, 1, 3, lineage="m", prev=BatchId("l", 0)),
    )  # fmt: skip
    assert fold.stable(1, 3) == [(3, "0", (part(3, "kept"),))]


def test_rule_4_what_is_closed_stays_as_it_is() -> None:
    fold = folded(
        started(), record(0, 0, 2, (part(2, "first"),)), started(), record(2, 0, 3, (part(2, "second"), part(3)), lineage="m", prev=None)
    )
    assert fold.stable(1, 3) == [(2, "0", (part(2, "first"),)), (3, "0", (part(3),))]
    assert fold.replica_bucket("0", 2) == (part(2, "first"),)


def test_a_record_that_continues_nothing_known_is_ignored() -> None:
    fold = folded(started(), record(0, 0, 1))
    assert fold.apply(2, record(0, 7, 2, prev=BatchId("other", 6))).reason == "off_chain"
    assert fold.upto == 1


def test_a_record_that_closes_less_changes_nothing_closed() -> None:
    fold = folded(started(), record(0, 0, 5), record(0, 1, 3, (part(6),)))
    assert (fold.upto, fold.closed("0"), fold.pending("0")) == (5, 5, (part(6),))


def test_rule_5_the_first_to_close_a_bucket_gives_it_whole() -> None:
    fold = folded(
        started("0"), started("1"),
        record(0, 0, 2, (part(1, "of 0"),), replica="0"),
        record(1, 0, 4, (part(1, "of 1"), part(2, "of 1"), part(4, "of 1")), replica="1"),
        record(0, 1, 6, (part(4, "of 0"), part(5, "of 0")), replica="0"),
    )  # fmt: skip
    assert fold.stable(1, 6) == [(1, "0", (part(1, "of 0"),)), (4, "1", (part(4, "of 1"),)), (5, "0", (part(5, "of 0"),))]
    assert fold.replica_bucket("1", 2) == (part(2, "of 1"),)
    assert fold.replica_bucket("0", 2) == ()
    assert fold.replica_bucket("1", 5) is None


def test_rule_6_a_base_says_what_is_not_the_writers_own() -> None:
    fold = folded(
        started("0"), started("1"), record(0, 0, 3, (part(2, "of 0"),), replica="0"),
        record(1, 8, 3, replica="1", prev=BatchId("of 0", 7), base=3), record(1, 9, 5, (part(5, "of 1"),), replica="1"),
    )  # fmt: skip
    assert fold.stable(1, 5) == [(2, "0", (part(2, "of 0"),)), (5, "1", (part(5, "of 1"),))]
    assert fold.replica_bucket("1", 2) is None


def test_rule_6_a_base_resets_pending_parts_and_leaves_a_hole_to_its_sibling() -> None:
    fold = folded(
        started("0"), started("1"), record(1, 0, 0, (part(4, "before"),), replica="1"),
        record(1, 1, 3, replica="1", prev=None, base=3), record(1, 2, 5, (part(5),), replica="1"),
    )  # fmt: skip
    assert fold.upto == 0  # nobody has 1..3 yet
    fold.apply(5, record(0, 0, 4, (part(2), part(4, "of 0")), replica="0"))
    assert fold.stable(1, 5) == [(2, "0", (part(2),)), (4, "0", (part(4, "of 0"),)), (5, "1", (part(5),))]


def test_what_is_not_a_stable_record_of_a_known_writer_changes_nothing() -> None:
    fold = folded(started())
    assert fold.apply(1, started("stranger")).reason == "unknown_writer"
    assert fold.apply(2, record(0, 0, 9, kind=BoundaryKind.TENTATIVE)).reason == "tentative"
    assert fold.apply(3, Summary(0, 0)).reason == "summary"
    assert fold.upto == 0


def test_forgetting_bounds_memory_and_is_refused_later() -> None:
    fold = folded(started(), record(0, 0, 9, tuple(part(n) for n in range(1, 10))))
    fold.forget(5)
    fold.forget(3)
    assert fold.forgotten == 5
    assert [b for b, _, _ in fold.stable(6, 9)] == [6, 7, 8, 9]
    assert fold.replica_bucket("0", 5) is None
    for first, last in ((5, 6), (6, 10)):
        with pytest.raises(LocalProtocolError):
            fold.stable(first, last)
    fold.forget(99)
    assert fold.forgotten == 9
    fold.apply(9, record(0, 1, 12, (part(11),)))
    assert fold.stable(10, 12) == [(11, "0", (part(11),))]


def test_a_slower_sibling_keeps_nothing_of_what_is_forgotten() -> None:
    fold = folded(started("0"), started("1"), record(0, 0, 4, (part(2),)))
    fold.forget(4)
    fold.apply(3, record(1, 0, 4, (part(2),), replica="1"))
    assert fold.replica_bucket("1", 2) is None


def test_the_chain_is_bounded() -> None:
    fold = folded(started(), *(record(0, n, n) for n in range(CHAIN_RECORDS_MAX + 5)))
    assert not fold.accepted("0", BatchId("l", 4))
    assert fold.accepted("0", BatchId("l", 5))


class Reference:
    """Rules 1, 3, 4, 5 and 6 over a short range of buckets, one bucket at a time, remembering everything."""

    LAST = 12

    def __init__(self) -> None:
        self.epoch: dict[str, int] = {}
        self.chain: dict[str, list[BatchId]] = {"0": [], "1": []}
        self.seen: set[tuple[str, int, BatchId]] = set()
        self.newest: dict[tuple[str, int, str], int] = {}
        self.pending: dict[str, list[tuple[BatchId, Part]]] = {"0": [], "1": []}
        self.own: dict[str, dict[int, tuple[Part, ...] | None]] = {"0": {}, "1": {}}
        self.stable: dict[int, tuple[str, tuple[Part, ...]]] = {}

    def apply(self, offset: int, entry: LogEntry) -> None:
        if isinstance(entry, EpochStarted):
            self.epoch[entry.replica] = offset
            return
        assert isinstance(entry, BoundaryRecord)
        r, chain = entry.replica, self.chain[entry.replica]
        if self.epoch.get(r) != entry.epoch or entry.id.batch <= self.newest.get((r, entry.epoch, entry.id.lineage), -1):
            return
        if entry.base is not None:
            chain[:] = [entry.prev] if entry.prev else []
            self.pending[r] = []
            for n in range(1, entry.base + 1):
                self.own[r].setdefault(n, None)
        elif entry.prev is None:
            chain.clear()
            self.pending[r] = []
        elif entry.prev in chain:
            del chain[chain.index(entry.prev) + 1 :]
            self.pending[r] = [(i, p) for i, p in self.pending[r] if i in chain]
        else:
            return
        self.newest[r, entry.epoch, entry.id.lineage] = entry.id.batch
        chain.append(entry.id)
        self.pending[r] += [(entry.id, p) for p in entry.parts]
        for n in range(1, entry.closed + 1):
            self.own[r].setdefault(n, tuple(p for _, p in self.pending[r] if p.bucket == n))
        while True:
            n = len(self.stable) + 1
            own = {w: self.own[w].get(n) for w in (r, *(w for w in self.own if w != r))}
            giver = next((w for w, parts in own.items() if parts is not None), None)
            if giver is None:
                return
            self.stable[n] = (giver, own[giver] or ())


@st.composite
def logs(draw: st.DrawFn) -> list[LogEntry]:
    """Logs of two writers with restarts, rewinds, bases, zombies and repeats; mostly sensible, so that much is accepted."""
    entries: list[LogEntry] = [started("0"), started("1")]
    ids: dict[str, list[BatchId]] = {"0": [], "1": []}
    epochs: dict[str, list[int]] = {"0": [0], "1": [1]}
    closed = {"0": 0, "1": 0}
    for step in range(draw(st.integers(0, 25))):
        r = draw(st.sampled_from("01"))
        what = draw(st.sampled_from(("next",) * 8 + ("epoch", "repeat", "rewind", "zombie", "base", "scratch", "lost")))
        if what == "epoch":
            epochs[r].append(len(entries))
            entries.append(started(r))
            continue
        if what == "repeat" and len(entries) > 2:
            entries.append(entries[draw(st.integers(2, len(entries) - 1))])
            continue
        epoch = draw(st.sampled_from(epochs[r])) if what == "zombie" else epochs[r][-1]
        lineage, prev = f"{epoch}-{step if what in ('rewind', 'scratch') else 0}", ids[r][-1] if ids[r] else None
        if what == "rewind" and ids[r]:
            prev = draw(st.sampled_from(ids[r]))
        if what == "scratch":
            prev = None
        if what == "lost":
            prev = BatchId("never", 1)
        base = None
        if what == "base":
            base = closed["1" if r == "0" else "0"]
        closed[r] = min(Reference.LAST, max(closed[r] + draw(st.integers(-1, 3)), base or 0, 0))
        parts = tuple(part(draw(st.integers(1, Reference.LAST)), f"attempt {step}.{i}") for i in range(draw(st.integers(0, 2))))
        entries.append(record(epoch, step, closed[r], parts, replica=r, lineage=lineage, prev=prev, base=base))
        ids[r].append(BatchId(lineage, step))
    return entries


@given(logs())
def test_the_fold_is_the_reference(entries: list[LogEntry]) -> None:
    fold, reference = StreamFold(["0", "1"]), Reference()
    upto = 0
    known: dict[int, tuple[str, tuple[Part, ...]]] = {}
    for offset, entry in enumerate(entries):
        fold.apply(offset, entry)
        reference.apply(offset, entry)
        assert fold.upto == len(reference.stable)
        assert fold.upto >= upto, "L7"
        upto = fold.upto
        now = {b: (r, parts) for b, r, parts in fold.stable(1, upto)} if upto else {}
        assert now == {b: v for b, v in reference.stable.items() if v[1]}
        assert known.items() <= now.items(), "L5"
        known = now


@given(logs(), st.integers(0, 30), st.integers(0, 12))
def test_l8_from_a_summary_it_is_the_same(entries: list[LogEntry], cut: int, forgotten: int) -> None:
    whole = folded(*entries)
    first = folded(*entries[:cut])
    first.forget(forgotten)
    again = StreamFold.from_summary(first.summary(min(cut, len(entries))))
    assert again.summary(0) == first.summary(0)
    for offset, entry in list(enumerate(entries))[cut:]:
        assert again.apply(offset, entry) == first.apply(offset, entry)
    assert again.upto == whole.upto
    if again.upto > again.forgotten:
        assert again.stable(again.forgotten + 1, again.upto) == whole.stable(again.forgotten + 1, again.upto)
    for replica in "01":
        assert again.pending(replica) == whole.pending(replica)
        assert again.tip(replica) == whole.tip(replica)
