"""Tests of where a process of a stage begins: at which batches a peer's checkpoint may be copied;
where a process without a checkpoint begins, what it gives up, and how its recomputed results are
compared.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.protocol.errors import StageFunctionError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import BUCKET_MAX, CHECKPOINT_BATCHES_RETAINED
from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    LogEntry,
    Part,
    Recomputed,
    says_late_start,
)
from anabranch.protocol.stage.recovery import (
    Beginning,
    CleanPoints,
    Comparison,
    HaMode,
    PartnerWrong,
    beginning,
    begins_anew,
    continued,
    is_behind,
    plans_anew,
    unneeded_upto,
)
from harness.examples import examples
from harness.stage_logs import StageLog, backed_up, forgetful, part


class Log:
    """A stage of the replicas 0, 1, 2, and who listens to 0 and 1."""

    def __init__(self) -> None:
        self.log_state = LogState("012")
        self.points = CleanPoints("01", "2")
        self.offset = 0
        for replica in "012":
            self.add(EpochStarted(replica, "f", "token"))

    def add(self, entry: LogEntry) -> None:
        self.points.seen(self.log_state, entry, self.log_state.apply(self.offset, entry))
        self.offset += 1

    def batch(
        self,
        batch: int,
        closed: int,
        *buckets: int,
        prev: int | None,
        timeline: str = "a",
        replica: str = "0",
    ) -> None:
        parts = tuple(Part(bucket, 0, "t", 1, 0, 1, 1, 0) for bucket in buckets)
        before = None if prev is None else BatchId("a", prev)
        self.add(
            BoundaryRecord(
                replica, "012".index(replica), BatchId(timeline, batch), before, closed, parts
            )
        )

    def base(
        self,
        batch: int,
        *,
        timeline: str = "a",
        replica: str = "0",
        fingerprint: str = "f",
        upto: int = 10_000,
    ) -> int | None:
        return self.points.base(replica, BatchId(timeline, batch), fingerprint, upto)


def test_cp1_nothing_that_was_begun_is_the_copys() -> None:
    log = Log()
    log.batch(0, 4, 3, prev=None)
    log.batch(1, 6, 5, 9, 8, prev=0)
    log.batch(2, 8, prev=1)
    log.batch(3, 9, prev=2)
    assert [log.base(batch) for batch in range(5)] == [4, 9, 9, 9, None]
    assert [log.base(batch, upto=log.log_state.upto) for batch in range(5)] == [4, 9, 9, 9, None]
    assert [log.base(batch, upto=8) for batch in range(5)] == [4, None, None, None, None], (
        "it is not stable yet"
    )


def test_cp4_what_was_cut_off_is_no_point() -> None:
    log = Log()
    log.batch(0, 4, prev=None)
    log.batch(1, 6, prev=0)
    log.batch(2, 8, prev=1)
    log.batch(1, 7, prev=0, timeline="b")
    assert [log.base(batch) for batch in range(3)] == [4, None, None]
    assert log.base(1, timeline="b") == 8, (
        "what was closed stays closed: nothing up to it is the copy's"
    )
    log.batch(0, 9, prev=None, timeline="c")
    assert log.base(0) is None
    assert log.base(0, timeline="c") == 9


def test_cp2_a_point_is_of_the_same_plan() -> None:
    log = Log()
    log.batch(0, 4, prev=None)
    log.add(EpochStarted("0", "g", "token"))
    assert log.base(0) == 4
    assert log.base(0, fingerprint="g") is None
    record = BoundaryRecord("0", log.offset - 1, BatchId("b", 1), BatchId("a", 0), 5)
    log.add(record)
    assert log.base(1, timeline="b") is None
    assert log.base(1, timeline="b", fingerprint="g") == 5


def test_what_does_not_count_is_no_point() -> None:
    log = Log()
    log.add(EpochStarted("3", "f", "token"))
    assert log.points.base("3", BatchId("a", 0), "f", 9) is None, "nobody listens to it"
    log.batch(0, 4, prev=7)
    assert log.base(0) is None, "rejected"
    tentative = BoundaryRecord(
        "1", 1, BatchId("a", 0), None, 4, base=0, kind=BoundaryKind.TENTATIVE, branch=(1, 1)
    )
    log.add(tentative)
    assert log.base(0, replica="1") is None


def test_records_of_one_that_nobody_copies_from_are_no_points() -> None:
    log = Log()
    log.points = CleanPoints("0", "1")
    for replica in "20":
        log.batch(0, 4, prev=None, replica=replica)
    assert (log.base(0, replica="2"), log.base(0)) == (None, 4)


def test_cp3_old_points_are_forgotten() -> None:
    log = Log()
    for batch in range(3 * CHECKPOINT_BATCHES_RETAINED):
        log.batch(batch, batch + 1, prev=batch - 1 if batch else None)
    assert log.base(0) is None
    assert log.base(2 * CHECKPOINT_BATCHES_RETAINED) is not None


def test_cp4_the_own_records_that_were_cut_off_are_known() -> None:
    log = Log()
    for replica in "02":
        log.batch(0, 4, prev=None, replica=replica)
        log.batch(1, 6, 9, prev=0, replica=replica)
        log.batch(2, 8, prev=1, replica=replica)
        log.batch(1, 7, prev=0, timeline="b", replica=replica)
    found = [log.points.cut_off_base(BatchId("a", batch), "f", 9) for batch in range(4)]
    assert found == [None, 9, 9, None], "the first may be continued, and the last never was"
    assert log.points.cut_off_base(BatchId("a", 1), "f", 8) is None, "it is not stable yet"
    assert log.points.cut_off_base(BatchId("a", 1), "g", 9) is None
    assert log.base(1, replica="2") is None


def test_cp5_of_a_snapshot_the_tips_are_points() -> None:
    log = Log()
    log.batch(0, 4, prev=None)
    log.batch(1, 6, 9, prev=0)
    log.batch(3, 5, prev=None, replica="1")
    log.add(EpochStarted("1", "g", "token"))
    log_snapshot = log.log_state.snapshot(log.offset)
    again = Log()
    again.log_state = LogState("012")
    again.points = CleanPoints("01")
    again.offset = log.offset
    again.log_state.adopt(log_snapshot)
    again.points.seen(
        again.log_state, log_snapshot, Outcome(accepted=False, reason="log_snapshot", replica="")
    )
    assert again.base(1) is None
    again.points.seen(
        again.log_state, log_snapshot, Outcome(accepted=True, reason="adopted", replica="")
    )
    assert [again.base(batch) for batch in (0, 1)] == [None, 9]
    assert again.base(3, replica="1") == 5, "made by the plan before its newest epoch"
    assert again.points.base("1", BatchId("a", 3), "g", 9) is None
    again.batch(2, 9, prev=1)
    assert [again.base(batch) for batch in (1, 2)] == [9, 9]


FIRST = BoundaryRecord("0", 0, BatchId("l", 0), None, 7, missing=("a",), made_from=(("a", 7),))
PART = Part(8, 0, "t", 1, 0, 1, 1, 0)


def log_state_of(*records: BoundaryRecord, from_snapshot: bool = False) -> LogState:
    """Return the state of a log with an epoch of each of two replicas, in which ``records`` follow
    each other.
    """
    log_state = LogState(["0", "1"])
    for offset, replica in enumerate(log_state.writers):
        log_state.apply(offset, EpochStarted(replica, "f", "t"))
    for number, record in enumerate(records):
        log_state.apply(2 + number, replace(record, id=BatchId("l", number)))
    return LogState.from_snapshot(log_state.snapshot(99)) if from_snapshot else log_state


def begun(
    log_state: LogState,
    horizon: int = 0,
    ha: HaMode = "active",
    *,
    gone: int = 0,
    complete: int = 0,
) -> tuple[int, int]:
    found = beginning(log_state, "0", horizon, ha, gone=lambda: gone, complete=lambda: complete)
    return found.after, found.given_up


@pytest.mark.parametrize("ha", ["active", "passive", "upstream_backup", "amnesia"])
def test_a_stage_that_made_nothing_begins_after_what_is_gone(ha: HaMode) -> None:
    assert begun(log_state_of(), ha=ha, gone=9, complete=50) == (9, 9)
    assert begun(log_state_of(), ha=ha, gone=0, complete=50) == (0, 0)
    assert begun(log_state_of(), 3, ha, gone=9, complete=50) == (9, 12)


@pytest.mark.parametrize("from_snapshot", [False, True])
@pytest.mark.parametrize(
    "record",
    [
        replace(FIRST, missing=()),
        replace(FIRST, parts=(PART,)),
        replace(FIRST, prev=BatchId("l", 0)),
        replace(FIRST, base=7),
        replace(FIRST, replica="1", epoch=1, missing=()),
    ],
)
def test_la1_a_stage_that_made_anything_leaves_out_no_more(
    record: BoundaryRecord, from_snapshot: bool
) -> None:
    """Nor does one of whose log a log snapshot is left. Nothing, if it did not begin late."""
    assert begun(log_state_of(FIRST, record, from_snapshot=from_snapshot), gone=9) == (7, 7)
    alone = replace(record, prev=None, base=None, missing=())
    assert begun(log_state_of(alone, from_snapshot=from_snapshot), gone=9) == (0, 0)
    unread = replace(alone, epoch=55)
    assert begun(log_state_of(unread, from_snapshot=from_snapshot), gone=9) == (9, 9), (
        "a record that does not count says nothing"
    )


@pytest.mark.parametrize("ha", ["active", "passive", "upstream_backup", "amnesia"])
def test_rs4_a_stage_that_begins_anew_begins_where_the_operator_said(ha: HaMode) -> None:
    log = backed_up()  # ten buckets are closed

    def restated(gone: int, after: int = 7) -> Beginning:
        return beginning(
            log.log_state,
            "0",
            2,
            ha,
            gone=lambda: gone,
            complete=lambda: 50,
            restated_after=after,
        )

    log.add(EpochStarted("0", "g", "", version=2))
    assert restated(0) == Beginning(7, 9)
    assert restated(9) == Beginning(9, 11), "what is not there cannot be read"
    assert restated(0, 0) == Beginning(), "nothing is left out"
    log.add(log.record(7, fresh=True, missing="a"))
    assert restated(9) == Beginning(9, 11)
    assert restated(0, 5) == Beginning(7, 9), "LA2"
    log.add(log.record(11))
    assert log.log_state.version == (2, 10)
    assert restated(9) == Beginning(7, 9), "its version counts: it waits for blocks"


def test_la1_a_branch_is_no_result() -> None:
    tentative = replace(
        FIRST, kind=BoundaryKind.TENTATIVE, prev=BatchId("l", 0), base=7, closed=8, branch=(0, 1)
    )
    log_state = log_state_of(FIRST, tentative)
    assert log_state.tentative_upto("0") == 8
    assert not log_state.origin("0").has_results
    assert begun(log_state, gone=9) == (9, 9)


@pytest.mark.parametrize("from_snapshot", [False, True])
@pytest.mark.parametrize(("gone", "after"), [(0, 7), (6, 7), (9, 9)])
def test_la2_all_begin_where_the_first_has_stated_or_after_what_is_gone_since(
    gone: int, after: int, from_snapshot: bool
) -> None:
    assert says_late_start(FIRST)
    assert begun(log_state_of(FIRST, from_snapshot=from_snapshot), gone=gone) == (after, after)
    behind = log_state_of(FIRST, replace(FIRST, closed=5), from_snapshot=from_snapshot)
    assert begun(behind, gone=gone) == (after, after), "one that is behind"


@pytest.mark.parametrize("from_snapshot", [False, True])
@pytest.mark.parametrize("ha", ["active", "passive", "upstream_backup", "amnesia"])
def test_la2_a_first_plan_counts_only_if_nothing_is_left_out(
    ha: HaMode, from_snapshot: bool
) -> None:
    """It may name blocks that are deleted."""
    result = replace(FIRST, replica="1", epoch=1, missing=())
    for records in ((), (FIRST,), (FIRST, result)):
        log_state = log_state_of(*records, from_snapshot=from_snapshot)
        assert not plans_anew(log_state, Beginning(), ha)
        is_sh4 = result in records and ha == "amnesia"
        assert plans_anew(log_state, Beginning(9, 12), ha) != is_sh4


def test_la3_whoever_goes_on_gives_up_what_is_given_up() -> None:
    assert continued(log_state_of(), 3, "active") == Beginning(), "it did not begin late"
    behind = replace(FIRST, replica="1", epoch=1, closed=5)
    for ha in ("active", "passive", "upstream_backup"):
        assert continued(log_state_of(behind, FIRST), 3, ha) == Beginning(0, 10)
    assert continued(log_state_of(FIRST), 0, "active") == Beginning(), "the first record closes it"


@pytest.mark.parametrize(("horizon", "after"), [(0, 10), (1, 8), (2, 6), (5, 0), (50, 0)])
def test_sh2_upstream_backup_begins_two_horizons_before_its_output(
    horizon: int, after: int
) -> None:
    assert begun(backed_up().log_state, horizon, "upstream_backup", gone=3) == (after, 0)


@examples(200)
@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.integers(0, 9), st.booleans())
def test_sh6_no_process_ever_reads_what_the_log_alone_says_is_unneeded(
    closes: list[int], horizon: int, is_late: bool
) -> None:
    """Trimming goes by it for a stage that others may run (TM9)."""
    log, unneeded, closed = StageLog(), 0, 7 if is_late else 0
    log.begin()
    if is_late:
        log.add(replace(log.record(closed, fresh=True, missing="a"), made_from=(("a", closed),)))
    for count in closes:
        closed += count
        log.add(log.record(closed, part(closed, closed)))
        upto = unneeded_upto(log.log_state.closed("0"), BUCKET_MAX, horizon, "upstream_backup")
        assert upto >= unneeded
        unneeded = upto
        log.begin()
        assert begun(log.log_state, horizon, "upstream_backup", gone=unneeded)[0] >= unneeded
        begins = lambda: Beginning(begun(log.log_state, horizon, "upstream_backup")[0])  # noqa: E731
        assert is_behind(unneeded - 1, begins, "upstream_backup")


@pytest.mark.parametrize(
    ("horizon", "expected"), [(0, (17, 0)), (4, (9, 0)), (5, (7, 12)), (50, (7, 57))]
)
def test_sh2_upstream_backup_never_begins_before_the_stage(
    horizon: int, expected: tuple[int, int]
) -> None:
    """It was added late. What is given up then is closed, or was given up."""
    result = replace(FIRST, prev=BatchId("l", 0), missing=(), closed=17)
    assert begun(log_state_of(FIRST, result), horizon, "upstream_backup") == expected


@pytest.mark.parametrize("ha", ["active", "passive", "upstream_backup", "amnesia"])
def test_sh5_where_nothing_was_closed_the_beginning_is_the_beginning(ha: HaMode) -> None:
    log = StageLog()
    log.begin()
    assert begun(log.log_state, 2, ha, complete=50) == (0, 0)


@pytest.mark.parametrize("ha", ["active", "passive", "upstream_backup", "amnesia"])
def test_with_a_checkpoint_nothing_is_left_out(ha: HaMode) -> None:
    assert continued(backed_up().log_state, 2, ha) == Beginning()


def test_sh3_amnesia_gives_up_to_a_state_horizon_beyond_what_is_complete() -> None:
    assert begun(forgetful().log_state, 2, "amnesia", gone=3, complete=15) == (15, 17)


def test_amnesia_that_has_closed_nothing_itself_begins_at_the_beginning() -> None:
    """Another writer's results, from before the stage had another replica, are not its to lose."""
    other = replace(FIRST, replica="1", epoch=1, missing=())
    assert begun(log_state_of(other), 2, "amnesia", complete=15) == (0, 0)


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_sh4_a_gap_that_a_crash_interrupted_goes_on(from_snapshot: bool) -> None:
    log = forgetful()
    log.add(log.record(15, fresh=True, missing="a"))
    log.add(log.record(16, missing="a"))
    log.begin()
    log.add(log.record(30, fresh=True, missing="a", epoch=0))  # of a zombie
    log = log.from_snapshot() if from_snapshot else log
    assert continued(log.log_state, 2, "amnesia") == Beginning(0, 17)
    log.add(log.record(17, fresh=True))
    assert continued(log.log_state, 2, "amnesia") == Beginning()


