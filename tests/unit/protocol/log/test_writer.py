"""Tests of a writer's conclusions from its own records in the log; of chains of the records of one
query; of a record with too many parts, as several.
"""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from anabranch.codec import boundary_records
from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    TooManyParts,
    Unavailable,
)
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import (
    CHAIN_RECORDS_MAX,
    CHECKPOINT_BATCHES_RETAINED,
    PARTS_PER_RECORD_MAX,
)
from anabranch.protocol.log import writer, writer_state
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Part,
    Recomputed,
)
from anabranch.protocol.log.timeline import Timeline, timeline_name
from anabranch.protocol.log.writer import (
    BRANCH_PENDING_PARTS_MAX,
    PIECES_MAX,
    SEEN_WAIT_MS,
    SEND_ATTEMPTS_MAX,
    UNKNOWN_WAIT_MS,
    OwnEntry,
    OwnRecords,
    Record,
    RecordChain,
    SendRetries,
    base_record,
    pieces,
)
from harness.boundary_logs import part, record, started, state_after

STARTED = EpochStarted("0", "plan", "mine")
BLOCKS = Recomputed("0", 0, (part(1),), STARTED.token)
END = BranchEnded("0", 0, 2, STARTED.token)


class Log:
    """One log, and what a writer of it knows."""

    def __init__(self, *, version: int = 1) -> None:
        self.state, self.length = LogState("01"), 0
        self.own = OwnRecords("s", replace(STARTED, version=version))

    def add(self, entry: LogEntry) -> None:
        outcome = self.state.apply(self.length, entry)
        self.own.seen(self.length, entry, outcome)
        self.length += 1

    def begun(self) -> Log:
        self.own.begins()
        self.add(STARTED)
        self.own.begun(self.state)
        return self

    def has_token(self) -> bool:
        return self.own.has_token

    def is_settled(self) -> bool:
        return self.own.is_settled(self.state)


class TestEpochs:
    def test_ow1_it_is_the_offset_of_the_own_token(self) -> None:
        log = Log()
        log.add(started("0", "another's"))
        log.own.begins()
        assert not log.has_token()
        with pytest.raises(LocalProtocolError, match="log does not show"):
            log.own.begun(log.state)
        log.add(started("1", "a peer's"))
        assert not log.has_token()
        log.add(STARTED)
        assert log.has_token()
        assert (log.own.begun(log.state), log.own.epoch) == (2, 2)
        log.own.begins()
        assert not log.has_token(), "the next one has a record of its own"

    def test_ow1_a_newer_one_ends_it_and_a_peers_does_not(self) -> None:
        log = Log().begun()
        log.add(started("1", "a peer's"))
        log.own.check_epoch(log.state)
        log.add(started("0", "newer"))
        with pytest.raises(Fenced, match="epoch 0 of replica 0 was ended by epoch 2"):
            log.own.check_epoch(log.state)
        log = Log()
        log.own.begins()
        log.add(STARTED)
        log.add(started("0", "newer"))
        with pytest.raises(Fenced):
            log.own.begun(log.state)

    def test_bl21_one_for_an_earlier_attempt_begins_again(self) -> None:
        """It is not fenced: that would end its node, with all stages on it."""
        log = Log().begun()
        log.add(replace(started("1", "t"), attempt=7))
        with pytest.raises(Unavailable, match="attempt 7, and this process has begun for attempt"):
            log.own.check_epoch(log.state)
        log.own.put(record(0, 0, 4))
        with pytest.raises(Unavailable, match="begins again"):
            log.own.is_settled(log.state)
        log.own.begins()
        log.add(STARTED)
        with pytest.raises(Unavailable, match="begins again"):
            log.own.begun(log.state)

    def test_one_that_is_superseded_says_what_to_write(self) -> None:
        log = Log()
        log.add(started("1", "t", version=2))
        log.add(record(0, 0, 4, replica="1"))
        log.own.begins()
        log.add(STARTED)
        with pytest.raises(
            ConfigurationError, match=r"version 2 makes this stream after bucket 0, .*version: 3`"
        ):
            log.own.begun(log.state)

    @pytest.mark.parametrize(
        ("before", "now"),
        [
            ("0 of row digest: a by key", "00 of row digest: a by key"),
            ("", "0 of row digest: a by key"),
            ("0 of a by key", "0 of row digest: a by key"),
        ],
    )
    def test_one_of_another_share_says_what_to_write(self, before: str, now: str) -> None:
        log, mine = Log(), replace(STARTED, bucket_ms=250, share=now)
        log.own = OwnRecords("p.s.boundaries", mine)
        log.add(replace(started("1", "t"), bucket_ms=250, share=before))
        log.own.begins()
        log.add(mine)
        words = f"is made from {before or 'all rows'}, and .* from {now}: .*new name"
        with pytest.raises(ConfigurationError, match=words):
            log.own.begun(log.state)


