"""The log state of a boundary log: each rule by example. Tentative buckets and branches:
tests/unit/protocol/log/test_boundary_log_branches.py. Against a slow reference:
tests/unit/protocol/log/test_boundary_log_properties.py.
"""

from __future__ import annotations

import dataclasses

import pytest

from anabranch.protocol.errors import LocalProtocolError, RemoteProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX, CHAIN_RECORDS_MAX
from anabranch.protocol.log import writer_state
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    GivenUp,
    LogSnapshot,
    Provenance,
    Recomputed,
    StableRange,
)
from harness.boundary_logs import part, record, started, state_after


def test_an_empty_log_has_nothing() -> None:
    log_state = LogState(["0"])
    assert (
        log_state.upto,
        log_state.forgotten,
        log_state.epoch("0"),
        log_state.closed("0"),
        log_state.tip("0"),
        log_state.last("0"),
    ) == (
        0,
        0,
        None,
        0,
        None,
        None,
    )
    assert log_state.fingerprint("0") == log_state.schema() == ""
    assert not log_state.past(1)


def test_parts_belong_to_the_bucket_that_a_later_record_closes() -> None:
    log_state = state_after(
        started(),
        record(0, 0, 0, (part(2, "a"),)),
        record(0, 1, 5, (part(2, "b"), part(4), part(9))),
    )
    assert log_state.stable(1, 5) == [(2, "0", (part(2, "a"), part(2, "b"))), (4, "0", (part(4),))]
    assert log_state.pending("0") == (part(9),)
    assert (log_state.upto, log_state.closed("0"), log_state.tip("0")) == (5, 5, BatchId("l", 1))
    assert log_state.last("0") == record(0, 1, 5, (part(2, "b"), part(4), part(9)))
    assert log_state.schema() == "schema of 0"
    assert log_state.fingerprint("0") == "plan of 0"


def test_rule_13_what_a_source_says_is_a_sign_and_a_part_far_ahead_is_none() -> None:
    log_state = state_after(started(), record(0, 0, 5, (part(9), part(70)), past=8))
    assert [log_state.past(n) for n in (5, 8, 9)] == [True, True, False]
    assert log_state.seen_upto == 9, "the next one has a part"
    log_state.apply(2, record(0, 1, 6, past=7))
    assert log_state.past_upto == 8, "BL12"
    log_state.apply(3, record(0, 2, 6, past=9))
    assert log_state.seen_upto == 9, "of bucket 10 there is nothing"


def test_bl21_a_later_attempt_lets_all_writers_of_a_half_begin_anew() -> None:
    first = dataclasses.replace(started(), attempt=3)
    log_state = state_after(first, record(0, 0, 4, (part(2), part(9))))
    assert log_state.attempt == 3
    other = dataclasses.replace(started("1"), attempt=5)
    assert log_state.apply(2, other).accepted
    assert (log_state.attempt, log_state.epoch("0"), log_state.epoch("1")) == (5, None, 2)
    assert log_state.apply(3, record(0, 1, 5)).reason == "fenced"
    assert (log_state.tip("0"), log_state.pending("0"), log_state.last("0")) == (None, (), None)
    assert not log_state.origin("0").has_results
    assert log_state.upto == 4, "what was closed stays so"
    assert log_state.apply(4, first).reason == "earlier_attempt"
    adopted = LogState(["0", "1"])
    adopted.adopt(log_state.snapshot(5))
    assert (adopted.attempt, adopted.epoch("0"), adopted.epoch("1")) == (5, None, 2)
    again = dataclasses.replace(started(), attempt=5)
    assert log_state.apply(5, again).accepted
    assert log_state.epoch("1") == 2, "of the same attempt nobody begins anew"
    late = dataclasses.replace(record(5, 0, 7, prev=None), missing=("a",))
    assert log_state.apply(6, late).accepted
    assert (log_state.upto, log_state.origin("0").late_upto) == (7, 7)


def test_rule_1_an_older_epoch_counts_no_more() -> None:
    log_state = state_after(started(), record(0, 0, 1, (part(1),)), started())
    outcome = log_state.apply(3, record(0, 1, 2, (part(2),)))
    assert (outcome.accepted, outcome.reason, outcome.replica, log_state.upto) == (
        False,
        "fenced",
        "0",
        1,
    )
    assert log_state.epoch("0") == 2


