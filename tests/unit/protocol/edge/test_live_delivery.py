"""Transcripts of the live topic: what the boundary log has, and the transaction that follows."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from anabranch.protocol.edge import live_delivery as module
from anabranch.protocol.edge.live_delivery import (
    REC_DONE_WAIT_MS,
    TABLE,
    Available,
    Failure,
    LiveAction,
    LiveDelivery,
    LiveProgress,
    LiveRun,
    branching,
    decide,
    fitting_bytes,
    live_begins_after,
    resumed,
)
from anabranch.protocol.errors import ConfigurationError, LocalProtocolError
from anabranch.protocol.log.records import BranchEnded, LogEntry
from harness import boundary_logs
from harness.boundary_logs import started, state_after

BEGIN = LiveProgress("out", 2, sequence=0, stable=0)


def test_ld8_a_run_says_whether_it_begins_a_failure() -> None:
    log, machine = Log(), LiveDelivery(BEGIN)
    log.upto = 1
    begins = []
    for tentative, upto in ((0, 1), (3, 1), (4, 1), (4, 4), (6, 4)):
        log.tentative, log.upto = tentative, upto
        run = machine.plan(log.available(machine.progress))
        assert run is not None
        begins.append(run.begins_failure)
        machine.advance(run)
    assert begins == [False, True, False, False, True], "only the first tentative bucket of each"


class Log:
    """A boundary log in a few words: buckets have ``rows`` records each unless they are
    ``empty``.
    """

    def __init__(self, *, rows: int = 2, empty: tuple[int, ...] = ()) -> None:
        self.upto = 0
        self.tentative = 0
        self.rows = rows
        self.empty = empty
        self.settled = True
        self.now_ms = 0

    def available(self, now: LiveProgress) -> Available:
        floor = max(self.upto, now.stable)
        return Available(
            self.upto,
            iter(self.sizes(now.stable + 1, self.upto)),
            self.tentative,
            iter(self.sizes(max(floor, now.shown) + 1, self.tentative)),
            reversed(self.sizes(floor + 1, now.shown)),
            self.settled,
            self.now_ms,
        )

    def sizes(self, first: int, last: int) -> list[tuple[int, int]]:
        return [
            (bucket, self.rows) for bucket in range(first, last + 1) if bucket not in self.empty
        ]


def text(run: LiveRun | None) -> str:
    """Return a transaction as a line."""
    if run is None:
        return "-"
    words = [f"undo {run.before.last}"] if run.undo else []
    words += [f"+{bucket}" for bucket in run.stable]
    words += [f"~{bucket}" for bucket in run.again]
    words += [f"?{bucket}" for bucket in run.tentative]
    words += ["done"] if run.rec_done else []
    return " ".join([*words, f"| {run.after.stable}/{run.after.shown}"])


def play(steps: list[tuple[str, str]], log: Log, progress: LiveProgress = BEGIN) -> LiveProgress:
    """Each step: what happens in the log, then the transactions that follow.

    "s5": stable up to 5; "t7": tentative up to 7; "corrects": a branch runs; "settled": none does;
    "wait": for as long as the end of a failure waits, but for 1 ms; "1ms": that passes.
    """
    machine = LiveDelivery(progress)
    for number, (event, expected) in enumerate(steps):
        for word in event.split():
            if word in ("corrects", "settled"):
                log.settled = word == "settled"
            elif word in ("wait", "1ms"):
                log.now_ms += 1 if word == "1ms" else REC_DONE_WAIT_MS - 1
            elif word[0] == "s":
                log.upto = int(word[1:])
            else:
                log.tentative = int(word[1:])
        found = []
        for _ in range(20):
            run = machine.plan(log.available(machine.progress))
            if run is None:
                break
            found.append(text(run))
            machine.advance(run)
        assert found == [line.strip() for line in expected.splitlines() if line.strip()], (
            f"step {number}: {event}"
        )
    return machine.progress


TRANSCRIPTS = {
    "no failure": [("s3", "+1 +2 +3 | 3/0"), ("s3", ""), ("s4", "+4 | 4/0")],
    "empty buckets move the boundary": [("s8", "+1 +2 +3 | 8/0"), ("s9", "| 9/0")],
    "one failure": [
        ("s2", "+1 +2 | 2/0"),
        ("t3", "?3 | 2/3"),
        ("t5", "?4 ?5 | 2/5"),
        ("s3", "undo 2.1 +3 ~4 ~5 | 3/5"),
        ("s4", "+4 | 4/5"),
        ("s5", "+5 done | 5/0"),
        ("s6", "+6 | 6/0"),
    ],
    "corrected at once, and beyond": [
        ("s1 t3", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s5", "undo 1.1 +2 +3 +4 +5 done | 5/0"),
    ],
    "tentative from the very beginning": [
        ("t2", "?1 ?2 | 0/2"),
        ("s2", "undo None +1 +2 done | 2/0"),
    ],
    "new tentative buckets go on while corrections come": [
        ("s1 t3", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s2 t4", "undo 1.1 +2 ~3 ?4 | 2/4"),
        ("s4 t5", "+3 +4 ?5 | 4/5"),
        ("s5", "+5 done | 5/0"),
    ],
    "a second failure while correcting has no undo of its own": [
        ("s1 t3", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s2", "undo 1.1 +2 ~3 | 2/3"),
        ("t6", "?4 ?5 ?6 | 2/6"),
        ("s3", "+3 | 3/6"),
        ("s6", "+4 +5 +6 done | 6/0"),
        ("t7", "?7 | 6/7"),
        ("s7", "undo 6.1 +7 done | 7/0"),
    ],
    "the failure lasts until the stage has settled": [
        ("s1 t3 corrects", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s3", "undo 1.1 +2 +3 | 3/3"),
        ("t5", "?4 ?5 | 3/5"),
        ("s6", "+4 +5 +6 | 6/5"),
        ("settled", "done | 6/0"),
        ("s7", "+7 | 7/0"),
    ],
    "a branch that never ends does not hold the end up for ever": [
        ("s1 t3 corrects", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("wait 1ms", ""),
        ("s3", "undo 1.1 +2 +3 | 3/3"),
        ("wait", ""),
        ("s4 t5", "+4 ?5 | 4/5"),
        ("1ms", ""),
        ("s5", "+5 | 5/5"),
        ("wait", ""),
        ("1ms", "done | 5/0"),
        ("wait 1ms s6", "+6 | 6/0"),
    ],
    "stable buckets that keep coming do not make the wait for a branch longer": [
        ("s1 t3 corrects", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s3", "undo 1.1 +2 +3 | 3/3"),
        ("wait s4", "+4 | 4/3"),
        ("1ms s5", "+5 done | 5/0"),
    ],
    "settled before the last correction is delivered": [
        ("s1 t3 corrects", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s2 settled", "undo 1.1 +2 ~3 | 2/3"),
        ("s3", "+3 done | 3/0"),
    ],
    "settled, and something new is tentative already": [
        ("s1 t3 corrects", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s3", "undo 1.1 +2 +3 | 3/3"),
        ("t4 settled", "?4 | 3/4"),
        ("s4", "+4 done | 4/0"),
    ],
    "what is tentative and already stable is not shown": [
        ("s1 t3", "+1 | 1/0\n?2 ?3 | 1/3"),
        ("s5 t6", "undo 1.1 +2 +3 +4 +5 ?6 | 5/6"),
    ],
    "an older stable bucket waits for nothing tentative": [("s4 t2", "+1 +2 +3 +4 | 4/0")],
}


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_transcript(name: str) -> None:
    play(TRANSCRIPTS[name], Log(empty=(5, 6, 7, 8, 9, 4) if "empty" in name else ()))


def test_an_empty_tentative_bucket_is_shown_and_corrected() -> None:
    play([("s1 t2", "+1 | 1/0\n| 1/2"), ("s2", "undo 1.1 done | 2/0")], Log(empty=(2,)))


def test_transactions_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LIVE_ROWS_MAX", 5)
    play([("s5", "+1 +2 | 2/0\n+3 +4 | 4/0\n+5 | 5/0"), ("t9", "?6 ?7 | 5/7\n?8 ?9 | 5/9")], Log())
    play([("s2", "+1 | 1/0\n+2 | 2/0"), ("t4", "?3 | 2/3\n?4 | 2/4")], Log(rows=9))


def test_transactions_are_bounded_in_buckets_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DELIVERY_BUCKETS_MAX", 2)
    play([("s3", "+1 +2 | 2/0\n+3 | 3/0"), ("t6", "?4 ?5 | 3/5\n?6 | 3/6")], Log())


def test_what_an_undo_voids_comes_with_it_whatever_the_bound(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LIVE_ROWS_MAX", 3)
    monkeypatch.setattr(module, "DELIVERY_BUCKETS_MAX", 1)
    play(
        [
            ("s1", "+1 | 1/0"),
            ("t5", "?2 | 1/2\n?3 | 1/3\n?4 | 1/4\n?5 | 1/5"),
            ("s4", "undo 1.1 +2 +3 +4 ~5 | 4/5"),
            ("s8 t9", "+5 ?9 | 5/9\n+6 | 6/9\n+7 | 7/9\n+8 | 8/9"),
        ],
        Log(),
    )


def test_rec_done_waits_for_the_backlog_and_tentative_buckets_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LIVE_ROWS_MAX", 4)
    log = Log()
    progress = play([("s1 t3", "+1 | 1/0\n?2 ?3 | 1/3")], log)
    machine = LiveDelivery(progress)
    log.upto = 9
    found = []
    while (run := machine.plan(log.available(machine.progress))) is not None:
        found.append(text(run))
        machine.advance(run)
        if len(found) == 2:
            log.tentative = 10
    assert found == ["undo 1.1 +2 +3 | 3/3", "+4 +5 | 5/3", "+6 +7 ?10 | 7/10", "+8 +9 | 9/10"]


def test_beyond_its_bound_an_undo_keeps_the_newest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "UNDO_ROWS_MAX", 5)
    steps = [
        ("s1 t9", "+1 | 1/0\n?2 ?3 ?4 ?5 ?6 ?7 ?8 ?9 | 1/9"),
        ("s5", "undo 1.1 +2 ~8 ~9 | 2/9\n+3 +4 +5 | 5/9"),
    ]
    play(steps, Log())
    play([steps[0], ("s8", "undo 1.1 +2 ~9 | 2/9\n+3 +4 +5 +6 +7 +8 | 8/9")], Log())


def test_every_situation_has_exactly_one_row() -> None:
    for failure, stable, tentative, corrected in itertools.product(
        Failure, (False, True), (False, True), (False, True)
    ):
        row = decide(failure, stable=stable, tentative=tentative, corrected=corrected)
        others = [
            r
            for r in TABLE
            if r.failure in (None, failure)
            and r.stable in (None, stable)
            and r.tentative in (None, tentative)
            and r.corrected in (None, corrected)
        ]
        assert others == [row]
    assert {row.action for row in TABLE} == set(LiveAction)


def test_a_boundary_log_behind_the_progress_says_nothing() -> None:
    machine = LiveDelivery(replace(BEGIN, stable=7))
    assert machine.plan(Available(5, (), 6, ((6, 1),))) is None


def test_only_the_planned_transaction_advances() -> None:
    machine = LiveDelivery(BEGIN)
    run = machine.plan(Available(1, ((1, 3),)))
    assert run is not None
    machine.advance(run)
    with pytest.raises(
        LocalProtocolError, match="live transaction 1 of output out is not the next one"
    ):
        machine.advance(run)


def test_the_number_of_partitions_is_pinned() -> None:
    assert resumed(BEGIN, 2) is BEGIN
    with pytest.raises(ConfigurationError, match="has 3 partitions, delivery began with 2"):
        resumed(BEGIN, 3)


@pytest.mark.parametrize(
    ("more", "silent", "settled"),
    [
        ((), (), False),
        ((), ("0",), False),
        ((), ("0", "1"), True),
        ((BranchEnded("0", 0, 1),), (), False),
        ((BranchEnded("0", 0, 1),), ("1",), True),
        ((BranchEnded("0", 0, 1), started("1")), (), True),
    ],
)
def test_ld5_a_stage_has_settled_when_no_branch_runs_of_a_replica_that_lives(
    more: tuple[LogEntry, ...], silent: tuple[str, ...], settled: bool
) -> None:
    branches = (
        boundary_logs.tentative(0, 0, 3, base=1),
        boundary_logs.tentative(1, 0, 3, base=1, replica="1"),
    )
    log_state = state_after(started("0"), started("1"), *branches, *more)
    assert (not branching(log_state, silent)) is settled


@pytest.mark.parametrize(
    ("recorded", "begun", "has_delivered", "after"),
    [
        (0, None, False, 3),
        (6, None, False, 6),
        (6, 4, False, 6),
        (6, 8, False, 8),
        (9, None, True, 9),
        (2, None, True, 3),
        (9, 4, True, 4),
    ],
)
def test_a_live_topic_begins_where_the_corrected_one_is(
    recorded: int, begun: int | None, has_delivered: bool, after: int
) -> None:
    """If nothing is delivered yet, the live topic begins where the corrected one begins by now."""
    assert live_begins_after(recorded, 3, begun, has_delivered=has_delivered) == after


def test_ld9_ever_smaller_records_are_left_out_and_in_the_end_all_are_tried_again() -> None:
    sizes: list[int | None] = [None]
    for _ in range(6):
        sizes.append(fitting_bytes(sizes[-1], 20))
    assert sizes == [None, 20, 10, 5, 2, 1, None]
    assert fitting_bytes(None, 20) == 20
