"""Tests of where a replica starts when its own disk is lost or damaged (TI4-TI6)."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest

from anabranch.protocol.errors import ConfigurationError, LocalProtocolError
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import CHECKPOINT_BATCHES_RETAINED
from anabranch.protocol.log.stateful_plan import (
    NO_STATE,
    StageState,
    StatefulOperator,
    StatefulPlan,
)
from anabranch.protocol.log.timeline import (
    Answer,
    AppendBase,
    AwaitPeer,
    CheckEpoch,
    Clean,
    Copy,
    CopyPeer,
    Create,
    CutBack,
    FindBatches,
    FindBucket,
    FindCommit,
    FindFences,
    FindMissing,
    FindNewest,
    FindPeers,
    FindRecomputed,
    FindWhole,
    LowerClaim,
    OwnChain,
    Step,
    Timeline,
    Write,
    carry_out,
    check_plan_steps,
    failover_steps,
    fork_steps,
    timeline_name,
)
from harness.present import present

NAME = timeline_name(9, 0)
OLD = timeline_name(3, 0)


@dataclass
class Disk:
    """Disk and peers that a failover finds."""

    newest: Timeline | None = None
    batches: dict[str, list[int]] = field(default_factory=dict)
    """Committed batches of each timeline, newest first."""
    damaged: dict[str, set[int]] = field(default_factory=dict)
    peers: dict[str, Timeline] = field(default_factory=dict)
    bases: dict[tuple[str, BatchId], int] = field(default_factory=dict)
    gone_upto: int = -2
    """Blocks that come after batches up to this one are deleted."""
    gone_with_claim: int = -2
    """The same, from when it lowers its claim on."""
    vanishing: set[str] = field(default_factory=set)
    copies_left: int = 100
    recomputed: bool = False
    """Blocks that come after the batches were recomputed."""
    chain: set[BatchId] | None = None
    """The replica's own records that may be continued; None: all."""
    cut_off: dict[BatchId, int] = field(default_factory=dict)
    """Bases of those that may not."""
    fenced: dict[str, int] = field(default_factory=dict)
    is_open: bool = False
    state: StageState = NO_STATE
    is_restated: bool = False
    takes_over: bool = False
    claimed: int = 0
    """Last bucket that the log says the process has; every batch reads ten."""
    refusals: int = 0
    """Number of claims that the broker does not acknowledge."""
    steps: list[Step] = field(default_factory=list)
    copied_from: str = ""

    def own(self) -> OwnChain:
        return OwnChain(
            lambda ident: self.chain is None or ident in self.chain,
            self.cut_off.get,
            self.is_open,
            "0",
            self.state,
            self.is_restated,
            self.takes_over,
            lambda: self.claimed,
        )

    def run(self, steps_max: int = 100) -> Timeline | None:
        chain = self.own()
        steps = failover_steps(9, lambda replica, ident: self.bases.get((replica, ident)), chain)
        answer: Answer = None
        for _ in range(steps_max):
            try:
                step = steps.send(answer)
            except StopIteration as done:
                timeline: Timeline = done.value
                return timeline
            self.steps.append(step)
            answer = self.perform(step)
        return None

    def perform(self, step: Step) -> Answer:  # noqa: C901, PLR0911, PLR0912 - a case per step
        match step:
            case FindNewest():
                return self.newest
            case Copy(source, _):
                self.copied_from = source
            case CopyPeer(replica, source, _):
                self.copies_left -= 1
                if replica in self.vanishing or self.copies_left < 0:
                    return False
                self.copied_from = source
                return True
            case FindBatches():
                return tuple(self.batches[self.copied_from])
            case FindWhole(_, batches):
                return next(
                    (b for b in batches if b not in self.damaged.get(self.copied_from, ())), None
                )
            case FindMissing(_, batch):
                return "a is deleted" if batch <= self.gone_upto else ""
            case FindRecomputed():
                return int(self.recomputed)
            case FindPeers():
                return tuple(self.peers.items())
            case FindFences():
                return tuple(self.fenced.items())
            case AwaitPeer():
                self.gone_upto = -2
            case FindCommit(name):
                return max(self.batches.get(name, ()), default=-1)
            case FindBucket(name, batch):
                assert name == NAME
                return max(0, 10 * batch)
            case LowerClaim(bucket):
                self.gone_upto = max(self.gone_upto, self.gone_with_claim)
                self.refusals -= 1
                if self.refusals >= 0:
                    return False
                self.claimed = bucket
                return True
            case Write(timeline):
                assert self.claimed <= max(0, 10 * timeline.start_batch), "trimming counts on it"
        return None

    def named(self) -> list[str]:
        return [type(step).__name__ for step in self.steps]