def test_sh4_a_plan_that_is_run_again_says_what_is_left_out() -> None:
    decided = Beginning(15, 17)
    assert decided.planned(15, has_rows=False) == decided
    assert decided.planned(16, has_rows=True) == decided
    assert decided.planned(12, has_rows=False) == Beginning(12, 14)
    assert decided.planned(12, has_rows=True) == Beginning()
    backup = Beginning(15, 0)
    assert backup.planned(12, has_rows=False) == backup, "nothing is given up"


def is_open(log: StageLog) -> bool:
    origin = log.log_state.origin("0")
    assert log.from_snapshot().log_state.origin("0") == origin
    assert not begins_anew(origin, "amnesia")
    return begins_anew(origin, "upstream_backup")


def test_until_something_new_is_closed_each_process_begins_anew() -> None:
    log = backed_up()
    assert not is_open(log), "there was a checkpoint to go on from until the disk was lost"
    log.add(log.record(6, fresh=True))
    log.add(log.record(8, part(7, 1), part(8, 2)))
    log.begin()
    assert is_open(log)
    assert begun(log.log_state, 2, "upstream_backup") == (6, 0)
    log.add(log.record(6, fresh=True))
    log.add(log.record(10, part(9, 1_009), part(10, 1_010)))
    log.begin()
    assert is_open(log)
    log.add(log.record(11, fresh=True))
    log.add(log.record(13, fresh=True, epoch=0))  # of a zombie
    log.begin()
    assert not is_open(log), "all was compared before 11 was closed"