def mine(entry: BoundaryRecord) -> BoundaryRecord:
    return replace(entry, token=STARTED.token)


class TestUnderWay:
    @pytest.mark.parametrize("entry", [record(0, 0, 1), BLOCKS, END])
    def test_ow5_every_record_has_the_token_of_its_epoch(self, entry: Record) -> None:
        own = Log().begun().own
        assert own.put(replace(entry, token="")) == replace(entry, token=STARTED.token)

    def test_ow2_one_at_a_time_and_only_of_the_own_epoch(self) -> None:
        log = Log().begun()
        with pytest.raises(LocalProtocolError, match=r"record .* of epoch 1 sent by the writer of"):
            log.own.put(record(1, 0, 1))
        with pytest.raises(LocalProtocolError, match="recomputed blocks of epoch 1"):
            log.own.put(replace(BLOCKS, epoch=1))
        first = log.own.put(record(0, 0, 1))
        assert log.own.under_way == first
        with pytest.raises(LocalProtocolError, match=r"sent while record .* is not settled"):
            log.own.put(record(0, 1, 2))
        log.own.forget()
        log.own.put(record(0, 1, 2))

    def test_ow2_a_record_counts_once_it_is_accepted_by_whichever_sending(self) -> None:
        log = Log().begun()
        log.own.put(record(0, 0, 1))
        assert not log.is_settled()
        for _ in range(2):
            log.add(record(0, 0, 1))
            assert log.is_settled()
        log.own.forget()
        log.own.put(record(0, 1, 2))
        assert not log.is_settled()

    def test_blocks_that_are_named_again_count_once_they_are_seen(self) -> None:
        log = Log().begun()
        log.own.put(BLOCKS)
        log.add(replace(BLOCKS, parts=()))
        assert not log.is_settled(), "those are others"
        log.add(BLOCKS)
        assert log.is_settled()
        log.own.forget()
        log.own.put(BLOCKS)
        assert not log.is_settled(), "what was seen is not what is under way"

    def test_the_end_of_a_branch_counts_once_the_log_has_it_or_a_later_one(self) -> None:
        for seen, counts in ((1, False), (2, True), (3, True)):
            log = Log().begun()
            log.own.put(END)
            assert not log.is_settled()
            log.add(replace(END, counter=seen))
            assert log.is_settled() is counts

    def test_a_newer_epoch_ends_the_wait(self) -> None:
        log = Log().begun()
        log.own.put(record(0, 0, 1))
        log.add(started("0", "newer"))
        with pytest.raises(Fenced):
            log.is_settled()

    def test_ow3_what_is_rejected_is_not_waited_for(self) -> None:
        log = Log().begun()
        astray = mine(record(0, 3, 1, prev=BatchId("elsewhere", 2)))
        log.add(astray)
        log.own.put(record(0, 3, 1))
        assert not log.is_settled(), "it was rejected before this one was sent"
        log.add(record(0, 7, 1, prev=BatchId("elsewhere", 6)))
        assert not log.is_settled(), "that was another one"
        log.add(replace(astray, replica="1", epoch=log.length))
        assert not log.is_settled(), "that was a peer's"
        log.add(replace(astray, token="of another life"))
        assert not log.is_settled(), "that was of the same number, in a former life of the topic"
        log.add(astray)
        with pytest.raises(Fenced, match=r"s: own record .* was rejected: off_chain"):
            log.is_settled()

    def test_ow3_too_much_that_is_open_is_not_reported_as_a_newer_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(writer_state, "PENDING_PARTS_MAX", 2)
        log = Log().begun()
        log.add(record(0, 0, 1))
        large = mine(record(0, 1, 1, tuple(part(bucket) for bucket in (2, 3, 4))))
        log.own.put(large)
        log.add(large)
        with pytest.raises(TooManyParts, match=r"s: more than .* parts would be open"):
            log.is_settled()


RECORD = BoundaryRecord("0", 0, BatchId("l", 0), None, 1)