def own(*batches: int, start: int = -1) -> Disk:
    timeline = Timeline.fresh(3) if start < 0 else Timeline(OLD, start, BatchId("x", start))
    return Disk(newest=timeline, batches={OLD: list(batches)})


def peer(*batches: int, clean: dict[int, int], name: str = OLD, replica: str = "1") -> Disk:
    bases = {(replica, BatchId(name, batch)): base for batch, base in clean.items()}
    return Disk(
        batches={name: list(batches)},
        peers={replica: Timeline(name, -1, None, floor=-1)},
        bases=bases,
    )


def test_the_own_directory_comes_first() -> None:
    disk = own(5, 4, 3)
    disk.peers = {"1": Timeline.fresh(4)}
    timeline = disk.run()
    assert timeline == Timeline(NAME, 5, BatchId(OLD, 5), earlier=(BatchId(OLD, 5),), floor=-1)
    assert CutBack(NAME, 5, keep_plan=True) in disk.steps
    assert "FindPeers" not in disk.named()


def test_ti6_a_damaged_batch_is_gone_back_over() -> None:
    disk = own(5, 4, 3)
    disk.damaged = {OLD: {5, 4}}
    timeline = present(disk.run())
    assert (timeline.start_batch, timeline.start_tip) == (3, BatchId(OLD, 3))
    assert CutBack(NAME, 3, keep_plan=True) in disk.steps


def test_a_batch_whose_record_is_not_known_is_not_gone_back_to() -> None:
    disk = own(5, 4, 3, start=4)
    disk.damaged = {OLD: {5, 4}}
    assert disk.run() == Timeline.fresh(9), "from the beginning of the log"
    assert disk.named()[-3:] == ["Write", "CheckEpoch", "Clean"]


@pytest.mark.parametrize("lost", ["disk", "all batches", "blocks"])
def test_ti4_without_a_directory_of_its_own_a_peers_is_copied(lost: str) -> None:
    theirs = timeline_name(4, 0)
    disk = peer(7, 6, 5, clean={7: 70, 5: 50}, name=theirs)
    if lost != "disk":
        disk.newest, disk.batches[OLD] = Timeline.fresh(3), [5]
        disk.damaged = {OLD: {5}} if lost == "all batches" else {}
        disk.gone_upto = 5 if lost == "blocks" else -2
    timeline = disk.run()
    assert timeline == Timeline.from_peer(NAME, 7, 70)
    assert timeline.start_tip == BatchId(NAME, 7)
    assert CutBack(NAME, 7, keep_plan=False) in disk.steps, "without the plan after it"
    assert disk.steps[-4:] == [Write(timeline), CheckEpoch(), Clean(9), AppendBase(timeline)]


def test_ti5_only_a_batch_that_leaves_nothing_pending() -> None:
    disk = peer(7, 6, 5, clean={5: 50})
    assert disk.run() == Timeline.from_peer(NAME, 5, 50)
    disk = peer(7, 6, 5, clean={})
    assert disk.run() == Timeline.fresh(9)
    disk = peer(-1, clean={})
    assert disk.run() == Timeline.fresh(9)


def test_ti5_only_a_whole_batch() -> None:
    disk = peer(7, 6, 5, clean={7: 70, 6: 60, 5: 50})
    disk.damaged = {OLD: {7, 6}}
    assert disk.run() == Timeline.from_peer(NAME, 5, 50)
    disk.damaged = {OLD: {7, 6, 5}}
    assert disk.run() == Timeline.fresh(9)