def test_blocks_that_are_written_again_end_no_comparison() -> None:
    log = backed_up()
    log.add(log.record(6, fresh=True))
    assert is_open(log)
    log.add(Recomputed("0", log.log_state.epoch("0") or 0, (part(10, 1_010),)))
    assert is_open(log)


def test_the_first_process_of_all_has_nothing_to_compare() -> None:
    log = StageLog()
    log.begin()
    log.add(log.record(0, fresh=True))
    assert not is_open(log)


def test_sh6_what_is_older_than_a_new_beginning_is_left() -> None:
    fresh = Beginning(after=12)
    assert is_behind(11, lambda: fresh, "upstream_backup")
    assert is_behind(0, lambda: fresh, "upstream_backup")
    assert not is_behind(12, lambda: fresh, "upstream_backup")
    assert not is_behind(0, Beginning, "upstream_backup")
    assert not is_behind(11, lambda: Beginning(after=12, given_up=14), "upstream_backup")
    assert not any(is_behind(11, lambda: fresh, ha) for ha in ("active", "passive", "amnesia"))


def test_what_trimming_must_leave() -> None:
    assert unneeded_upto(10, 9, 2, "upstream_backup") == 6
    assert unneeded_upto(10, 5, 2, "upstream_backup") == 5
    assert unneeded_upto(3, 3, 2, "upstream_backup") == 0
    for ha in ("active", "passive", "amnesia"):
        assert unneeded_upto(10, 9, 2, ha) == 9