@pytest.mark.parametrize(
    ("entry", "is_acknowledged", "wait_ms"),
    [
        (STARTED, True, SEEN_WAIT_MS),
        (STARTED, False, SEEN_WAIT_MS),
        (RECORD, True, SEEN_WAIT_MS),
        (RECORD, False, UNKNOWN_WAIT_MS),
        (BLOCKS, False, UNKNOWN_WAIT_MS),
        (END, False, UNKNOWN_WAIT_MS),
    ],
)
def test_ow4_what_may_be_lost_is_sent_again_soon_but_for_an_epoch(
    entry: OwnEntry, is_acknowledged: bool, wait_ms: int
) -> None:
    retries = SendRetries("s", entry)
    for now_ms in (1_000, 90_000):
        retries.sent(now_ms, is_acknowledged=is_acknowledged)
        assert not retries.is_due_again(now_ms + wait_ms)
        assert retries.is_due_again(now_ms + wait_ms + 1)


@pytest.mark.parametrize(
    ("entry", "named"),
    [
        (STARTED, "the epoch record"),
        (RECORD, "record "),
        (BLOCKS, "recomputed"),
        (END, r"the end of branch \(0, 2\)"),
    ],
)
def test_ow4_there_is_an_end_to_it(entry: OwnEntry, named: str) -> None:
    retries = SendRetries("s", entry)
    for _ in range(SEND_ATTEMPTS_MAX):
        retries.sent(0, is_acknowledged=False)
        assert retries.is_due_again(SEEN_WAIT_MS + 1)
    retries.sent(0, is_acknowledged=False)
    with pytest.raises(Unavailable, match=f"s: {named}.* is not in the log after 11 attempts"):
        retries.is_due_again(SEEN_WAIT_MS + 1)


ZERO, ONE = (timeline_name(7, number) for number in range(2))
TENTATIVE = BoundaryKind.TENTATIVE


def chain(timeline: Timeline | None = None) -> RecordChain:
    return RecordChain(
        "0",
        7,
        timeline if timeline is not None else Timeline(ZERO, 3, BatchId("old", 3)),
    )


def branch_chain(
    *, is_stateful: bool, horizon_buckets: int | None, forks: bool = True
) -> RecordChain:
    """Return the chain of a branch that forked when bucket 5 was closed, or of a query that has not
    forked yet.
    """
    of = RecordChain(
        "0",
        7,
        Timeline(ZERO, 3, BatchId("old", 3)),
        is_stateful=is_stateful,
        horizon_buckets=horizon_buckets,
    )
    if forks:
        of.became_branch(1, 5, ())
    return of


def make(
    of: RecordChain,
    batch: int,
    *parts: Part,
    kind: BoundaryKind = BoundaryKind.STABLE,
    is_stable_query: bool = True,
    closed: int = 5,
    missing: tuple[str, ...] = (),
    shed: int = 0,
) -> BoundaryRecord:
    return of.record(
        kind,
        batch,
        closed,
        parts,
        is_stable_query=is_stable_query,
        missing=missing,
        made_from=(("a", 6),),
        written_ms=99,
        shed=shed,
    )


def append(of: RecordChain, batch: int, *parts: Part, **of_the_record: Any) -> BoundaryRecord:
    made = make(of, batch, *parts, **of_the_record)
    of.appended(made)
    return made


def test_rx5_a_copy_begins_with_what_is_not_the_replicas_own() -> None:
    found = base_record("0", 7, Timeline.from_peer(ONE, 4, 9), 99)
    assert found == BoundaryRecord("0", 7, BatchId(ONE, 4), None, closed=9, base=9, written_ms=99)
    with pytest.raises(LocalProtocolError, match="has no base record"):
        base_record("0", 7, Timeline(ZERO, 3, BatchId("old", 3)), 99)


