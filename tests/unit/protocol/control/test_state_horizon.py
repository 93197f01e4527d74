"""Where a stage without a saved state begins, what it compares, and which results it gives up."""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.records import Alarm
from anabranch.protocol.control.state_horizon import (
    GapBook,
    PartnerWrong,
    StateHorizon,
    buckets_of,
)
from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    InputPosition,
    LogEntry,
    Part,
    Recomputed,
)

WIDTH_MS = 100


def part(bucket: int, digest: int, rows: int = 1) -> Part:
    return Part(bucket, 0, "x", 1, bucket, bucket + 1, rows, digest)


class Log:
    """The boundary log of the stage, and who listens."""

    def __init__(self, horizon: StateHorizon | None = None, book: GapBook | None = None) -> None:
        self.log_state = LogState(["0"])
        self.horizon = horizon
        self.book = book
        self.alarms = list[Alarm]()
        self._offset = self._batch = 0

    def add(self, entry: LogEntry) -> None:
        outcome = self.log_state.apply(self._offset, entry)
        self._offset += 1
        if self.book is not None and (alarm := self.book.seen(entry, outcome, 77)) is not None:
            self.alarms.append(alarm)

    def begin(self, fingerprint: str = "f", node: str = "") -> None:
        self.add(EpochStarted("0", fingerprint, "", node=node))

    def record(
        self,
        closed: int,
        *parts: Part,
        fresh: bool = False,
        missing: str = "",
        epoch: int | None = None,
    ) -> BoundaryRecord:
        """The next record of the chain; not added."""
        self._batch += 1
        now = self.log_state.epoch("0") if epoch is None else epoch
        prev = None if fresh else self.log_state.tip("0")
        return BoundaryRecord(
            "0", now or 0, BatchId("l", self._batch), prev, closed, parts, missing=tuple(missing)
        )


def backed_up(state_horizon_ms: int = 200, *, again: str = "f") -> Log:
    """Ten buckets were closed, each with a row; then the process lost its disk."""
    log = Log(StateHorizon("s", state_horizon_ms, WIDTH_MS))
    log.begin()
    for bucket in range(1, 11):
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin(again)
    return log


def begun(log: Log) -> tuple[int, int]:
    assert log.horizon is not None
    log.horizon.after(log.log_state.closed("0"))
    return log.horizon.begin(log.log_state, "0", is_fresh=True)


@pytest.mark.parametrize(
    ("state_horizon_ms", "buckets"), [(0, 0), (1, 1), (100, 1), (101, 2), (1_000, 10)]
)
def test_the_horizon_in_buckets_is_rounded_up(state_horizon_ms: int, buckets: int) -> None:
    assert buckets_of(state_horizon_ms, WIDTH_MS) == buckets


@pytest.mark.parametrize(
    ("state_horizon_ms", "after"), [(0, 10), (100, 8), (200, 6), (500, 0), (5_000, 0)]
)
def test_sh2_upstream_backup_begins_two_reaches_before_its_output(
    state_horizon_ms: int, after: int
) -> None:
    assert begun(backed_up(state_horizon_ms)) == (after, 0)


def test_sh6_where_nothing_was_closed_the_beginning_is_the_beginning() -> None:
    for complete in (None, lambda: 50):
        log = Log(StateHorizon("s", 200, WIDTH_MS, complete))
        log.begin()
        assert begun(log) == (0, 0)
        log.horizon.check(log.record(50, part(3, 5)))  # type: ignore[union-attr]


def made_again(log: Log, **changed: int) -> None:
    """What a process makes of buckets 7 and 8 (partial), 9 and 10 (whole), and 11, in batches
    that end anywhere.
    """
    digests = {7: 1, 8: 2, 9: 1_009, 10: 1_010, 11: 1_011} | {
        int(name[1:]): digest for name, digest in changed.items()
    }
    assert log.horizon is not None
    log.horizon.check(log.record(6))
    log.horizon.check(replace(log.record(9, part(11, 3)), kind=BoundaryKind.TENTATIVE))
    log.horizon.check(log.record(8, part(7, digests[7]), part(8, digests[8]), part(9, 9)))
    log.horizon.check(log.record(9, part(9, digests[9] - 9, rows=0), part(10, digests[10])))
    log.horizon.check(log.record(11, part(11, digests[11])))
    log.horizon.check(log.record(12, part(12, 1)))


def test_sh3_what_is_made_again_is_compared() -> None:
    log = backed_up()
    begun(log)
    made_again(log)


@pytest.mark.parametrize("bucket", [9, 10])
def test_sh3_a_difference_ends_the_process_before_anything_new_is_closed(bucket: int) -> None:
    log = backed_up()
    begun(log)
    with pytest.raises(
        StageFunctionError,
        match=f"bucket {bucket}, made again from 400 ms of input, .* a longer state_horizon",
    ):
        made_again(log, **{f"b{bucket}": 4_711})


