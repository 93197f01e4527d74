"""What a writer goes by, of its own records in the log."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.errors import (
    ConfigurationError,
    Fenced,
    LocalProtocolError,
    TooManyParts,
    Unavailable,
)
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log import boundary_log
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.own_records import (
    SEEN_WAIT_MS,
    SENDINGS_MAX,
    UNKNOWN_WAIT_MS,
    OwnEntry,
    OwnRecords,
    Sendings,
)
from anabranch.protocol.log.records import (
    BoundaryRecord,
    BranchEnded,
    EpochStarted,
    LogEntry,
    Recomputed,
)
from harness.boundary_logs import part, record, started

STARTED = EpochStarted("0", "plan", "mine")
BLOCKS = Recomputed("0", 0, (part(1),))
END = BranchEnded("0", 0, 2)


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
        with pytest.raises(LocalProtocolError, match="not there"):
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


class TestUnderWay:
    def test_ow2_one_at_a_time_and_only_of_the_own_epoch(self) -> None:
        log = Log().begun()
        with pytest.raises(
            LocalProtocolError, match=r"record .* of epoch 1 given to the writer of"
        ):
            log.own.put(record(1, 0, 1))
        with pytest.raises(LocalProtocolError, match="recomputed blocks of epoch 1"):
            log.own.put(replace(BLOCKS, epoch=1))
        first = record(0, 0, 1)
        log.own.put(first)
        assert log.own.under_way == first
        with pytest.raises(LocalProtocolError, match="waits for record"):
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
        astray = record(0, 3, 1, prev=BatchId("elsewhere", 2))
        log.add(astray)
        log.own.put(record(0, 3, 1))
        assert not log.is_settled(), "it was rejected before this one was sent"
        log.add(record(0, 7, 1, prev=BatchId("elsewhere", 6)))
        assert not log.is_settled(), "that was another one"
        log.add(replace(astray, replica="1", epoch=log.length))
        assert not log.is_settled(), "that was a peer's"
        log.add(astray)
        with pytest.raises(Fenced, match=r"s: own record .* was rejected: off_chain"):
            log.is_settled()

    def test_ow3_too_much_that_is_open_is_not_reported_as_a_newer_process(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(boundary_log, "PENDING_PARTS_MAX", 2)
        log = Log().begun()
        log.add(record(0, 0, 1))
        large = record(0, 1, 1, tuple(part(bucket) for bucket in (2, 3, 4)))
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
    sendings = Sendings("s", entry)
    for now_ms in (1_000, 90_000):
        sendings.sent(now_ms, is_acknowledged=is_acknowledged)
        assert not sendings.is_due_again(now_ms + wait_ms)
        assert sendings.is_due_again(now_ms + wait_ms + 1)


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
    sendings = Sendings("s", entry)
    for _ in range(SENDINGS_MAX):
        sendings.sent(0, is_acknowledged=False)
        assert sendings.is_due_again(SEEN_WAIT_MS + 1)
    sendings.sent(0, is_acknowledged=False)
    with pytest.raises(Unavailable, match=f"s: {named}.* is not in the log after 11 tries"):
        sendings.is_due_again(SEEN_WAIT_MS + 1)