def test_rule_4_a_restart_from_an_older_checkpoint_cuts_the_chain_and_its_parts() -> None:
    log_state = state_after(
        started(),
        record(0, 0, 1, (part(1),)),
        record(0, 1, 2, (part(3, "cut off"),)),
        started(),
        record(3, 1, 4, (part(3, "again"),), timeline="m", prev=BatchId("l", 0)),
    )
    assert log_state.stable(1, 4) == [(1, "0", (part(1),)), (3, "0", (part(3, "again"),))]
    assert log_state.accepted("0", BatchId("l", 0))
    assert not log_state.accepted("0", BatchId("l", 1))
    assert log_state.chain("0") == {BatchId("l", 0), BatchId("m", 1)}


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_rule_4_a_rewind_keeps_the_parts_of_records_that_are_not_remembered_any_more(
    *, from_snapshot: bool
) -> None:
    """The rows of such a stage belong to a bucket half an hour ahead."""
    last = CHAIN_RECORDS_MAX + 9
    log_state = state_after(
        started(),
        record(0, 0, 1, (part(last, "first"),)),
        *(record(0, n, n, (part(last, f"{n}"),)) for n in range(1, last)),
    )
    assert not log_state.accepted("0", BatchId("l", 0))
    if from_snapshot:
        log_state = LogState.from_snapshot(log_state.snapshot(last + 1))
    log_state.apply(last + 1, started())
    log_state.apply(
        last + 2,
        record(
            last + 1,
            last - 2,
            last,
            (part(last, "again"),),
            timeline="m",
            prev=BatchId("l", last - 3),
        ),
    )
    kept = ["first", *(f"{n}" for n in range(1, last - 2)), "again"]
    assert [[p.attempt for p in parts] for _, _, parts in log_state.stable(last, last)] == [kept]


def test_bl13_rewinds_again_and_again_open_no_more_than_one_record_beyond_the_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_state, "PENDING_PARTS_MAX", 3)
    log_state = state_after(
        started(), record(0, 0, 0, (part(7), part(8))), record(0, 1, 0, (part(9),))
    )
    for number in range(2, 6):
        more = record(
            0, number, 0, (part(9, "a"), part(9, "b")), timeline=f"m{number}", prev=BatchId("l", 0)
        )
        assert log_state.apply(number + 2, more).accepted
        assert log_state.pending_count("0") == 4
    assert (
        log_state.apply(9, record(0, 6, 0, (part(9),), timeline="m5", prev=BatchId("m5", 5))).reason
        == "pending"
    )


def test_a_record_that_continues_nothing_known_is_ignored() -> None:
    log_state = state_after(started(), record(0, 0, 1))
    assert log_state.apply(2, record(0, 7, 2, prev=BatchId("other", 6))).reason == "off_chain"
    assert log_state.upto == 1


def test_rule_5_the_first_to_close_a_bucket_gives_it_whole() -> None:
    log_state = state_after(
        started("0"),
        started("1"),
        record(0, 0, 2, (part(1, "of 0"),), replica="0"),
        record(1, 0, 4, (part(1, "of 1"), part(2, "of 1"), part(4, "of 1")), replica="1"),
        record(0, 1, 6, (part(4, "of 0"), part(5, "of 0")), replica="0"),
    )
    assert log_state.stable(1, 6) == [
        (1, "0", (part(1, "of 0"),)),
        (4, "1", (part(4, "of 1"),)),
        (5, "0", (part(5, "of 0"),)),
    ]
    assert log_state.replica_bucket("1", 2) == (part(2, "of 1"),)
    assert log_state.replica_bucket("0", 2) == ()
    assert log_state.replica_bucket("1", 5) is None


def test_a_bucket_is_read_from_whoever_made_the_same_of_it() -> None:
    """BL17: as many rows of the same digest, closed, own, and not the writer that was asked."""
    of_0, of_1 = part(2, "of 0"), part(2, "of 1")
    log_state = state_after(
        *(started(replica) for replica in "0123"),
        record(0, 0, 2, (of_0,), replica="0"),
        record(1, 0, 2, (of_1,), replica="1"),
        record(2, 0, 2, (dataclasses.replace(of_0, digest=of_0.digest + 1),), replica="2"),
        record(3, 0, 1, (of_0,), replica="3"),
        writers="0123",
    )
    assert log_state.alike(2, "0", (of_0,)) == [("1", (of_1,))]
    assert log_state.alike(2, "1", (of_1,)) == [("0", (of_0,))]
    assert log_state.alike(1, "0", ()) == []


