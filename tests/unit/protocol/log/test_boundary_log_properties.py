"""The log state of a boundary log over random logs: it is the slow reference, and its
invariants hold at every step.
"""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState, contents
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    LogEntry,
    Part,
    Recomputed,
    as_known_here,
)
from harness.boundary_logs import LAST, WRITERS, Reference, logs, state_after
from harness.examples import examples

EXAMPLES = examples(200)
ALL = range(1, LAST + 3)


def stable_of(log_state: LogState) -> dict[int, tuple[str, tuple[Part, ...]]]:
    return (
        {b: (r, parts) for b, r, parts in log_state.stable(1, log_state.upto)}
        if log_state.upto
        else {}
    )


def chain_of(log_state: LogState) -> list[object]:
    """Everything of the stable side."""
    return [
        (log_state.upto, stable_of(log_state)),
        *(
            (log_state.tip(w), log_state.last(w), log_state.pending(w), log_state.closed(w))
            for w in WRITERS
        ),
    ]


def assert_same_tentative(log_state: LogState, reference: Reference) -> None:
    for w in WRITERS:
        expected = {n: reference.tentative(w, n) for n in ALL}
        for n in ALL:
            found = log_state.tentative(w, n)
            assert (
                None if found is None else (found.branch, found.parts, found.missing)
            ) == expected[n]
            assert found is None or (found.bucket, found.replica) == (n, w)
        assert log_state.tentative_filled(w, 1, LAST) == [
            n for n in ALL if (e := expected[n]) is not None and e[1]
        ]
        ranges = log_state.tentative_ranges(w, 1, LAST)
        assert {n: (r.branch, r.missing) for r in ranges for n in range(r.first, r.last + 1)} == {
            n: (e[0], e[2]) for n in ALL if (e := expected[n]) is not None
        }, "TE3"
        assert log_state.branch(w) == reference.branch.get(w)
        assert log_state.tentative_upto(w) == max(reference.branch_own[w], default=0)
        has_branch = reference.has_branch(w)
        assert log_state.has_branch(w) == has_branch, "BL18"
        assert log_state.awaits_correction(w) == (has_branch and not reference.running[w])
        assert log_state.ended_branch(w) == reference.ended.get(w)


def assert_same_open(log_state: LogState, reference: Reference) -> None:
    for n in ALL:
        expected = reference.open_parts(n)
        writer, parts = log_state.open_parts(n)
        assert parts == expected.get(writer, ())
        assert bool(parts) == bool(expected)
        assert sum(p.rows for p in parts) == max(
            (sum(p.rows for p in ps) for ps in expected.values()), default=0
        )
    assert log_state.open_buckets(1, LAST) == [n for n in ALL if reference.open_parts(n)]


@EXAMPLES
@given(logs())
def test_the_log_state_is_the_reference(entries: list[LogEntry]) -> None:
    log_state, reference = LogState(WRITERS), Reference()
    upto = past = 0
    known: dict[int, tuple[str, tuple[Part, ...]]] = {}
    for offset, entry in enumerate(entries):
        before = chain_of(log_state)
        outcome = log_state.apply(offset, entry)
        assert outcome.accepted == reference.apply(offset, entry)
        if isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.TENTATIVE:
            assert chain_of(log_state) == before, "BL9"
            assert log_state.accepted(entry.replica, entry.id) or not outcome.accepted
        if not outcome.accepted:
            assert chain_of(log_state) == before
        assert log_state.upto == len(reference.stable)
        assert log_state.upto >= upto, "BL7"
        assert log_state.past_upto >= max(past, log_state.upto), "BL12"
        assert log_state.past_upto == reference.past
        upto, past = log_state.upto, log_state.past_upto
        now = stable_of(log_state)
        assert now == {b: v for b, v in reference.stable.items() if v[1]}
        assert known.items() <= now.items(), "BL5"
        known = now
        for w in WRITERS:
            own = reference.own[w]
            for n in ALL:
                found = log_state.replica_bucket(w, n)
                assert found is None or found == own[n], "BL4"
                assert (
                    found is not None
                    or own.get(n) is None
                    or n <= max(e.base or 0 for e in entries if isinstance(e, BoundaryRecord))
                )
            assert sorted(log_state.pending(w), key=str) == sorted(
                (p for _, p in reference.pending[w] if p.bucket not in own), key=str
            )
        assert_same_tentative(log_state, reference)
        assert_same_open(log_state, reference)


@EXAMPLES
@given(logs())
def test_bl2_a_record_may_come_again_at_any_time(entries: list[LogEntry]) -> None:
    """A writer that sends again, or a record that arrives late, changes nothing; and the
    writer can tell it from a rejection.
    """
    once, twice = state_after(*entries), LogState(WRITERS)
    counted: list[BoundaryRecord] = []
    for offset, entry in enumerate(entries):
        if twice.apply(offset, entry).accepted and isinstance(entry, BoundaryRecord):
            counted.append(entry)
        for other in counted:
            assert twice.apply(offset, other).reason == (
                "known" if other.epoch == twice.epoch(other.replica) else "fenced"
            )
    assert twice.snapshot(0) == once.snapshot(0)