HORIZON, WIDTH_MS = 2, 100


def comparison(log: StageLog, after: int = 6) -> Comparison:
    """Return the comparison of a process that begins after a bucket."""
    made = Comparison("s", HORIZON, WIDTH_MS, {"partner"}.__contains__)
    made.begin(log.log_state, "0", after)
    return made


def make_again(compared: Comparison, log: StageLog, **changed: int) -> list[PartnerWrong]:
    """Recompute buckets 7 and 8 (partial), 9 and 10 (whole), and 11, in batches that end
    anywhere.
    """
    digests = {7: 1, 8: 2, 9: 1_009, 10: 1_010, 11: 1_011} | {
        int(name[1:]): digest for name, digest in changed.items()
    }
    records = [
        log.record(6),
        replace(log.record(9, part(11, 3)), kind=BoundaryKind.TENTATIVE),
        log.record(8, part(7, digests[7]), part(8, digests[8]), part(9, 9)),
        log.record(9, part(9, digests[9] - 9, rows=0), part(10, digests[10])),
        log.record(11, part(11, digests[11])),
        log.record(12, part(12, 1)),
    ]
    return [wrong for record in records for wrong in compared.check(record)]


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_cm1_what_is_made_again_is_compared(from_snapshot: bool) -> None:
    log = backed_up().from_snapshot() if from_snapshot else backed_up()
    compared = comparison(log)
    assert compared.upto == 10
    assert make_again(compared, log) == []
    with pytest.raises(StageFunctionError, match="bucket 9"):
        make_again(comparison(log), log, b9=4_711)