def test_of_several_peers_the_one_that_is_furthest() -> None:
    disk = peer(7, clean={7: 70}, name=timeline_name(4, 0), replica="1")
    other = peer(3, clean={3: 90}, name=timeline_name(5, 0), replica="2")
    disk.batches |= other.batches
    disk.peers |= other.peers
    disk.bases |= other.bases
    assert disk.run() == Timeline.from_peer(NAME, 3, 90)
    disk.vanishing = {"2"}
    assert disk.run() == Timeline.from_peer(NAME, 7, 70)


def test_a_peer_that_vanishes_between_two_copies_is_left() -> None:
    disk = peer(7, clean={7: 70})
    disk.copies_left = 1
    assert disk.run() == Timeline.fresh(9)
    assert disk.named().count("CopyPeer") == 2


def test_ti4_where_nothing_is_left_to_start_from_it_waits() -> None:
    disk = peer(7, clean={7: 70})
    disk.gone_upto = 7
    timeline = disk.run()
    assert timeline == Timeline.from_peer(NAME, 7, 70), "the peer got further meanwhile"
    named = disk.named()
    at = named.index("AwaitPeer")
    assert disk.steps[at] == AwaitPeer("a is deleted")
    assert named[at + 1] == "CheckEpoch"
    assert "Create" not in named
    assert Create(NAME) in peer_free().steps


def test_ti4_from_nothing_only_if_the_beginning_is_there() -> None:
    disk = Disk(gone_upto=-1)
    assert disk.run() == Timeline.fresh(9), "somebody has brought the beginning back"
    assert disk.named().count("AwaitPeer") == 1


def peer_free() -> Disk:
    disk = Disk()
    assert disk.run() == Timeline.fresh(9)
    return disk


def test_ti5_until_the_first_commit_every_restart_says_the_base_again() -> None:
    base = Timeline.from_peer(OLD, 7, 70)
    assert base.copied(NAME, 7) == Timeline.from_peer(NAME, 7, 70)
    later = base.copied(NAME, 9)
    assert (later.base, later.start_tip, later.lowest) == (None, BatchId(OLD, 9), 7)
    assert later.tip(7) == BatchId(OLD, 7), "the base record"
    assert later.tip(8) == BatchId(OLD, 8)
    with pytest.raises(LocalProtocolError):
        later.tip(6)


def test_a_fork_right_after_the_base_record_continues_it() -> None:
    base = Timeline.from_peer(OLD, 7, 70)
    steps = fork_steps(base, NAME)
    next(steps)
    steps.send(None)
    written = steps.send(7)
    assert isinstance(written, Write)
    assert (written.timeline.base, written.timeline.start_tip) == (None, BatchId(OLD, 7))
    assert written.timeline.copied(timeline_name(12, 0), 7).start_tip == BatchId(OLD, 7)


def test_ti3_who_made_which_batch_is_known_over_many_timelines() -> None:
    timeline, last = Timeline.fresh(1), -1
    made: dict[int, str] = {}
    for epoch, commits in ((2, 3), (5, 0), (7, 4), (8, 2), (9, 0)):
        made |= dict.fromkeys(range(last + 1, last + 1 + commits), timeline.name)
        last += commits
        timeline = timeline.copied(timeline_name(epoch, 0), last)
    assert {batch: timeline.tip(batch) for batch in range(last + 1)} == {
        batch: BatchId(name, batch) for batch, name in made.items()
    }
    assert timeline.tip(-1) is None
    back = timeline.copied(timeline_name(20, 0), 4)
    assert [back.tip(batch) for batch in range(5)] == [timeline.tip(batch) for batch in range(5)]
    assert back.tip(5) == BatchId(back.name, 5)


def test_what_spark_does_not_retain_is_forgotten() -> None:
    timeline, last = Timeline.fresh(1), -1
    for epoch in range(2, 3 * CHECKPOINT_BATCHES_RETAINED):
        last += 1
        timeline = timeline.copied(timeline_name(epoch, 0), last)
    assert len(timeline.earlier) <= CHECKPOINT_BATCHES_RETAINED + 1
    lowest = timeline.lowest
    assert lowest == last - CHECKPOINT_BATCHES_RETAINED
    assert timeline.tip(lowest) == BatchId(timeline_name(lowest + 1 if lowest else 1, 0), lowest)
    with pytest.raises(LocalProtocolError):
        timeline.tip(lowest - 1)


