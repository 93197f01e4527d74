"""Tests of which process's turn it is to become the primary, and which checkpoint is worth
a copy.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from anabranch.protocol.control.failure_detector import OBSERVED_STEP_MS, STANDBY_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.limits import (
    HEARTBEAT_SEND_MS,
    LONG_SILENT_MS,
    PASSIVE_BEAT_MS,
)
from anabranch.protocol.log.timeline import (
    Answer,
    Clean,
    CopyPeer,
    CutBack,
    FindBatches,
    FindBucket,
    FindCommit,
    FindNewest,
    FindPeerCommit,
    FindPeers,
    FindWhole,
    LowerClaim,
    Remove,
    Step,
    Sync,
    Timeline,
    Write,
    carry_out,
    timeline_name,
)
from anabranch.protocol.stage.recovery import HaMode
from anabranch.protocol.stage.standby import (
    ENDED,
    LEADING,
    MOVED_BEHIND_MS,
    MOVED_REST_BYTES,
    NO_PROGRESS,
    PRIMARY_SETTLED_MS,
    PRIMARY_SILENT_MS,
    STANDBY_TURN_MS,
    UNCOPIED_MS,
    YIELD_MS_MAX,
    CopySource,
    Held,
    StandbyProcess,
    StandbyWatch,
    copy_name,
    copy_steps,
    is_cut_off,
    must_yield,
    to_copy,
    yields_for,
)

PRIMARY = Heartbeat("processing", "tolls", "0", 7, "running", 3, 0)
_STEP_MS = 100


class Standby:
    """A watch and its clock. Its own heartbeats come back, one at each step. The primary began
    long ago.
    """

    def __init__(self, process: str = "1", bucket: int = 5, epoch: int | None = 7) -> None:
        self.watch = StandbyWatch(StandbyProcess("tolls", process), "0", ["0", "1", "2"])
        self.now_ms = 1_000_000
        self.bucket = bucket
        self.own = standby(process, bucket)
        self.watch.log_seen(epoch, self.now_ms)
        self.now_ms += PRIMARY_SETTLED_MS
        self.watch.receive(self.own, self.now_ms)

    def step(self, *others: Heartbeat, ms: int = _STEP_MS) -> None:
        """Time passes, and ``others`` are heard."""
        self.now_ms += ms
        for beat in (self.own, *others):
            self.watch.receive(beat, self.now_ms)

    def due(self) -> bool:
        return self.watch.due(self.now_ms, self.bucket)

    def due_after(self, *others: Heartbeat, limit_ms: int = 60_000) -> int:
        """Return the time from now until its turn; ``others`` are heard all the while."""
        begun_ms = self.now_ms
        while not self.due():
            self.step(*others)
            assert self.now_ms - begun_ms < limit_ms, "never"
        return self.now_ms - begun_ms


def standby(process: str, bucket: int = 5) -> Heartbeat:
    return Heartbeat(
        STANDBY_SERVICE, "tolls", process, -1, "standby", 3, 0, checkpoint_bucket=bucket
    )


def test_sb1_it_waits_for_the_silence_of_the_primary() -> None:
    made = Standby()
    for _ in range(200):
        made.step(PRIMARY)
        assert not made.due()
    assert made.due_after() == PRIMARY_SILENT_MS


def test_sb1_a_new_epoch_is_a_sign_of_life() -> None:
    made = Standby()
    made.step(ms=700)
    made.watch.log_seen(7, made.now_ms)
    assert made.watch.silent_ms == 700, "it is known"
    made.step(ms=700)
    made.watch.log_seen(9, made.now_ms)
    assert made.due_after() == LONG_SILENT_MS, "it has just begun"


def test_sb1_who_closes_buckets_is_alive() -> None:
    """Its heartbeats may not come: the leader of their topic is another broker than the log's."""
    made = Standby()
    for closed in range(1, 100):
        made.step(ms=PRIMARY_SILENT_MS // 2)
        made.watch.log_seen(7, made.now_ms, closed=closed)
        assert not made.due()
    made.watch.log_seen(7, made.now_ms, closed=closed)
    assert made.due_after() == PRIMARY_SILENT_MS


def test_sb3_nothing_is_judged_while_the_broker_is_away() -> None:
    """A silence that was counted before is long enough as soon as the primary has settled."""
    made = Standby()
    made.watch.log_seen(9, made.now_ms)
    for _ in range(2 * PRIMARY_SILENT_MS // _STEP_MS):
        made.step()
    made.now_ms += PRIMARY_SETTLED_MS
    assert made.watch.silent_ms > PRIMARY_SILENT_MS
    assert not made.due(), "nothing comes back"
    made.step()
    assert not made.due()
    assert made.due_after() > PRIMARY_SILENT_MS


def test_sb3_a_primary_that_has_just_begun_is_waited_for_longer() -> None:
    made = Standby()
    made.watch.log_seen(9, made.now_ms)
    made.step(replace(PRIMARY, epoch=9), ms=PRIMARY_SETTLED_MS - LONG_SILENT_MS - 1)
    assert made.due_after() == LONG_SILENT_MS
    made.watch.log_seen(11, made.now_ms)
    for _ in range(PRIMARY_SETTLED_MS // _STEP_MS):
        made.step(replace(PRIMARY, epoch=11))
    assert made.due_after() == PRIMARY_SILENT_MS


def test_sb1_who_says_that_it_has_ended_is_not_waited_for() -> None:
    ended = replace(PRIMARY, state=ENDED)
    made = Standby("1")
    made.watch.receive(standby("0"), made.now_ms)
    made.watch.receive(ended, made.now_ms)
    assert made.due_after(standby("0")) == STANDBY_TURN_MS, "turns are kept"
    for epoch, wait_ms in ((7, 0), (9, LONG_SILENT_MS)):
        again = Standby()
        again.watch.receive(ended, again.now_ms)
        again.watch.log_seen(epoch, again.now_ms)
        assert again.due_after() == wait_ms
    alive = Standby()
    alive.watch.receive(ended, alive.now_ms)
    alive.watch.receive(PRIMARY, alive.now_ms)
    assert alive.due_after() == PRIMARY_SILENT_MS, "it was not the last word"


def test_where_no_epoch_began_there_is_nobody_to_wait_for() -> None:
    assert Standby(epoch=None).due_after() == 0


def test_before_the_log_was_read_nobody_becomes_the_primary() -> None:
    watch = StandbyWatch(StandbyProcess("tolls", "0"), "0", ["0", "1"])
    assert not watch.due(0, 0)


def test_the_last_heartbeat_is_that_of_the_primary_alone() -> None:
    stage = Standby()
    stage.step(standby("2"))
    assert stage.watch.last_beat is None
    stage.step(PRIMARY)
    assert stage.watch.last_beat == PRIMARY


@pytest.mark.parametrize(
    "other",
    [
        {"epoch": 6},
        {"service": "delivery"},
        {"name": "totals"},
        {"service": STANDBY_SERVICE},
        {"service": STANDBY_SERVICE, "replica": "9"},
    ],
)
def test_sb2_others_are_no_sign_of_life(other: dict[str, str]) -> None:
    beat = replace(PRIMARY, **{"replica": "1", **other})  # type: ignore[arg-type]
    assert Standby("1").due_after(beat) == PRIMARY_SILENT_MS


def test_sb3_a_pause_of_its_own_is_no_silence_of_others() -> None:
    made = Standby()
    made.step(PRIMARY)
    made.step(ms=600_000)
    assert not made.due()
    assert made.due_after() == HEARTBEAT_SEND_MS + PRIMARY_SILENT_MS


def test_sb3_where_the_broker_is_away_nobody_is_silent() -> None:
    """Its polls bring nothing, and time goes on."""
    made = Standby()
    made.step(PRIMARY)
    for _ in range(10 * PRIMARY_SILENT_MS // _STEP_MS):
        made.now_ms += _STEP_MS
        assert not made.due()
    made.step()
    assert not made.due(), "the primary was as far away as this one"
    for _ in range((HEARTBEAT_SEND_MS + PRIMARY_SILENT_MS) // _STEP_MS - 1):
        made.step()
        assert not made.due(), "the primary tries again a little later"
    made.step(PRIMARY)
    assert made.due_after() == PRIMARY_SILENT_MS


def test_sb3_an_outage_that_its_own_heartbeats_do_not_show_is_shorter_than_the_limit() -> None:
    assert OBSERVED_STEP_MS + 2 * PASSIVE_BEAT_MS <= PRIMARY_SILENT_MS


def test_sb4_turns() -> None:
    assert Standby("0").due_after(standby("1"), standby("2")) == PRIMARY_SILENT_MS
    assert Standby("1").due_after(standby("0"), standby("2")) == PRIMARY_SILENT_MS + STANDBY_TURN_MS
    assert (
        Standby("2").due_after(standby("0"), standby("1"))
        == PRIMARY_SILENT_MS + 2 * STANDBY_TURN_MS
    )
    assert Standby("1").due_after(standby("0", 0), standby("2")) == PRIMARY_SILENT_MS, (
        "who has none lets it go first"
    )
    assert (
        Standby("0", 0).due_after(standby("1"), standby("2", 0))
        == PRIMARY_SILENT_MS + STANDBY_TURN_MS
    )


def test_sb4_who_led_has_no_turn() -> None:
    led = replace(standby("0"), state=LEADING)
    made = Standby("1")
    made.watch.receive(led, made.now_ms)
    assert made.due_after(led) == PRIMARY_SILENT_MS
    assert Standby("2").due_after(led, standby("1")) == PRIMARY_SILENT_MS + STANDBY_TURN_MS


def test_sb4_the_dead_have_no_turn() -> None:
    made = Standby("2")
    made.watch.receive(standby("1"), made.now_ms)
    waited_ms = made.due_after(standby("0"))
    assert waited_ms == PRIMARY_SILENT_MS + STANDBY_TURN_MS, "1 was not heard again"


NEAR = MOVED_BEHIND_MS // 100
"""Buckets of 100 ms."""


def come(runs_on: str = "there", epoch: int | None = 7, closed: int = 1_000) -> StandbyWatch:
    """Return the watch of a process that was moved to the node ``here``; the newest epoch began on
    ``runs_on``.
    """
    watch = StandbyWatch(StandbyProcess("tolls", "1", "here"), "1", ["1"], 100)
    watch.log_seen(epoch, 0, runs_on, closed)
    return watch


def heard(watch: StandbyWatch, now_ms: int) -> None:
    watch.receive(replace(PRIMARY, replica="1"), now_ms)


def test_sb8_one_that_was_moved_replaces_who_is_heard_once_it_is_up_to_date() -> None:
    closed = 1_000
    watch = come(closed=closed)
    assert watch.must_wait
    for now_ms in range(0, 60_000, _STEP_MS):
        heard(watch, now_ms)
        assert not watch.due(now_ms, closed - NEAR - 1)
    assert watch.due(now_ms, closed - NEAR)
    assert come(closed=0).due(0, 0), (
        "nothing is closed yet: it is at the beginning as the other one is"
    )


def test_sb8_it_waits_for_a_copy_of_what_the_input_is_trimmed_below() -> None:
    """Trimming has followed a stored checkpoint that it does not have yet."""
    watch = come(closed=1_000)
    watch.receive(replace(PRIMARY, replica="1", checkpoint_bucket=990), 0)
    assert not watch.due(0, 989)
    assert watch.due(0, 990)


def test_sb8_it_waits_for_a_small_rest_in_bytes() -> None:
    watch = come(closed=1_000)
    heard(watch, 0)
    assert not watch.due(0, 1_000, MOVED_REST_BYTES + 1)
    assert watch.due(0, 1_000, MOVED_REST_BYTES)


def test_sb8_while_it_rehearses_it_replaces_nobody_who_is_heard() -> None:
    watch = come()
    heard(watch, 0)
    for now_ms in range(0, LONG_SILENT_MS + _STEP_MS, _STEP_MS):
        watch.receive(standby("1"), now_ms)
        assert watch.is_near(1_000)
        assert watch.due(now_ms, 1_000, is_delayed=True) == (now_ms >= LONG_SILENT_MS)
    assert come().due(0, 1_000), "it has rehearsed"
    assert come("here").due(0, 1_000, is_delayed=True), "it runs here"


def test_rh4_where_nobody_was_heard_nothing_waits_for_a_rehearsal() -> None:
    """The node of the replica was lost, and the manager has moved it here."""
    watch = come()
    watch.receive(standby("1"), 0)
    assert watch.due(0, 1_000, is_delayed=True)


def test_sb8_only_a_checkpoint_of_a_moved_replica_whose_log_was_read_is_near() -> None:
    unread = StandbyWatch(StandbyProcess("tolls", "1", "here"), "1", ["1"], 100)
    assert not unread.is_near(1_000)
    passive = StandbyWatch(StandbyProcess("tolls", "1"), "0", ["0", "1"], 100)
    passive.log_seen(7, 0, "there", 1_000)
    assert not passive.is_near(1_000)
    assert not come().is_near(1_000 - NEAR - 1)


def test_sb8_what_it_cannot_reach_it_waits_for_until_there_is_silence() -> None:
    watch = come()
    for now_ms in range(0, LONG_SILENT_MS + _STEP_MS, _STEP_MS):
        watch.receive(standby("1"), now_ms)
        assert watch.due(now_ms, 0) == (now_ms >= LONG_SILENT_MS)


def test_sb8_where_it_runs_here_or_nowhere_it_begins_at_once() -> None:
    for watch in (come("here"), come("", None), come("")):
        assert not watch.must_wait
        assert watch.due(0, 0)
    unread = StandbyWatch(StandbyProcess("tolls", "1", "here"), "1", ["1"], 100)
    assert not unread.due(0, 0)


def test_sb8_what_makes_its_state_anew_from_its_input_needs_nobodys_checkpoint() -> None:
    watch = StandbyWatch(
        StandbyProcess("tolls", "1", "here"), "1", ["1"], 100, begins_from_input=True
    )
    assert not watch.due(0, 0), "the log was not read yet"
    watch.log_seen(7, 0, "there", 1_000)
    heard(watch, 0)
    assert watch.due(0, 0)
    passive = StandbyWatch(StandbyProcess("tolls", "1"), "0", ["0", "1"], begins_from_input=True)
    passive.log_seen(7, 0, "there", 1_000)
    assert not passive.due(0, 0), "it was not moved: it waits for silence"


@pytest.mark.parametrize(
    ("runs_on", "has_written", "waits"),
    [
        ("here", True, True),
        ("here", False, True),
        ("there", False, True),
        ("there", True, False),
        ("", False, False),
    ],
)
def test_sb9_a_node_yields_until_another_one_has_written(
    runs_on: str, has_written: bool, waits: bool
) -> None:
    def way(waited_ms: int) -> bool:
        return must_yield("here", runs_on, has_written=has_written, waited_ms=waited_ms)

    assert way(0) == waits
    assert way(YIELD_MS_MAX - 1) == waits
    assert not way(YIELD_MS_MAX)


def test_sb9_a_node_yields_only_if_each_of_its_stages_has_another_process() -> None:
    standby: tuple[str, HaMode, int] = "s", "passive", 2
    active: tuple[str, HaMode, int] = "a", "active", 2
    alone: tuple[str, HaMode, int] = "one", "active", 1
    assert yields_for([standby, active], restarts=1) == ["s"]
    assert yields_for([standby, active], restarts=0) == [], "no standby has reason to begin"
    assert yields_for([active], restarts=1) == []
    assert yields_for([standby, alone], restarts=1) == [], "its results wait for this node"


def test_sb10_one_that_is_behind_and_copies_nothing_says_so_after_a_while() -> None:
    watch = StandbyWatch(StandbyProcess("tolls", "1"), "0", ["0", "1"])
    assert not watch.is_uncopied(5_000, 0), "no log was read"
    watch.log_seen(7, 5_000, closed=30)
    assert not watch.is_uncopied(4_999 + UNCOPIED_MS, 0)
    assert watch.is_uncopied(5_000 + UNCOPIED_MS, 0)
    assert not watch.is_uncopied(6_000 + UNCOPIED_MS, 20), "it has copied"
    assert watch.is_uncopied(6_000 + 2 * UNCOPIED_MS, 20)
    assert not watch.is_uncopied(7_000 + 2 * UNCOPIED_MS, 30)
    assert not watch.is_uncopied(7_000 + 9 * UNCOPIED_MS, 30), "the primary closes nothing"
    watch.log_seen(7, 7_000 + 9 * UNCOPIED_MS, closed=31)
    assert not watch.is_uncopied(6_999 + 10 * UNCOPIED_MS, 30)
    assert watch.is_uncopied(7_000 + 10 * UNCOPIED_MS, 30)


def checkpoint(process: str, epoch: int, commit: int) -> CopySource:
    return CopySource(process, Timeline.fresh(epoch), commit, max(0, 10 * commit))


def test_sb5_the_furthest_is_copied_and_only_if_it_is_further() -> None:
    one = checkpoint("0", 5, 9)
    two = checkpoint("1", 5, 12)
    three = checkpoint("2", 7, 3)
    assert to_copy(NO_PROGRESS, [], 0) is None
    assert to_copy(NO_PROGRESS, [checkpoint("0", 5, -1)], 0) is None, "it has no batch yet"
    assert to_copy(NO_PROGRESS, [one, two], 0) == two
    assert to_copy(two.reached, [one], 0) is None
    assert to_copy(two.reached, [two], 0) is None
    assert to_copy(two.reached, [one, three], 0) == three, (
        "a newer epoch went on from less, and is the one that counts"
    )
    assert to_copy(two.reached, [one, three], 120) is None, "and is no copy until it has caught up"
    assert to_copy(two.reached, [replace(three, bucket=120)], 120) == replace(three, bucket=120)
    assert to_copy(one.reached, [two, three], 90) is None, "nor is any that it has left behind"
    assert to_copy(checkpoint("1", 9, -1).reached, [one], 0) == one


TOKEN = "0123456789abcdef"


def test_sb6_names_of_copies() -> None:
    assert copy_name(timeline_name(5, 3), None, TOKEN) == timeline_name(5, 0, TOKEN)
    assert copy_name(timeline_name(5, 3), timeline_name(4, 9), TOKEN) == timeline_name(5, 0, TOKEN)
    assert copy_name(timeline_name(5, 3), timeline_name(5, 8), TOKEN) == timeline_name(5, 9, TOKEN)
    assert copy_name(timeline_name(5, 3), timeline_name(5, 8, "f" * 16), TOKEN) == timeline_name(
        5, 9, TOKEN
    )
    assert CopySource("0", replace(Timeline.fresh(1), name="?"), 3, 30).reached == (0, 3)
    assert copy_name("?", None, TOKEN) == timeline_name(0, 0, TOKEN)


class Disks:
    """Answers to the steps of a copy, and the steps that change something."""

    def __init__(
        self, own: tuple[Timeline, int] | None, theirs: tuple[Timeline, int] | None
    ) -> None:
        self.own = own
        self.theirs = theirs
        self.is_readable = True
        self.whole = theirs[1] if theirs else None
        self.after: tuple[tuple[str, Timeline], ...] | None = None
        self.changes: list[Step] = []
        self.batches_sought: tuple[int, ...] = ()
        self.is_acknowledged = True

    def copy(self, claimed: int = 0, *, takes_over: bool = False) -> Held | None:
        return carry_out(copy_steps(TOKEN, claimed, takes_over=takes_over), self.answer)

    def answer(self, step: Step) -> Answer:
        match step:
            case FindNewest():
                return self.own[0] if self.own else None
            case FindPeers():
                theirs = (("0", self.theirs[0]),) if self.theirs else ()
                return theirs if self.after is None or not self.changes else self.after
            case FindCommit():
                return self.own[1] if self.own else -1
            case FindPeerCommit():
                commit = self.theirs[1] if self.theirs else -1
                return commit, max(0, 10 * commit)
            case FindBatches():
                return tuple(range(self.theirs[1], -1, -1)) if self.theirs else (-1,)
            case FindWhole(_, batches):
                self.batches_sought = batches
                return self.whole
            case FindBucket(_, batch):
                return 10 * batch
        self.changes.append(step)
        return self.is_acknowledged if isinstance(step, LowerClaim) else self.is_readable


THEIRS = Timeline(timeline_name(5, 0), 3, BatchId("l", 3), floor=2)
OWN = THEIRS.copied(timeline_name(5, 4, "f" * 16), 3)


def test_sb7_a_copy_gets_its_timeline_file_when_it_is_whole() -> None:
    disks = Disks((OWN, 3), (THEIRS, 7))
    name = timeline_name(5, 5, TOKEN)
    copied = THEIRS.copied(name, 7)
    assert disks.copy(claimed=70) == Held(copied, 7, 70)
    assert disks.batches_sought == (7, 6, 5, 4, 3, 2), "of older batches the record is not known"
    assert disks.changes == [
        CopyPeer("0", THEIRS.name, name),
        CutBack(name, 7, keep_plan=False),
        Sync(name),
        Write(copied),
        Clean(5, 5),
    ]
    first = THEIRS.copied(timeline_name(5, 0, TOKEN), 7)
    assert Disks(None, (THEIRS, 7)).copy() == Held(first, 7, 70)


def test_sb5_nothing_is_copied_that_holds_less_than_is_claimed() -> None:
    """The primary of a later epoch went on from an older checkpoint."""
    disks = Disks((OWN, 9), (Timeline.fresh(6), 7))
    name = timeline_name(6, 0, TOKEN)
    copy = CopyPeer("0", Timeline.fresh(6).name, name)
    assert disks.copy(claimed=90) is None
    assert disks.changes == [], "not even read, every few seconds until it has caught up"
    disks.theirs, disks.whole = (Timeline.fresh(6), 9), 8
    assert disks.copy(claimed=90) is None
    assert disks.changes == [copy, Remove(name)], "its last batch was not copied whole"
    disks.whole = 9
    caught_up = Held(Timeline.fresh(6).copied(name, 9), 9, 90)
    assert disks.copy(claimed=90) == caught_up


@pytest.mark.parametrize("is_acknowledged", [False, True])
def test_sb5_who_takes_over_lowers_its_claim_before_it_has_less(is_acknowledged: bool) -> None:
    disks = Disks((OWN, 9), (Timeline.fresh(6), 7))
    name = timeline_name(6, 0, TOKEN)
    copy = CopyPeer("0", Timeline.fresh(6).name, name)
    disks.is_acknowledged = is_acknowledged
    copied = disks.copy(claimed=90, takes_over=True)
    assert disks.changes[:2] == [copy, LowerClaim(70)]
    if is_acknowledged:
        older = Timeline.fresh(6).copied(name, 7)
        assert copied == Held(older, 7, 70)
        assert disks.changes[-2] == Write(older)
    else:
        assert copied is None
        assert disks.changes[2:] == [Remove(name)]


def test_sb5_nothing_is_copied_that_is_no_further() -> None:
    for disks in (Disks((OWN, 3), None), Disks((OWN, 3), (THEIRS, 3)), Disks(None, (THEIRS, -1))):
        assert disks.copy() is None
        assert disks.changes == []


@pytest.mark.parametrize(
    "why", ["not readable", "not whole", "no further", "gone", "another by now"]
)
def test_sb7_what_is_not_good_is_no_checkpoint(why: str) -> None:
    disks = Disks((OWN, 3), (THEIRS, 7))
    name = timeline_name(5, 5, TOKEN)
    disks.is_readable = why != "not readable"
    disks.whole = {"not whole": None, "no further": 3}.get(why, 7)
    disks.after = {
        "gone": (),
        "another by now": (("0", THEIRS.forked(timeline_name(5, 1), 7)),),
    }.get(why)
    assert disks.copy() is None
    assert disks.changes == [
        CopyPeer("0", THEIRS.name, name),
        *([Remove(name)] if disks.is_readable else []),
    ]


FORKED = BatchId(THEIRS.name, 7)
"""A record of the primary from which the copy was made."""
COPIED = Held(THEIRS.copied(timeline_name(5, 0, TOKEN), 7), 7, 70)
LATER = BatchId(timeline_name(6, 0), 7)
"""The first record of a later primary."""


def test_sb11_a_checkpoint_is_claimed_until_a_later_primary_goes_on_from_an_older_one() -> None:
    assert not is_cut_off(COPIED, None, ()), "nothing was read of the log"
    assert not is_cut_off(COPIED, FORKED, {FORKED})
    assert not is_cut_off(COPIED, LATER, {FORKED, LATER}), "it goes on from this one"
    assert is_cut_off(COPIED, LATER, {BatchId(THEIRS.name, 6), LATER})
    base = Timeline.from_peer(timeline_name(6, 0, TOKEN), 4, 40)
    assert not is_cut_off(Held(base, 4, 40), LATER, ()), "its base record is appended again"


def test_sb11_a_copy_that_is_ahead_of_what_was_read_of_the_log_is_claimed() -> None:
    before = BatchId(THEIRS.name, 6)
    assert not is_cut_off(COPIED, before, {before})
    much_later = BatchId(THEIRS.name, 8)
    assert is_cut_off(COPIED, much_later, {much_later}), "the log has forgotten its record"


def test_sb11_a_batch_whose_record_is_not_known_is_not_claimed() -> None:
    held = Held(replace(COPIED.timeline, floor=5, earlier=()), 6, 60)
    assert is_cut_off(held, BatchId(THEIRS.name, 3), ())


def test_sb12_what_its_own_process_began_is_claimed_until_another_one_has_written() -> None:
    held = Held(THEIRS, 7, 70)
    assert not is_cut_off(held, FORKED, {FORKED})
    assert is_cut_off(held, LATER, {FORKED, LATER}), "though the log goes on from it"
    assert not is_cut_off(COPIED, LATER, {FORKED, LATER}), "nobody else replaces a copy"