@pytest.mark.parametrize("bucket", [9, 10])
def test_cm1_a_difference_ends_the_process_before_anything_new_is_closed(bucket: int) -> None:
    log = backed_up()
    with pytest.raises(
        StageFunctionError,
        match=f"bucket {bucket}, recomputed from 400 ms of input, .* a longer state_horizon",
    ):
        make_again(comparison(log), log, **{f"b{bucket}": 4_711})


def test_cm1_a_bucket_too_many_or_too_few_is_a_difference() -> None:
    log = backed_up()
    with pytest.raises(StageFunctionError, match="bucket 9"):
        comparison(log).check(log.record(11, part(10, 1_010)))


def test_cm1_one_that_began_with_the_stage_has_no_partial_buckets() -> None:
    log = backed_up()
    with pytest.raises(StageFunctionError, match="bucket 1,"):
        comparison(log, after=0).check(log.record(2, part(2, 1_002)))


def test_cm1_each_process_that_begins_anew_compares_to_the_end() -> None:
    log = backed_up()
    log.add(log.record(6, fresh=True))
    log.add(log.record(8, part(7, 1), part(8, 2)))
    log.begin()
    with pytest.raises(StageFunctionError, match="bucket 9"):
        make_again(comparison(log), log, b9=4_711)


def sold(*nodes: str) -> StageLog:
    """Bucket 7 and those before were made on ``home``, 8, 9 and 10 on these; then the stage came
    home.
    """
    log = StageLog()
    log.begin(node="home")
    log.add(log.record(7))
    for bucket, node in zip(range(8, 11), nodes, strict=True):
        if node != log.log_state.node("0"):
            log.begin(node=node)
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin(node="home")
    return log