def test_a_plan_that_names_blocks_which_were_recomputed_is_dropped() -> None:
    disk = own(4, 3)
    disk.recomputed = True
    disk.run()
    assert CutBack(NAME, 4, keep_plan=False) in disk.steps


@pytest.mark.parametrize(("last", "keep_plan"), [(4, False), (-1, True)])
def test_ti10_a_process_that_takes_over_plans_anew_unless_nothing_was_committed(
    last: int, *, keep_plan: bool
) -> None:
    disk = own(last)
    disk.takes_over = True
    disk.run()
    assert CutBack(NAME, last, keep_plan=keep_plan) in disk.steps


def test_ti7_a_batch_whose_record_was_cut_off_is_gone_back_over() -> None:
    disk = own(5, 4, 3)
    disk.chain = {BatchId(OLD, 3), BatchId(OLD, 2), BatchId("x", 5)}
    timeline = present(disk.run())
    assert (timeline.start_batch, timeline.start_tip, timeline.base) == (3, BatchId(OLD, 3), None)


@pytest.mark.parametrize("why", ["not on the chain", "blocks are gone"])
def test_ti7_where_none_may_be_continued_one_that_leaves_nothing_open_is_taken_under_a_base_record(
    why: str,
) -> None:
    disk = own(5, 4, 3)
    disk.chain = {BatchId(OLD, 3)} if why == "blocks are gone" else set()
    disk.gone_upto = 3
    disk.cut_off = {BatchId(OLD, 4): 40}
    disk.peers = {"1": Timeline.fresh(4)}
    timeline = disk.run()
    assert timeline == Timeline.from_peer(NAME, 4, 40)
    assert CutBack(NAME, 4, keep_plan=False) in disk.steps
    assert disk.steps[-1] == AppendBase(timeline)
    assert "FindPeers" not in disk.named()


@pytest.mark.parametrize("why", ["something is open", "it is damaged", "blocks are gone"])
def test_ti7_else_it_is_as_if_there_were_none(why: str) -> None:
    disk = own(5, 4, 3)
    disk.chain = set()
    disk.cut_off = {} if why == "something is open" else {BatchId(OLD, 4): 40}
    disk.damaged = {OLD: {4}} if why == "it is damaged" else {}
    if why == "blocks are gone":
        disk.gone_upto = 4
        assert disk.run(10) is None
        assert disk.steps[-1] == AwaitPeer("a is deleted")
    else:
        assert disk.run() == Timeline.fresh(9)


def test_ti7_a_base_record_needs_nothing_on_the_chain() -> None:
    disk = own(7)
    disk.newest, disk.chain = Timeline.from_peer(OLD, 7, 70), set()
    assert disk.run() == Timeline.from_peer(NAME, 7, 70)


def test_ti7_nor_does_a_first_record() -> None:
    disk = own(-1)
    disk.chain = set()
    timeline = present(disk.run())
    assert (timeline.start_batch, timeline.start_tip) == (-1, None)
    assert "Copy" in disk.named()


@pytest.mark.parametrize("refusals", [0, 2])
@pytest.mark.parametrize("start", [3, 4, -1])
def test_ti11_who_begins_with_less_than_it_claims_says_so_first(start: int, refusals: int) -> None:
    """It goes back over what was cut off, is taken under a base record, or begins anew."""
    disk = own(5, 4, 3)
    disk.claimed, disk.refusals = 50, refusals
    disk.chain = {BatchId(OLD, 3)} if start == 3 else set()
    disk.cut_off = {BatchId(OLD, 4): 40} if start == 4 else {}
    assert present(disk.run()).start_batch == start
    lower = LowerClaim(max(0, 10 * start))
    first = disk.steps.index(lower)
    assert disk.steps[first : first + 1 + 2 * refusals] == [
        lower,
        *[CheckEpoch(), lower] * refusals,
    ]
    rest = disk.named()[first + 1 + 2 * refusals :]
    assert "LowerClaim" not in rest
    assert "FindMissing" in rest[: rest.index("Write")], "trimming may have passed it before"