def test_what_was_given_up_is_never_forgotten() -> None:
    log_state = state_after(
        started("0"), dataclasses.replace(record(0, 0, 9), given_up=(GivenUp("reports", 3, 5),))
    )
    log_state.forget(9)
    assert log_state.given_up.names(4) == ("reports",)
    assert LogState.from_snapshot(log_state.snapshot(2, 9)).given_up.ranges() == (
        GivenUp("reports", 3, 5),
    )


def test_bl16_a_stream_keeps_the_width_of_its_buckets() -> None:
    log_state = state_after(started("0"), dataclasses.replace(started("1"), bucket_ms=250))
    assert log_state.bucket_ms == 250
    assert (
        log_state.apply(2, dataclasses.replace(started("0"), bucket_ms=500)).reason == "other_width"
    )
    assert log_state.epoch("0") == 0, "nobody is fenced by it"
    again = LogState.from_snapshot(log_state.snapshot(3))
    assert again.apply(3, dataclasses.replace(started("1"), bucket_ms=500)).reason == "other_width"
    assert again.apply(4, dataclasses.replace(started("1"), bucket_ms=250)).reason == "epoch"


def test_bl20_a_stream_that_has_ended_takes_nothing_more_and_is_no_sign() -> None:
    log_state = state_after(started(), record(0, 0, 5, (part(3), part(9)), past=6))
    last = dataclasses.replace(record(0, 1, BUCKET_MAX, past=5), heirs=2)
    assert log_state.apply(2, last).reason == "accepted"
    assert (log_state.heirs, log_state.closed_upto, log_state.past_upto) == (2, 5, 6)
    assert log_state.upto == 5, "who does not follow its heirs gets no more"
    log_state.heirs_known = 2
    assert log_state.upto == BUCKET_MAX
    assert log_state.filled_upto == 9
    assert log_state.apply(3, last).reason == "known"
    assert log_state.ended_in("0", 0)
    log_state.apply(4, dataclasses.replace(started(), token="u"))
    assert not log_state.ended_in("0", 0), "a newer process has replaced it"
    assert log_state.apply(5, record(4, 2, BUCKET_MAX, (part(10),))).reason == "ended"
    again = LogState(["0"])
    again.adopt(log_state.snapshot(6))
    assert (again.heirs, again.closed_upto, again.past_upto) == (2, 5, 6)
    assert again.apply(6, record(4, 3, BUCKET_MAX)).reason == "ended"


def test_bl22_of_a_stream_that_others_write_what_contradicts_its_reader_does_not_count() -> None:
    def foreign() -> LogState:
        log_state = LogState(["0"])
        log_state.bucket_ms_expected, log_state.may_end = 250, False
        return log_state

    log_state, wide = foreign(), dataclasses.replace(started(), bucket_ms=500)
    assert log_state.apply(0, wide).reason == "other_width"
    assert log_state.apply(1, record(0, 0, 9)).reason == "fenced"
    begun = dataclasses.replace(started(), bucket_ms=250)
    assert log_state.apply(2, begun).reason == "epoch"
    assert log_state.apply(3, record(2, 0, 5, past=5)).reason == "accepted"
    end = dataclasses.replace(record(2, 1, BUCKET_MAX, past=5), heirs=2)
    assert log_state.apply(4, end).reason == "unknown_successors"
    assert log_state.apply(5, record(2, 1, 6)).reason == "accepted", "its writer continues"
    assert (log_state.upto, log_state.heirs) == (6, 0)

    ended = state_after(begun, record(0, 0, 5), dataclasses.replace(end, epoch=0, prev=None))
    for snapshot in (state_after(wide).snapshot(1), ended.snapshot(3)):
        again = foreign()
        with pytest.raises(RemoteProtocolError, match="log snapshot"):
            again.adopt(snapshot)
        assert again.snapshot(0) == foreign().snapshot(0), "nothing has changed"
    again = foreign()
    again.adopt(log_state.snapshot(6))
    assert again.upto == 6


