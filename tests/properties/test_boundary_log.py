"""The fold of a boundary log over random logs: it is the slow reference, and its invariants hold at every step."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.boundary_log import StreamFold, contents
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.records import BoundaryKind, BoundaryRecord, LogEntry, Part, Resent
from harness.boundary_logs import LAST, WRITERS, Reference, folded, logs
from harness.examples import examples

EXAMPLES = examples(200)
ALL = range(1, LAST + 3)


def stable_of(fold: StreamFold) -> dict[int, tuple[str, tuple[Part, ...]]]:
    return {b: (r, parts) for b, r, parts in fold.stable(1, fold.upto)} if fold.upto else {}


def chain_of(fold: StreamFold) -> list[object]:
    """Everything of the stable side."""
    return [(fold.upto, stable_of(fold)), *((fold.tip(w), fold.last(w), fold.pending(w), fold.closed(w)) for w in WRITERS)]


def assert_same_tentative(fold: StreamFold, reference: Reference) -> None:
    for w in WRITERS:
        expected = {n: reference.tentative(w, n) for n in ALL}
        for n in ALL:
            found = fold.tentative(w, n)
            assert (None if found is None else (found.branch, found.parts, found.missing)) == expected[n]
            assert found is None or (found.bucket, found.replica) == (n, w)
        assert fold.tentative_filled(w, 1, LAST) == [n for n in ALL if (e := expected[n]) is not None and e[1]]
        ranges = fold.tentative_ranges(w, 1, LAST)
        assert {n: (r.branch, r.missing) for r in ranges for n in range(r.first, r.last + 1)} == {
            n: (e[0], e[2]) for n in ALL if (e := expected[n]) is not None
        }, "T3"
        assert fold.branch(w) == reference.branch.get(w)
        assert fold.tentative_upto(w) == max(reference.branch_own[w], default=0)


def assert_same_open(fold: StreamFold, reference: Reference) -> None:
    for n in ALL:
        expected = reference.open_parts(n)
        writer, parts = fold.open_parts(n)
        assert parts == expected.get(writer, ())
        assert bool(parts) == bool(expected)
        assert sum(p.rows for p in parts) == max((sum(p.rows for p in ps) for ps in expected.values()), default=0)
    assert fold.open_buckets(1, LAST) == [n for n in ALL if reference.open_parts(n)]


@EXAMPLES
@given(logs())
def test_the_fold_is_the_reference(entries: list[LogEntry]) -> None:
    fold, reference = StreamFold(WRITERS), Reference()
    upto = past = 0
    known: dict[int, tuple[str, tuple[Part, ...]]] = {}
    for offset, entry in enumerate(entries):
        before = chain_of(fold)
        outcome = fold.apply(offset, entry)
        assert outcome.accepted == reference.apply(offset, entry)
        if isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.TENTATIVE:
            assert chain_of(fold) == before, "L9"
            assert fold.accepted(entry.replica, entry.id) or not outcome.accepted
        if not outcome.accepted:
            assert chain_of(fold) == before
        assert fold.upto == len(reference.stable)
        assert fold.upto >= upto, "L7"
        assert fold.past_upto >= max(past, fold.upto), "L12"
        assert fold.past_upto == reference.past
        upto, past = fold.upto, fold.past_upto
        now = stable_of(fold)
        assert now == {b: v for b, v in reference.stable.items() if v[1]}
        assert known.items() <= now.items(), "L5"
        known = now
        for w in WRITERS:
            own = reference.own[w]
            for n in ALL:
                found = fold.replica_bucket(w, n)
                assert found is None or found == own[n], "L4"
                assert found is not None or own.get(n) is None or n <= max(e.base or 0 for e in entries if isinstance(e, BoundaryRecord))
            assert sorted(fold.pending(w), key=str) == sorted((p for _, p in reference.pending[w] if p.bucket not in own), key=str)
    assert_same_tentative(fold, reference)
    assert_same_open(fold, reference)


@EXAMPLES
@given(logs())
def test_branches_are_the_references_after_every_record(entries: list[LogEntry]) -> None:
    fold, reference = StreamFold(WRITERS), Reference()
    for offset, entry in enumerate(entries):
        fold.apply(offset, entry)
        reference.apply(offset, entry)
        assert_same_tentative(fold, reference)
        assert_same_open(fold, reference)


@EXAMPLES
@given(logs())
def test_l2_a_record_may_come_again_at_any_time(entries: list[LogEntry]) -> None:
    """A writer that sends again, or a record that arrives late, changes nothing; and the writer can tell it from a refusal."""
    once, twice = folded(*entries), StreamFold(WRITERS)
    counted: list[BoundaryRecord] = []
    for offset, entry in enumerate(entries):
        if twice.apply(offset, entry).accepted and isinstance(entry, BoundaryRecord):
            counted.append(entry)
        for other in counted:
            assert twice.apply(offset, other).reason == ("known" if other.epoch == twice.epoch(other.replica) else "fenced")
    assert twice.summary(0) == once.summary(0)


@EXAMPLES
@given(logs(), st.integers(0, 30), st.integers(0, 12))
def test_l8_from_a_summary_it_is_the_same(entries: list[LogEntry], cut: int, forgotten: int) -> None:
    whole = folded(*entries)
    first = folded(*entries[:cut])
    first.forget(forgotten)
    again = StreamFold.from_summary(first.summary(min(cut, len(entries))))
    assert again.summary(0) == first.summary(0)
    for offset, entry in list(enumerate(entries))[cut:]:
        assert again.apply(offset, entry) == first.apply(offset, entry)
    assert again.summary(0) == first.summary(0)
    assert (again.upto, again.past_upto) == (whole.upto, whole.past_upto)
    if again.upto > again.forgotten:
        assert again.stable(again.forgotten + 1, again.upto) == whole.stable(again.forgotten + 1, again.upto)
    for w in WRITERS:
        assert again.pending(w) == whole.pending(w)
        assert (again.tip(w), again.branch(w), again.tentative_upto(w)) == (whole.tip(w), whole.branch(w), whole.tentative_upto(w))
        assert [again.tentative(w, n) for n in ALL] == [whole.tentative(w, n) for n in ALL]
    assert [again.open_parts(n) for n in ALL] == [whole.open_parts(n) for n in ALL]


huge = st.sampled_from((-(2**63), -1, 0, 1, 5, 10**6, 10**15, 2**62, 2**63 - 1))
hostile = st.builds(
    BoundaryRecord, replica=st.sampled_from(("0", "1", "2")), epoch=st.sampled_from((0, 1, 2, 2**62)),
    id=st.builds(BatchId, st.sampled_from("ab"), huge), prev=st.none() | st.builds(BatchId, st.sampled_from("ab"), huge), closed=huge,
    parts=st.lists(st.builds(Part, huge, st.just(0), st.just("a"), st.just(1), st.just(0), st.just(1), huge, st.just(0)), max_size=3).map(tuple),
    base=st.none() | huge, kind=st.sampled_from(BoundaryKind), branch=st.none() | st.tuples(st.sampled_from((0, 1, -1, 2**62)), huge),
    missing=st.lists(st.sampled_from("xy"), max_size=2).map(tuple),
)  # fmt: skip


@EXAMPLES
@given(logs(steps=6), st.lists(hostile, max_size=15))
def test_whatever_a_record_says_the_fold_takes_or_refuses_it(entries: list[LogEntry], more: list[BoundaryRecord]) -> None:
    """Numbers that no codec would pass, too. That it ends at all shows that nothing counts through bucket numbers."""
    fold, upto, past = StreamFold(WRITERS), 0, 0
    for offset, entry in enumerate([*entries, *more]):
        outcome = fold.apply(offset, entry)
        assert outcome.reason
        assert fold.upto >= upto, "L7"
        assert fold.past_upto >= past, "L12"
        upto, past = fold.upto, fold.past_upto
    for w in WRITERS:
        for covered in fold.tentative_ranges(w, 1, 2**63):
            assert upto < covered.first <= covered.last, "L10"
            assert fold.tentative(w, covered.last) is not None
        for bucket in fold.tentative_filled(w, -(2**63), 2**63):
            assert bucket > upto, "L10"
            found = fold.tentative(w, bucket)
            assert found is not None
            assert found.parts
    assert all(fold.open_parts(n)[1] for n in fold.open_buckets(1, 2**63))
    assert StreamFold.from_summary(fold.summary(0)).summary(0) == fold.summary(0)


@EXAMPLES
@given(logs(), st.data())
def test_l14_whatever_is_resent_no_bucket_has_other_contents_and_nothing_else_changes(entries: list[LogEntry], data: st.DataObject) -> None:
    """Beside a fold of the same log that hears nothing of it."""
    plain, fold = StreamFold(WRITERS), StreamFold(WRITERS)
    for offset, entry in enumerate(entries):
        assert fold.apply(offset, entry) == plain.apply(offset, entry)
        writer = data.draw(st.sampled_from(WRITERS))
        buckets = data.draw(st.lists(st.integers(1, LAST), max_size=3))
        parts = tuple(
            Part(b, 0, "resent", 1, 50, 51, data.draw(st.integers(0, 2)), data.draw(st.sampled_from((0, 7, 14)))) for b in buckets
        )
        epoch = data.draw(st.integers(-1, offset))
        outcome = fold.apply(offset, Resent(writer, epoch, parts))
        assert outcome.accepted == (epoch == plain.epoch(writer)) or plain.epoch(writer) is None
        found, known = stable_of(fold), stable_of(plain)
        assert found.keys() == known.keys()
        assert all(contents(found[b][1]) == contents(known[b][1]) for b in found)
        assert all(found[b] == known[b] or found[b][1][0].attempt == "resent" for b in found)
        assert chain_of(fold)[1:] == chain_of(plain)[1:]