class TestRecordChain:
    def test_each_record_continues_the_one_before(self) -> None:
        """Rules 3, 9: the first one that of the last batch committed in the directory."""
        of = chain()
        first, second = append(of, 4, part(6)), append(of, 5)
        assert (first.prev, first.id, second.prev, of.tip) == (
            BatchId("old", 3),
            BatchId(ZERO, 4),
            first.id,
            second.id,
        )
        assert (first.replica, first.epoch, first.closed, first.parts) == ("0", 7, 5, (part(6),))
        assert (first.base, first.kind, first.branch, first.made_from, first.written_ms) == (
            None,
            BoundaryKind.STABLE,
            None,
            (("a", 6),),
            99,
        )
        assert append(chain(Timeline.fresh(7)), 0).prev is None

    def test_the_first_record_of_a_branch_says_where_it_begins_and_what_it_inherits(self) -> None:
        of = chain()
        fork = append(of, 4, part(6), part(7))
        of.became_branch(1, 5, (part(6), part(7)))
        first = append(of, 5, part(8), kind=TENTATIVE, closed=7, missing=("a",))
        second = append(of, 6, part(9), kind=TENTATIVE, closed=8)
        assert (first.prev, first.base, first.parts) == (fork.id, 5, (part(6), part(7), part(8)))
        assert (second.prev, second.base, second.parts) == (first.id, None, (part(9),))
        assert (first.kind, first.branch, second.branch) == (TENTATIVE, (7, 1), (7, 1))
        assert (first.missing, second.missing) == (
            ("a",),
            ("a",),
        ), "bucket 8 has rows of the batch that lacked it"

    def test_it_inherits_no_more_than_its_first_record_can_name(self) -> None:
        parts = (part(6),) * BRANCH_PENDING_PARTS_MAX
        assert RecordChain.can_inherit(parts)
        assert not RecordChain.can_inherit((*parts, part(6)))

    def test_a_first_record_that_was_not_appended_still_begins_the_branch(self) -> None:
        of = chain()
        of.became_branch(1, 5, (part(6),))
        again = [make(of, 4, kind=TENTATIVE) for _ in range(2)]
        assert [(entry.base, entry.parts) for entry in again] == [(5, (part(6),))] * 2

    def test_what_a_branch_missed_once_it_misses_in_all_that_follows(self) -> None:
        """State lacks it, and rows made of it may belong to later buckets."""
        of = chain()
        of.became_branch(1, 5, ())
        found = [
            append(of, 5 + i, kind=TENTATIVE, missing=m).missing
            for i, m in enumerate([(), ("b",), (), ("a", "b"), ()])
        ]
        assert found == [(), ("b",), ("b",), ("a", "b"), ("a", "b")]

    @pytest.mark.parametrize(
        ("is_stateful", "horizon_buckets", "claims"),
        [
            (True, None, [0, 700, 700, 900, 900, 900]),
            (False, None, [0, 700, 300, 900, 0, 0]),
            (True, 0, [0, 700, 300, 900, 0, 0]),
            (True, 1, [0, 700, 700, 900, 900, 0]),
            (False, 2, [0, 700, 700, 900, 900, 900]),
        ],
    )
    def test_rx6_what_a_branch_left_out_its_state_lacks(
        self, *, is_stateful: bool, horizon_buckets: int | None, claims: list[int]
    ) -> None:
        of = branch_chain(is_stateful=is_stateful, horizon_buckets=horizon_buckets)
        found = [
            append(of, 5 + i, kind=TENTATIVE, closed=6 + i, shed=shed).shed
            for i, shed in enumerate([0, 700, 300, 900, 0, 0])
        ]
        assert found == claims

    @pytest.mark.parametrize(
        ("horizon_buckets", "claims"), [(None, [700, 700, 700]), (1, [700, 700, 0])]
    )
    def test_rx6_a_row_of_a_later_bucket_lacks_what_its_own_bucket_lacked(
        self, horizon_buckets: int | None, claims: list[int]
    ) -> None:
        of = branch_chain(is_stateful=False, horizon_buckets=horizon_buckets)
        found = [
            append(of, 5 + i, part(7 + i), kind=TENTATIVE, closed=6 + i, shed=shed).shed
            for i, shed in enumerate([700, 0, 0])
        ]
        assert found == claims

    @pytest.mark.parametrize("is_inherited", [True, False])
    def test_rx6_a_later_bucket_before_the_fork_tells_of_the_rows_that_were_left_out(
        self, *, is_inherited: bool
    ) -> None:
        """The branch gave none of them: all were left out."""
        of = branch_chain(is_stateful=False, horizon_buckets=None, forks=False)
        if not is_inherited:
            append(of, 4, part(5), closed=4)
        of.became_branch(1, 5, (part(6),) if is_inherited else ())
        found = [
            append(of, 5 + i, kind=TENTATIVE, closed=6 + i, shed=shed).shed
            for i, shed in enumerate([700, 0])
        ]
        assert found == [700, 700]

    def test_rx6_a_long_overload_takes_no_more_room_and_claims_the_most_within_the_horizon(
        self,
    ) -> None:
        horizon, rng = 50, random.Random(36)
        of = branch_chain(is_stateful=True, horizon_buckets=horizon)
        shares = [500] * 200 + [rng.choice((0, 300, 300, 600, 900)) for _ in range(200)]
        for i, shed in enumerate(shares):
            made = append(of, 5 + i, kind=TENTATIVE, closed=6 + i, shed=shed)
            assert made.shed == max(shares[max(0, i - horizon) : i + 1])
            assert len(of._shed._lacked) <= len({*shares[: i + 1]})

    def test_re1_only_the_stable_timeline_gives_stable_records(self) -> None:
        """Rule 12."""
        of = chain()
        with pytest.raises(Fenced, match="not the stable one"):
            append(of, 4, is_stable_query=False)
        of.became_branch(1, 5, ())
        with pytest.raises(Fenced, match="not the stable one"):
            append(of, 4, is_stable_query=True)

    def test_re1_only_a_branch_gives_tentative_ones(self) -> None:
        with pytest.raises(LocalProtocolError, match="never forked"):
            append(chain(), 4, kind=TENTATIVE)