def test_sh3_a_bucket_too_many_or_too_few_is_a_difference() -> None:
    log = backed_up()
    begun(log)
    assert log.horizon is not None
    with pytest.raises(StageFunctionError, match="bucket 9"):
        log.horizon.check(log.record(11, part(10, 1_010)))


def sold(*nodes: str) -> Log:
    """Bucket 7 and those before were made on ``home``, 8, 9 and 10 on these; then the stage came
    home.
    """
    log = Log(StateHorizon("s", 200, WIDTH_MS, None, {"partner"}.__contains__))
    log.begin(node="home")
    log.add(log.record(7))
    for bucket, node in zip(range(8, 11), nodes, strict=True):
        if node != log.log_state.node("0"):
            log.begin(node=node)
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin(node="home")
    return log


def test_sh3_what_a_partner_made_otherwise_stands_and_is_told() -> None:
    log = sold("partner", "partner", "partner")
    begun(log)
    made_again(log, b10=4_711)
    assert log.horizon is not None
    assert log.horizon.partner_wrong() == [PartnerWrong("s", 10, "partner")]
    assert log.horizon.partner_wrong() == []


def test_sh3_a_stage_that_came_home_and_ends_is_not_stopped_by_what_its_partner_made() -> None:
    log = sold("partner", "partner", "home")
    begun(log)
    made_again(log, b9=4_711)
    assert log.horizon is not None
    assert log.horizon.partner_wrong() == [PartnerWrong("s", 9, "partner")]


@pytest.mark.parametrize(
    "nodes", [("home", "home", "home"), ("partner", "partner", "home"), ("home", "away", "away")]
)
def test_sh3_a_difference_of_own_nodes_ends_the_process_wherever_it_has_been(
    nodes: tuple[str, ...],
) -> None:
    log = sold(*nodes)
    begun(log)
    with pytest.raises(StageFunctionError, match="bucket 10"):
        made_again(log, b10=4_711)


def test_another_function_is_not_compared() -> None:
    log = backed_up(again="g")
    assert begun(log) == (6, 0)
    made_again(log, b9=4_711)


def test_with_a_checkpoint_nothing_is_left_out_or_compared() -> None:
    log = backed_up()
    assert log.horizon is not None
    assert log.horizon.begin(log.log_state, "0", is_fresh=False) == (0, 0)
    made_again(log, b9=4_711)


def is_open(log: Log) -> bool:
    assert log.horizon is not None
    again = LogState.from_snapshot(log.log_state.snapshot(99))
    assert again.origin("0") == log.log_state.origin("0")
    return log.horizon.is_open(again.origin("0"))


def test_sh3_until_something_new_is_closed_each_process_begins_anew() -> None:
    log = backed_up()
    assert not is_open(log), "there was a checkpoint to go on from until the disk was lost"
    begun(log)
    log.add(log.record(6, fresh=True))
    log.add(log.record(8, part(7, 1), part(8, 2)))
    log.begin()
    assert is_open(log)
    assert begun(log) == (6, 0)
    with pytest.raises(StageFunctionError, match="bucket 9"):
        made_again(log, b9=4_711)
    log.add(log.record(6, fresh=True))
    log.add(log.record(10, part(9, 1_009), part(10, 1_010)))
    log.begin()
    assert is_open(log)
    begun(log)
    log.add(log.record(11, fresh=True))
    log.add(log.record(13, fresh=True, epoch=0))  # of a zombie
    log.begin()
    assert not is_open(log), "all was compared before 11 was closed"


def test_sh3_blocks_that_are_written_again_end_no_comparison() -> None:
    log = backed_up()
    begun(log)
    log.add(log.record(6, fresh=True))
    assert is_open(log)
    log.add(Recomputed("0", log.log_state.epoch("0") or 0, (part(10, 1_010),)))
    assert is_open(log)


def test_sh3_the_first_process_of_all_and_one_that_gives_up_have_nothing_to_compare() -> None:
    log = Log(StateHorizon("s", 200, WIDTH_MS))
    log.begin()
    log.add(log.record(0, fresh=True))
    assert not is_open(log)
    log = forgetful()
    log.add(log.record(10, fresh=True, missing="a"))
    assert not is_open(log)


def test_what_another_function_has_made_is_not_compared_after_a_restart_either() -> None:
    log = backed_up(again="g")
    log.add(log.record(6, fresh=True))
    log.begin("g")
    assert is_open(log)
    begun(log)
    made_again(log, b9=4_711)