def test_a_stream_keeps_what_its_first_epoch_says_of_the_streams_before() -> None:
    first = dataclasses.replace(started("0"), bucket_ms=250, rest_upto=40)
    log_state = state_after(first, dataclasses.replace(first, token="u", rest_upto=0))
    assert (log_state.rest_upto, log_state.whole_after) == (40, 0)
    log_state.rest_is_unread = True
    assert log_state.whole_after == 40
    again = LogState.from_snapshot(log_state.snapshot(2))
    assert again.rest_upto == 40


def test_bl16_a_stream_keeps_the_share_of_its_inputs() -> None:
    first = dataclasses.replace(started("0"), bucket_ms=250, share="0 of a by key")
    log_state = state_after(first)
    assert log_state.share == "0 of a by key"
    for share in ("", "00 of a by key"):
        other = dataclasses.replace(first, token="u", share=share)
        assert log_state.apply(1, other).reason == "other_share"
    assert log_state.epoch("0") == 0, "nobody is fenced by it"
    again = LogState.from_snapshot(log_state.snapshot(3))
    assert again.apply(3, dataclasses.replace(first, share="")).reason == "other_share"
    assert again.apply(4, dataclasses.replace(first, token="u")).reason == "epoch"


def test_bl15_an_upgrade_counts_from_the_bucket_at_which_it_has_caught_up() -> None:
    log_state = state_after(
        started("0"),
        started("1"),
        record(0, 0, 4, (part(4, "old"), part(6, "old")), replica="0"),
        record(1, 0, 3, (part(3, "old"),), replica="1", timeline="k"),
        started("1", version=2),
        record(4, 0, 3, replica="1", timeline="m", prev=BatchId("k", 0)),
    )
    assert log_state.version == (1, 0)
    assert log_state.apply(6, record(0, 1, 5, replica="0")).accepted, (
        "until it has, the version before goes on"
    )
    log_state.apply(7, record(4, 1, 6, (part(6, "new"),), replica="1", timeline="m"))
    assert log_state.version == (2, 5)
    assert (
        log_state.apply(8, record(0, 2, 7, (part(7, "old"),), replica="0")).reason == "superseded"
    )
    assert log_state.apply(9, started("0", version=1)).reason == "superseded"
    assert log_state.epoch("0") == 0
    assert log_state.stable(5, 6) == [(6, "1", (part(6, "new"),))]
    assert log_state.apply(10, started("0", version=3)).accepted
    assert log_state.apply(
        11,
        record(10, 3, 9, (part(7, "newest"), part(9, "newest")), replica="0", prev=BatchId("l", 1)),
    ).accepted
    assert log_state.version == (3, 6)
    assert log_state.stable(6, 9) == [
        (6, "1", (part(6, "new"),)),
        (7, "0", (part(7, "newest"),)),
        (9, "0", (part(9, "newest"),)),
    ]


def test_bl15_the_columns_are_those_of_the_version_that_counts() -> None:
    log_state = state_after(
        started("0"),
        record(0, 0, 4, replica="0"),
        started("1", version=2),
    )
    assert log_state.schema() == "schema of 0", "the new version does not count yet"
    log_state.apply(3, record(2, 0, 9, replica="1", timeline="m"))
    assert log_state.version == (2, 4)
    assert log_state.schema() == "schema of 1"
    log_state.apply(4, started("1", version=3))
    assert log_state.schema() == "schema of 1", "of the next one: none of version 2 is left"


def test_bl15_what_the_version_before_closed_behind_a_hole_is_not_the_new_ones() -> None:
    """The bucket up to which somebody else still has to make the stream must not end with
    results of another version.
    """
    old = (
        started("0"),
        started("1"),
        record(0, 0, 6, (part(6, "old"),), replica="0", base=4, prev=BatchId("k", 9)),
    )
    log_state = state_after(*old, started("0", version=2), record(1, 0, 4, (part(4),), replica="1"))
    assert log_state.upto == 4
    log_state.apply(5, record(1, 1, 6, (part(6),), replica="1"))
    log_state.apply(6, record(3, 1, 7, replica="0", prev=BatchId("l", 0)))
    assert log_state.stable(5, 7) == [(6, "1", (part(6),))]
    assert log_state.version == (2, 6)
    same = state_after(*old, started("0"), record(1, 0, 4, (part(4),), replica="1"))
    assert same.stable(1, 6) == [(4, "1", (part(4),)), (6, "0", (part(6, "old"),))]