def test_rx4_an_empty_first_batch_gives_nothing_up() -> None:
    assert make(chain(), 0, closed=0).missing == ()


def test_rx4_what_is_given_up_is_closed_empty_and_says_so() -> None:
    of = RecordChain("0", 7, Timeline(ZERO, 3, BatchId("old", 3)), given_up=6)
    first = make(of, 4, part(5), part(6), part(8), closed=6)
    assert ([p.bucket for p in first.parts], first.missing) == (
        [8],
        tuple(name for name, _ in first.made_from),
    )
    second = make(of, 5, part(7), closed=7)
    assert ([p.bucket for p in second.parts], second.missing) == ([7], ())


def test_rx4_a_branch_shows_nothing_of_what_is_given_up() -> None:
    of = RecordChain("0", 7, Timeline(ZERO, 3, BatchId("old", 3)), given_up=6)
    of.became_branch(1, 4, (part(7),))
    first = make(of, 4, part(6), part(8), closed=6, kind=BoundaryKind.TENTATIVE, missing=("a",))
    assert [p.bucket for p in first.parts] == [7, 8]
    of.appended(first)
    second = make(of, 5, part(6), part(8), closed=8, kind=BoundaryKind.TENTATIVE)
    assert ([p.bucket for p in second.parts], second.missing) == ([8], ("a",))


@pytest.fixture
def few_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writer, "PARTS_PER_RECORD_MAX", 2)


def stable(log_state: LogState) -> list[tuple[int, list[str]]]:
    return [
        (bucket, sorted(p.attempt for p in parts))
        for bucket, _, parts in log_state.stable(log_state.forgotten + 1, log_state.upto)
    ]


WHOLE = record(
    0,
    1,
    9,
    tuple(part(bucket, f"{n}") for n, bucket in enumerate((9, 3, 4, 4, 4, 7, 12, 12, 11))),
    prev=BatchId("l", 0),
)


@pytest.mark.usefixtures("few_parts")
def test_rp1_a_record_that_is_small_enough_stays_as_it_is() -> None:
    small = replace(WHOLE, parts=WHOLE.parts[:2])
    assert list(pieces(small)) == [small]


@pytest.mark.usefixtures("few_parts")
def test_rp1_rp2_rp4_the_pieces_together_say_what_the_record_says() -> None:
    cut = list(pieces(WHOLE))
    assert [[p.bucket for p in piece.parts] for piece in cut] == [
        [3, 4],
        [4, 4],
        [7, 9],
        [11, 12],
        [12],
    ]
    assert [piece.closed for piece in cut] == [3, 6, 9, 9, 9]
    idents = [piece.id for piece in cut]
    assert idents == [*(BatchId("l.pieces", PIECES_MAX + n) for n in (1, 2, 3, 4)), WHOLE.id]
    assert [piece.prev for piece in cut] == [WHOLE.prev, *idents[:-1]]
    whole, log_state = (
        state_after(started(), record(0, 0, 2), WHOLE),
        state_after(started(), record(0, 0, 2), *cut),
    )
    assert stable(log_state) == stable(whole)
    assert (log_state.upto, log_state.tip("0"), log_state.pending_count("0")) == (
        whole.upto,
        whole.tip("0"),
        3,
    )
    following = record(0, 2, 12)
    assert log_state.apply(99, following).accepted
    assert stable(log_state)[-1] == (12, ["6", "7"])