def test_cm1_what_a_partner_made_otherwise_stands_and_is_reported_once() -> None:
    log = sold("partner", "partner", "partner")
    assert make_again(comparison(log), log, b10=4_711) == [PartnerWrong("s", 10, "partner")]


def test_cm1_a_stage_that_came_home_and_ends_is_not_stopped_by_what_its_partner_made() -> None:
    log = sold("partner", "partner", "home")
    assert make_again(comparison(log), log, b9=4_711) == [PartnerWrong("s", 9, "partner")]


@pytest.mark.parametrize(
    "nodes", [("home", "home", "home"), ("partner", "partner", "home"), ("home", "away", "away")]
)
def test_cm1_a_difference_of_own_nodes_ends_the_process_wherever_it_has_been(
    nodes: tuple[str, ...],
) -> None:
    log = sold(*nodes)
    with pytest.raises(StageFunctionError, match="bucket 10"):
        make_again(comparison(log), log, b10=4_711)


@pytest.mark.parametrize("from_snapshot", [False, True])
def test_another_function_is_not_compared(from_snapshot: bool) -> None:
    log = backed_up(again="g").from_snapshot() if from_snapshot else backed_up(again="g")
    compared = comparison(log)
    assert compared.upto == 0
    assert make_again(compared, log, b9=4_711) == []


def test_what_another_function_has_made_is_not_compared_after_a_restart_either() -> None:
    log = backed_up(again="g")
    log.add(log.record(6, fresh=True))
    log.begin("g")
    assert make_again(comparison(log), log, b9=4_711) == []


def test_of_a_function_that_was_changed_only_what_it_made_from_its_own_state_is_compared() -> None:
    log = StageLog()
    log.begin()
    log.add(log.record(7))
    log.begin("g")
    for bucket in range(8, 11):
        log.add(log.record(bucket, part(bucket, 1_000 + bucket)))
    log.begin("g")
    assert make_again(comparison(log), log, b9=4_711) == []
    with pytest.raises(StageFunctionError, match="bucket 10"):
        make_again(comparison(log), log, b9=4_711, b10=4_711)


def test_bl21_no_point_is_of_an_earlier_attempt() -> None:
    log = Log()
    log.batch(0, 4, 2, prev=None)
    log.batch(1, 5, prev=0)
    assert log.points.base("0", BatchId("a", 1), "f", 5) == 5
    log.add(EpochStarted("1", "f", "token", attempt=7))
    assert log.points.base("0", BatchId("a", 1), "f", 5) is None