def test_bl15_a_writer_of_a_lower_version_gives_nothing_once_the_hole_before_it_is_closed() -> None:
    log_state = state_after(
        started("0"),
        started("1", version=2),
        record(0, 0, 6, (part(6, "old"),), replica="0", base=4, prev=BatchId("k", 9)),
        record(1, 0, 4, (part(4),), replica="1"),
    )
    assert (log_state.upto, log_state.version) == (4, (2, 0))


def test_rule_6_a_base_says_what_is_not_the_writers_own() -> None:
    log_state = state_after(
        started("0"),
        started("1"),
        record(0, 0, 3, (part(2, "of 0"),), replica="0"),
        record(1, 8, 3, replica="1", prev=BatchId("of 0", 7), base=3),
        record(1, 9, 5, (part(5, "of 1"),), replica="1"),
    )
    assert log_state.stable(1, 5) == [(2, "0", (part(2, "of 0"),)), (5, "1", (part(5, "of 1"),))]
    assert log_state.replica_bucket("1", 2) is None


def test_which_buckets_of_a_writer_are_filled() -> None:
    log_state = state_after(
        started(),
        record(0, 0, 5, (part(2), part(4), part(7))),
        record(0, 1, 5, (part(5), part(6), part(8), part(9)), base=5),
        record(0, 2, 8),
    )
    assert log_state.replica_filled("0", 1, 8) == [6, 8]
    assert log_state.replica_filled("0", 7, 7) == []
    log_state.forget(6)
    assert log_state.replica_filled("0", 1, 9) == [8]


def test_what_is_not_a_stable_record_of_a_known_writer_changes_nothing() -> None:
    log_state = state_after(started())
    assert log_state.apply(1, started("stranger")).reason == "unknown_writer"
    assert log_state.apply(2, record(0, 0, 9, kind=BoundaryKind.TENTATIVE)).reason == "malformed"
    assert log_state.apply(3, LogSnapshot(0, 0)).reason == "log_snapshot"
    assert log_state.upto == 0


def test_forgetting_bounds_memory_and_is_rejected_later() -> None:
    log_state = state_after(started(), record(0, 0, 9, tuple(part(n) for n in range(1, 10))))
    log_state.forget(5)
    log_state.forget(3)
    assert log_state.forgotten == 5
    assert [b for b, _, _ in log_state.stable(6, 9)] == [6, 7, 8, 9]
    assert log_state.replica_bucket("0", 5) is None
    for first, last in ((5, 6), (6, 10)):
        with pytest.raises(LocalProtocolError):
            log_state.stable(first, last)
    log_state.forget(99)
    assert log_state.forgotten == 9
    log_state.apply(9, record(0, 1, 12, (part(11),)))
    assert log_state.stable(10, 12) == [(11, "0", (part(11),))]


def test_a_slower_peer_keeps_nothing_of_what_is_forgotten() -> None:
    log_state = state_after(started("0"), started("1"), record(0, 0, 4, (part(2),)))
    log_state.forget(4)
    log_state.apply(3, record(1, 0, 4, (part(2),), replica="1"))
    assert log_state.replica_bucket("1", 2) is None


def test_the_chain_is_bounded() -> None:
    log_state = state_after(started(), *(record(0, n, n) for n in range(CHAIN_RECORDS_MAX + 5)))
    assert not log_state.accepted("0", BatchId("l", 4))
    assert log_state.accepted("0", BatchId("l", 5))


def test_more_open_parts_than_the_limit_are_rejected_until_something_closes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_state, "PENDING_PARTS_MAX", 2)
    log_state = state_after(started(), record(0, 0, 1, (part(2), part(3))))
    assert log_state.apply(2, record(0, 1, 1, (part(4),))).reason == "pending"
    assert (log_state.pending("0"), log_state.pending_count("0")) == ((part(2), part(3)), 2)
    assert log_state.apply(3, record(0, 1, 2, (part(4),))).reason == "accepted"
    assert log_state.pending("0") == (part(3), part(4))