@pytest.mark.usefixtures("few_parts")
@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_rp3_a_batch_that_is_run_again_cuts_off_the_pieces_of_the_first_run(count: int) -> None:
    log_state = state_after(started(), record(0, 0, 2), *list(pieces(WHOLE))[:count], started())
    again = replace(WHOLE, epoch=count + 2, id=BatchId("m", 1))
    for number, piece in enumerate(pieces(again)):
        assert log_state.apply(count + 3 + number, piece).accepted
    assert stable(log_state) == stable(state_after(started(), record(0, 0, 2), WHOLE))
    assert (log_state.tip("0"), log_state.pending_count("0")) == (BatchId("m", 1), 3)


@pytest.mark.usefixtures("few_parts")
def test_a_piece_that_comes_twice_is_known() -> None:
    cut = list(pieces(WHOLE))
    log_state = state_after(started(), record(0, 0, 2), cut[0], cut[1])
    assert [log_state.apply(9, piece).reason for piece in (cut[0], cut[1])] == ["known", "known"]


@pytest.mark.usefixtures("few_parts")
def test_rp4_a_late_copy_of_the_record_before_is_known_however_many_pieces_came_since(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(writer_state, "TIMELINES_MAX", 2)
    before = record(0, 0, 2)
    log_state = state_after(started(), before, *pieces(WHOLE))
    assert (log_state.apply(9, before).reason, log_state.apply(10, WHOLE).reason) == (
        "known",
        "known",
    )
    following = replace(
        WHOLE,
        id=BatchId("l", 2),
        prev=WHOLE.id,
        closed=20,
        parts=tuple(part(bucket) for bucket in (13, 14, 15, 16, 17)),
    )
    assert [
        log_state.apply(11 + number, piece).reason for number, piece in enumerate(pieces(following))
    ] == ["accepted"] * 3


@pytest.mark.usefixtures("few_parts")
def test_rp5_a_batch_has_so_few_pieces_that_the_record_before_it_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert PIECES_MAX < CHAIN_RECORDS_MAX - CHECKPOINT_BATCHES_RETAINED
    monkeypatch.setattr(writer, "PIECES_MAX", 4)
    with pytest.raises(TooManyParts, match="in 9 parts, more than 4 records of "):
        next(pieces(WHOLE))
    assert len(list(pieces(replace(WHOLE, parts=WHOLE.parts[1:])))) == 4


@pytest.mark.usefixtures("few_parts")
def test_the_first_piece_begins_the_branch() -> None:
    begins = replace(
        record(
            0,
            5,
            4,
            tuple(part(bucket) for bucket in (3, 4, 4, 8)),
            timeline="b",
            branch=(0, 1),
            base=2,
            prev=BatchId("l", 0),
        ),
        missing=("x",),
    )
    cut = list(pieces(begins))
    assert [(piece.base, piece.branch, piece.missing) for piece in cut] == [
        (2, (0, 1), ("x",)),
        (None, (0, 1), ("x",)),
    ]
    log_state = state_after(started(), record(0, 0, 2), *cut)
    found = log_state.tentative("0", 4)
    assert found is not None
    assert (
        log_state.tentative_upto("0"),
        len(found.parts),
        log_state.accepted("0", begins.id),
    ) == (4, 2, True)


def test_a_backlog_of_sliding_windows_can_be_written() -> None:
    """Three days of readings, one a minute, in windows of five minutes that slide by ten
    seconds: 24 575 buckets.
    """
    every = tuple(part(20 * n) for n in range(1, 24_576))
    whole = BoundaryRecord(
        "0", 0, BatchId("000000000000-000000", 2), None, closed=20 * 24_575, parts=every
    )
    cut = list(pieces(whole))
    assert [len(piece.parts) for piece in cut] == [
        PARTS_PER_RECORD_MAX,
        24_575 - PARTS_PER_RECORD_MAX,
    ]
    log_state = LogState(["0"])
    log_state.apply(0, started())
    for offset, piece in enumerate(cut):
        assert log_state.apply(
            offset + 1, boundary_records.decode(boundary_records.encode(piece)[0])
        ).accepted
    assert (log_state.upto, log_state.stable_parts) == (whole.closed, 24_575)