def test_of_a_function_that_was_changed_only_what_it_made_from_its_own_state_is_compared() -> None:
    log = Log(StateHorizon("s", 200, WIDTH_MS))
    log.begin()
    log.add(log.record(7))
    log.begin("g")
    for bucket in range(8, 11):
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin("g")
    assert begun(log) == (6, 0)
    made_again(log, b9=4_711)
    begun(log)
    with pytest.raises(StageFunctionError, match="bucket 10"):
        made_again(log, b9=4_711, b10=4_711)


def test_what_trimming_must_leave() -> None:
    backup, forgetful = (
        StateHorizon("s", 200, WIDTH_MS),
        StateHorizon("s", 200, WIDTH_MS, lambda: 0),
    )
    assert backup.unneeded_upto(10, 9) == 6
    assert backup.unneeded_upto(10, 5) == 5
    assert backup.unneeded_upto(3, 3) == 0
    assert forgetful.unneeded_upto(10, 9) == 9


def forgetful(book: GapBook | None = None) -> Log:
    log = Log(StateHorizon("s", 200, WIDTH_MS, lambda: 15), book)
    log.begin()
    log.add(log.record(10, part(10, 1)))
    log.begin()
    return log


def test_sh4_amnesia_gives_up_to_a_state_horizon_beyond_what_is_complete() -> None:
    log = forgetful()
    assert begun(log) == (15, 17)
    log.horizon.check(log.record(16, part(9, 4)))  # type: ignore[union-attr]


def test_sh5_a_gap_that_a_crash_interrupted_goes_on() -> None:
    log = forgetful()
    log.add(log.record(15, fresh=True, missing="a"))
    log.add(log.record(16, missing="a"))
    log.begin()
    log.add(log.record(30, fresh=True, missing="a", epoch=0))  # of a zombie
    assert log.horizon is not None
    assert log.horizon.begin(log.log_state, "0", is_fresh=False) == (0, 17)
    log.add(log.record(17, fresh=True))
    assert log.horizon.begin(log.log_state, "0", is_fresh=False) == (0, 0)


def test_a_gap_is_one_alarm_and_its_buckets_are_counted() -> None:
    book = GapBook("s", 2, WIDTH_MS)
    log = forgetful(book)
    log.add(log.record(15, fresh=True, missing="a"))
    log.add(log.record(16, missing="a"))
    log.add(log.record(17, missing="a"))
    log.add(log.record(20, part(18, 5)))
    (alarm,) = log.alarms
    assert (alarm.kind, alarm.stream, alarm.bucket, alarm.written_ms) == ("gap", "s", 11, 77)
    assert "buckets 11..17 (times 1000 to 1700 ms)" in alarm.text
    assert book.lost == 7


def test_only_stages_have_gaps() -> None:
    book = GapBook("s", 2, WIDTH_MS)
    log = Log(book=book)
    log.begin()
    log.add(
        replace(log.record(5, fresh=True, missing="a"), positions=(InputPosition("t", 0, 1, 1),))
    )
    log.add(replace(log.record(9, missing="a"), kind=BoundaryKind.TENTATIVE, branch=(0, 1), base=5))
    assert (log.alarms, book.lost) == ([], 0)


def begun_at_a_snapshot(log: Log, book: GapBook | None = None) -> Log:
    """Somebody who reads the log from a log snapshot on, that was written now."""
    log_snapshot = log.log_state.snapshot(log._offset)
    again = Log(log.horizon, book)
    again._offset, again._batch = log._offset, log._batch
    again.log_state.adopt(log_snapshot)
    if book is not None:
        assert (
            book.seen(log_snapshot, Outcome(accepted=False, reason="log_snapshot", replica=""), 77)
            is None
        )
        assert (
            book.seen(log_snapshot, Outcome(accepted=True, reason="adopted", replica=""), 77)
            is None
        )
    return again


def test_what_was_before_a_snapshot_is_compared_and_a_gap_in_it_goes_on() -> None:
    log = begun_at_a_snapshot(backed_up())
    assert begun(log) == (6, 0)
    with pytest.raises(StageFunctionError, match="bucket 9"):
        made_again(log, b9=4_711)
    log = begun_at_a_snapshot(backed_up(again="g"))
    begun(log)
    made_again(log, b9=4_711)
    log = forgetful()
    log.add(log.record(15, fresh=True, missing="a"))
    log.add(log.record(16, missing="a"))
    log = begun_at_a_snapshot(log)
    assert log.horizon is not None
    assert log.horizon.begin(log.log_state, "0", is_fresh=False) == (0, 17)


def test_a_gap_after_a_snapshot_begins_where_it_does() -> None:
    book = GapBook("s", 2, WIDTH_MS)
    log = begun_at_a_snapshot(forgetful(), book)
    log.add(log.record(15, fresh=True, missing="a"))
    (alarm,) = log.alarms
    assert (alarm.bucket, book.lost) == (11, 5)