def test_ti11_what_is_deleted_before_the_lower_claim_is_heard_is_not_gone_on_from() -> None:
    """It takes what a peer has, as if the blocks had been missing when it began."""
    disk = own(5, 4, 3)
    disk.claimed, disk.chain, disk.gone_with_claim = 50, {BatchId(OLD, 3)}, 3
    disk.peers = {"1": Timeline("000000000004-000000", -1, None, floor=-1)}
    disk.batches["000000000004-000000"] = [7]
    disk.bases = {("1", BatchId("000000000004-000000", 7)): 70}
    assert disk.run() == Timeline.from_peer(NAME, 7, 70)
    assert disk.named().count("LowerClaim") == 1


@pytest.mark.parametrize("claimed", [0, 40, 50])
def test_ti11_who_has_what_it_claims_says_nothing(claimed: int) -> None:
    disk = own(5, 4, 3)
    disk.claimed = claimed
    assert present(disk.run()).start_batch == 5
    assert "LowerClaim" not in disk.named()
    assert ("FindBucket" in disk.named()) == (claimed > 0), "others need not know it"


def test_cm1_a_checkpoint_that_was_not_compared_to_its_end_is_not_gone_on_from() -> None:
    disk = own(5, 4, 3)
    disk.is_open = True
    assert disk.run() == Timeline.fresh(9)
    assert "Copy" not in disk.named()
    assert Create(NAME) in disk.steps


class TestG8:
    """Tests that no process uses what a fenced one left."""

    def test_the_next_process_starts_from_a_peer(self) -> None:
        disk = peer(7, clean={7: 70}, name=timeline_name(4, 0))
        disk.newest = Timeline.fresh(3)
        disk.batches[OLD] = [9, 8]
        disk.fenced = {"0": 3}
        assert disk.run() == Timeline.from_peer(NAME, 7, 70)
        assert Copy(OLD, NAME) not in disk.steps

    def test_or_from_the_beginning(self) -> None:
        disk = own(5, 4)
        disk.fenced = {"0": 4}
        assert disk.run() == Timeline.fresh(9), "an epoch before the fenced one had the same state"

    def test_or_waits_where_neither_is_there(self) -> None:
        disk = own(5, 4)
        disk.fenced, disk.gone_upto = {"0": 3}, -1
        steps = failover_steps(9, own=OwnChain(replica="0"))
        answer: Answer = None
        for _ in range(100):
            step = steps.send(answer)
            if isinstance(step, AwaitPeer):
                break
            answer = disk.perform(step)
        else:
            pytest.fail("it went on from something")

    def test_what_a_later_process_made_counts_again(self) -> None:
        disk = own(5, 4)
        disk.fenced = {"0": 2, "1": 8}
        timeline = present(disk.run())
        assert (timeline.start_batch, timeline.base) == (5, None)

    def test_a_fence_is_heard_at_every_look(self) -> None:
        """It comes while the process waits."""
        disk = own(5, 4)
        disk.gone_upto, waits = 10, list[Step]()

        def perform(step: Step) -> Answer:
            if isinstance(step, AwaitPeer):
                waits.append(step)
                disk.fenced, disk.gone_upto = {"0": 3}, -2
            return disk.perform(step)

        assert carry_out(failover_steps(9, own=OwnChain(replica="0")), perform) == Timeline.fresh(9)
        assert len(waits) == 1

    def test_a_fenced_peers_is_passed_over(self) -> None:
        disk = peer(7, clean={7: 70}, name=timeline_name(4, 0))
        disk.fenced = {"1": 4}
        assert disk.run() == Timeline.fresh(9)
        disk = peer(7, clean={7: 70}, name=timeline_name(5, 0))
        disk.fenced = {"1": 4}
        assert disk.run() == Timeline.from_peer(NAME, 7, 70)


def per(window: str, version: int = 1) -> StageState:
    operator = StatefulOperator("aggregate", (("per", (window,)),))
    return StageState("t", StatefulPlan((operator,), "source of it", "engine 1", version))


OF_TEN_SECONDS = per("10 seconds")
OF_A_MINUTE = per("1 minute", version=2)


def of(state: StageState, disk: Disk) -> Disk:
    """``disk`` as a process of another function left it, by ``state``."""
    disk.newest = None if disk.newest is None else replace(disk.newest, plan=state.plan)
    disk.peers = {name: replace(found, plan=state.plan) for name, found in disk.peers.items()}
    return disk