def test_what_is_closed_behind_a_hole_is_bounded_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_state, "PENDING_PARTS_MAX", 2)
    log_state = state_after(
        started("0"), started("1"), record(1, 1, 3, replica="1", prev=None, base=3)
    )
    for offset, batch in enumerate((2, 3), 3):
        assert log_state.apply(
            offset,
            record(1, batch, batch + 2, (part(batch + 2), part(batch + 2, "b")), replica="1"),
        ).accepted
    assert log_state.apply(5, record(1, 4, 6, replica="1")).reason == "pending"
    assert log_state.apply(6, record(1, 4, 9, replica="1", prev=None)).reason == "pending"
    assert log_state.apply(7, record(0, 0, 3)).accepted
    assert log_state.upto == 5
    assert log_state.apply(8, record(1, 4, 6, replica="1")).accepted


def test_timelines_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer_state, "TIMELINES_MAX", 2)
    log_state = state_after(
        started(),
        *(
            record(0, n, n, timeline=f"l{n}", prev=BatchId(f"l{n - 1}", n - 1) if n else None)
            for n in range(4)
        ),
    )
    assert [i.timeline for i in log_state.snapshot(0).replicas[0].timelines] == ["l2", "l3"]


def test_a_snapshot_that_names_a_stranger_is_rejected() -> None:
    log_snapshot = dataclasses.replace(
        state_after(started()).snapshot(1), ranges=(StableRange(1, 1, "stranger", (part(1),)),)
    )
    with pytest.raises(RemoteProtocolError, match="stranger"):
        LogState.from_snapshot(log_snapshot)


def test_bl8_what_a_slower_writer_closed_and_what_was_recomputed_comes_back() -> None:
    log_state = two_writers()
    log_state.apply(4, Recomputed("1", 1, (part(2, "c"),)))
    log_state.apply(5, Recomputed("0", 0, (part(3, "d"),)))
    again = LogState.from_snapshot(log_state.snapshot(6))
    assert (
        again.stable(1, 3)
        == log_state.stable(1, 3)
        == [(1, "0", (part(1),)), (2, "1", (part(2, "c"),)), (3, "0", (part(3, "d"),))]
    )
    assert [again.replica_bucket(w, b) for w in "01" for b in (1, 2, 3)] == [
        (part(1),),
        (part(2),),
        (part(3),),
        (part(1, "b"),),
        (),
        (),
    ]
    assert [again.recomputed_after(b) for b in (0, 2, 3)] == [True, True, False]
    assert again.stable_parts == 3
    assert again.snapshot(6) == log_state.snapshot(6)


def test_bl8_a_snapshot_may_forget_more_than_the_log_state_has() -> None:
    log_state = two_writers()
    assert log_state.snapshot(4, 2) == LogState.from_snapshot(log_state.snapshot(4, 2)).snapshot(4)
    again = LogState.from_snapshot(log_state.snapshot(4, 2))
    assert (again.forgotten, again.upto, log_state.forgotten) == (2, 3, 0)
    assert again.stable(3, 3) == log_state.stable(3, 3)
    assert log_state.snapshot(4, 99).forgotten == 3


def test_bl8_where_it_all_comes_from_comes_back() -> None:
    log_state = state_after(
        started(),
        record(0, 0, 3, missing=("x",)),
        record(0, 1, 4, missing=("x",)),
        dataclasses.replace(started(), fingerprint="new"),
    )
    origin = Provenance(
        tip_by="plan of 0", made_by="plan of 0", gap=3, late_upto=3, has_results=True
    )
    assert (log_state.origin("0"), log_state.origin("1")) == (origin, Provenance())
    again = LogState.from_snapshot(log_state.snapshot(4))
    assert (again.origin("0"), again.fingerprint("0")) == (origin, "new")
    again.apply(4, record(3, 0, 5, prev=None, timeline="m"))
    assert again.origin("0") == Provenance(
        tip_by="new", made_by="new", made_after=4, late_upto=3, has_results=True
    )