@EXAMPLES
@given(logs(), st.integers(0, 30), st.integers(0, 12))
def test_bl8_from_a_snapshot_it_is_the_same(
    entries: list[LogEntry], cut: int, forgotten: int
) -> None:
    whole = state_after(*entries)
    first = state_after(*entries[:cut])
    first.forget(forgotten)
    again = LogState.from_snapshot(first.snapshot(min(cut, len(entries))))
    assert again.snapshot(0) == first.snapshot(0)
    for offset, entry in list(enumerate(entries))[cut:]:
        assert again.apply(offset, entry) == first.apply(offset, entry)
    assert again.snapshot(0) == first.snapshot(0)
    assert (again.upto, again.past_upto) == (whole.upto, whole.past_upto)
    if again.upto > again.forgotten:
        assert again.stable(again.forgotten + 1, again.upto) == whole.stable(
            again.forgotten + 1, again.upto
        )
    for w in WRITERS:
        assert again.pending(w) == whole.pending(w)
        assert (again.tip(w), again.branch(w), again.tentative_upto(w)) == (
            whole.tip(w),
            whole.branch(w),
            whole.tentative_upto(w),
        )
        assert (
            again.has_branch(w),
            again.awaits_correction(w),
            again.ended_branch(w),
            again.first_tentative_upto(w),
        ) == (
            whole.has_branch(w),
            whole.awaits_correction(w),
            whole.ended_branch(w),
            whole.first_tentative_upto(w),
        )
        assert [again.tentative(w, n) for n in ALL] == [whole.tentative(w, n) for n in ALL]
    assert [again.open_parts(n) for n in ALL] == [whole.open_parts(n) for n in ALL]


huge = st.sampled_from((-(2**63), -1, 0, 1, 5, 10**6, 10**15, 2**62, 2**63 - 1))
hostile = st.builds(
    BoundaryRecord,
    replica=st.sampled_from(("0", "1", "2")),
    epoch=st.sampled_from((0, 1, 2, 2**62)),
    id=st.builds(BatchId, st.sampled_from("ab"), huge),
    prev=st.none() | st.builds(BatchId, st.sampled_from("ab"), huge),
    closed=huge,
    parts=st.lists(
        st.builds(
            Part,
            huge,
            st.just(0),
            st.just("a"),
            st.just(1),
            st.just(0),
            st.just(1),
            huge,
            st.just(0),
        ),
        max_size=3,
    ).map(tuple),
    base=st.none() | huge,
    kind=st.sampled_from(BoundaryKind),
    branch=st.none() | st.tuples(st.sampled_from((0, 1, -1, 2**62)), huge),
    missing=st.lists(st.sampled_from("xy"), max_size=2).map(tuple),
)


@EXAMPLES
@given(logs(steps=6), st.lists(hostile, max_size=15))
def test_whatever_a_record_says_the_log_state_takes_or_rejects_it(
    entries: list[LogEntry], more: list[BoundaryRecord]
) -> None:
    """Numbers that no codec would pass, too. That it ends at all shows that nothing counts
    through bucket numbers.
    """
    log_state = LogState(WRITERS)
    upto = 0
    past = 0
    for offset, entry in enumerate([*entries, *more]):
        outcome = log_state.apply(offset, entry)
        assert outcome.reason
        assert log_state.upto >= upto, "BL7"
        assert log_state.past_upto >= past, "BL12"
        upto, past = log_state.upto, log_state.past_upto
    for w in WRITERS:
        for covered in log_state.tentative_ranges(w, 1, 2**63):
            assert upto < covered.first <= covered.last, "BL10"
            assert log_state.tentative(w, covered.last) is not None
        for bucket in log_state.tentative_filled(w, -(2**63), 2**63):
            assert bucket > upto, "BL10"
            found = log_state.tentative(w, bucket)
            assert found is not None
            assert found.parts
    assert all(log_state.open_parts(n)[1] for n in log_state.open_buckets(1, 2**63))
    assert LogState.from_snapshot(log_state.snapshot(0)).snapshot(0) == log_state.snapshot(0)


@EXAMPLES
@given(logs(), st.data())
def test_bl14_whatever_is_recomputed_no_bucket_has_other_contents_and_nothing_else_changes(
    entries: list[LogEntry], data: st.DataObject
) -> None:
    """Beside a log state of the same log that hears nothing of it."""
    plain, log_state = LogState(WRITERS), LogState(WRITERS)
    for offset, entry in enumerate(entries):
        assert log_state.apply(offset, entry) == plain.apply(offset, entry)
        writer = data.draw(st.sampled_from(WRITERS))
        buckets = data.draw(st.lists(st.integers(1, LAST), max_size=3))
        parts = tuple(
            Part(
                b,
                0,
                "recomputed",
                1,
                50,
                51,
                data.draw(st.integers(0, 2)),
                data.draw(st.sampled_from((0, 7, 14))),
            )
            for b in buckets
        )
        epoch = data.draw(st.integers(-1, offset))
        outcome = log_state.apply(offset, Recomputed(writer, epoch, parts))
        assert outcome.accepted == (epoch == plain.epoch(writer)) or plain.epoch(writer) is None
        found, known = stable_of(log_state), stable_of(plain)
        assert found.keys() == known.keys()
        assert all(contents(found[b][1]) == contents(known[b][1]) for b in found)
        assert all(found[b] == known[b] or found[b][1][0].attempt == "recomputed" for b in found)
        assert chain_of(log_state)[1:] == chain_of(plain)[1:]


@EXAMPLES
@given(logs())
def test_fn2_a_log_is_the_same_under_another_name(entries: list[LogEntry]) -> None:
    there, here = LogState(WRITERS), LogState(WRITERS)
    for offset, entry in enumerate(entries):
        assert there.apply(offset, entry) == here.apply(offset, as_known_here(entry, "theirs"))
    assert chain_of(there)[0] == chain_of(here)[0]
    for w in WRITERS:
        assert (there.tip(w), there.closed(w), there.pending(w)) == (
            here.tip(w),
            here.closed(w),
            here.pending(w),
        )
        for n in ALL:
            found, known = there.tentative(w, n), here.tentative(w, n)
            assert (found is None) == (known is None)
            if found is not None and known is not None:
                assert (found.branch, found.parts) == (known.branch, known.parts)
                assert known.missing == (("theirs",) if found.missing else ())