def test_the_function_that_made_the_state_is_written_beside_it() -> None:
    disk = of(OF_TEN_SECONDS, own(5, 4))
    disk.state = OF_TEN_SECONDS
    timeline = present(disk.run())
    assert timeline.plan == OF_TEN_SECONDS.plan
    assert Write(timeline) in disk.steps
    assert timeline.copied(timeline_name(12, 0), 7).plan == OF_TEN_SECONDS.plan
    assert timeline.forked(timeline_name(9, 1), 7).plan == OF_TEN_SECONDS.plan
    base = replace(Timeline.from_peer(OLD, 7, 70), plan=OF_TEN_SECONDS.plan)
    assert base.copied(NAME, 7).plan == OF_TEN_SECONDS.plan
    assert carry_out(check_plan_steps(disk.own()), disk.perform) is None


def test_another_function_does_not_go_on_from_the_own_state() -> None:
    disk = of(OF_TEN_SECONDS, own(5, 4))
    disk.state = OF_A_MINUTE
    with pytest.raises(ConfigurationError, match="10 seconds -> 1 minute"):
        disk.run()
    assert not any(isinstance(step, Write) for step in disk.steps)
    with pytest.raises(ConfigurationError, match="10 seconds -> 1 minute"):
        carry_out(check_plan_steps(disk.own()), disk.perform)


def test_where_nothing_was_committed_there_is_no_state() -> None:
    disk = of(OF_TEN_SECONDS, own(-1))
    disk.state = OF_A_MINUTE
    assert carry_out(check_plan_steps(disk.own()), disk.perform) is None
    timeline = present(disk.run())
    assert timeline.plan == OF_A_MINUTE.plan


def test_a_checkpoint_that_is_not_used_is_not_judged() -> None:
    for disk in (own(5, 4), own(5, 4)):
        of(OF_TEN_SECONDS, disk).state = OF_A_MINUTE
        disk.is_open = not disk.fenced
        assert carry_out(check_plan_steps(disk.own()), disk.perform) is None
    disk.is_open, disk.fenced = False, {"0": 3}
    assert carry_out(check_plan_steps(disk.own()), disk.perform) is None
    assert carry_out(check_plan_steps(OwnChain()), Disk().perform) is None


def test_another_functions_peer_is_passed_over() -> None:
    disk = of(OF_TEN_SECONDS, peer(7, 6, clean={7: 70, 6: 60}))
    disk.state = OF_A_MINUTE
    assert disk.run() == replace(Timeline.fresh(9), plan=OF_A_MINUTE.plan)
    assert "CopyPeer" not in disk.named()
    disk = of(OF_TEN_SECONDS, peer(7, 6, clean={7: 70, 6: 60}))
    disk.state = OF_TEN_SECONDS
    assert disk.run() == replace(Timeline.from_peer(NAME, 7, 70), plan=OF_TEN_SECONDS.plan)


def test_rs3_an_operator_lets_it_begin_anew_without_the_state_of_another_function() -> None:
    disk = of(OF_TEN_SECONDS, own(5, 4))
    disk.state, disk.is_restated = OF_A_MINUTE, True
    assert carry_out(check_plan_steps(disk.own()), disk.perform) is None
    assert disk.run() == replace(Timeline.fresh(9), plan=OF_A_MINUTE.plan)
    assert FindMissing(NAME, -1, is_restated=True) in disk.steps
    assert not {"Copy", "FindWhole"} & set(disk.named())
    disk = of(OF_A_MINUTE, own(5, 4))
    disk.state, disk.is_restated = OF_A_MINUTE, True
    timeline = present(disk.run())
    assert timeline.start_batch == 5, "it goes on from its own"
    disk = of(per("10 seconds", version=2), own(5, 4))
    disk.state, disk.is_restated = OF_A_MINUTE, True
    with pytest.raises(ConfigurationError, match="10 seconds -> 1 minute"):
        disk.run()
    disk = own(-1)
    disk.state, disk.is_restated = OF_A_MINUTE, True
    disk.run()
    assert FindMissing(NAME, -1, is_restated=True) not in disk.steps, "there was no state"