def test_a_log_state_becomes_what_a_snapshot_says_in_place_and_knows_its_own_writers() -> None:
    log_state = LogState(("1", "2"))
    log_state.adopt(two_writers().snapshot(4))
    assert log_state.writers == ("1", "2")
    assert (log_state.upto, log_state.stable(1, 3)) == (
        3,
        two_writers().stable(1, 3),
    ), "of one that is a writer no more the buckets stay"
    assert (log_state.closed("1"), log_state.closed("2"), log_state.epoch("2")) == (3, 0, None)
    assert log_state.apply(4, started("0")).reason == "unknown_writer"
    assert log_state.apply(5, started("2")).accepted


def test_a_snapshot_of_others_is_rejected_and_changes_nothing() -> None:
    log_state = LogState(("7",))
    with pytest.raises(RemoteProtocolError, match="none of which is a writer"):
        log_state.adopt(two_writers().snapshot(4))
    assert log_state.snapshot(0) == LogState(("7",)).snapshot(0)


# -- blocks that were recomputed
# --------------------------------------------------------------------------------------------------


def two_writers() -> LogState:
    """Writer 0 closed the buckets up to 3 first."""
    return state_after(
        started(),
        started("1"),
        record(0, 0, 3, (part(1), part(2), part(3))),
        record(1, 0, 3, (part(1, "b"),), replica="1"),
    )


def test_bl14_recomputed_parts_are_read_in_place_of_those_that_hold_the_same() -> None:
    log_state = two_writers()
    halves = (
        dataclasses.replace(part(2, "c", rows=0), digest=2**64 - 1),
        dataclasses.replace(part(2, "c"), digest=8),
    )
    outcome = log_state.apply(4, Recomputed("1", 1, (part(1, "c"), *halves)))
    assert outcome == Outcome(accepted=True, reason="recomputed", replica="1")
    assert log_state.stable(1, 3) == [
        (1, "1", (part(1, "c"),)),
        (2, "1", halves),
        (3, "0", (part(3),)),
    ]
    assert [log_state.recomputed_after(bucket) for bucket in (0, 1, 2)] == [True, True, False]
    assert log_state.replica_bucket("0", 1) == (part(1),), "what a writer closed stays as it was"
    log_state.forget(2)
    assert not log_state.recomputed_after(0)
    assert log_state.apply(5, Recomputed("1", 1, (part(2, "d"),))).accepted, (
        "whether it counts does not depend on what was forgotten"
    )
    assert log_state.stable(3, 3) == [(3, "0", (part(3),))]


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        (Recomputed("1", 1, (part(2, "c", rows=2),)), "recomputed"),
        (Recomputed("1", 1, (dataclasses.replace(part(2, "c"), digest=8),)), "recomputed"),
        (Recomputed("1", 1, (part(4, "c"),)), "recomputed"),
        (Recomputed("1", 0, (part(2, "c"),)), "fenced"),
        (Recomputed("2", 1, (part(2, "c"),)), "unknown_writer"),
    ],
)
def test_bl14_other_rows_other_buckets_and_older_epochs_change_nothing(
    entry: Recomputed, reason: str
) -> None:
    log_state = two_writers()
    assert log_state.apply(4, entry).reason == reason
    assert log_state.stable(1, 3) == two_writers().stable(1, 3)
    assert not log_state.recomputed_after(0)


@pytest.mark.parametrize("snapshot", [False, True])
def test_bl1_records_of_an_epoch_of_the_same_number_in_a_former_life_count_for_nothing(
    snapshot: bool,
) -> None:
    """The topic was deleted and created again: its first epochs have the offsets that they had."""
    log_state = state_after(started("0", "now"))
    if snapshot:
        log_state = LogState.from_snapshot(log_state.snapshot(1))
    foreign: list[BoundaryRecord | BranchEnded | Recomputed] = [
        record(0, 0, 4),
        record(0, 1, 5, branch=(0, 1), base=4),
        BranchEnded("0", 0, 1),
        Recomputed("0", 0, ()),
    ]
    for number, entry in enumerate(foreign, 1):
        assert log_state.apply(number, dataclasses.replace(entry, token="then")).reason == "fenced"
    assert log_state.closed("0") == 0
    for number, entry in enumerate(foreign, 5):
        assert log_state.apply(number, dataclasses.replace(entry, token="now")).accepted
