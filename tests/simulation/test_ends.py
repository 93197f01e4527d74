"""An end is excused by what befell that process shortly before, and by nothing else."""

from __future__ import annotations

from contextlib import closing

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.memory.partition import Record
from anabranch.codec import control_records
from anabranch.codec.catalog import TopicSettings
from anabranch.ports import TopicPartition
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE, STANDBY_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    Fenced,
    OutcomeUnknown,
    Unavailable,
)
from simulation.ends import (
    BEGINS_MS,
    BEHIND_MS,
    HEARD_MS,
    LATE_MS,
    TRANSACTION_TIMED_OUT,
    WINDOW_MS,
    WRITE_LATE,
    Life,
    cause,
    heartbeats_ms,
    is_unheard_half,
)
from simulation.history import Event
from simulation.hurrying import HALF_MS

TRANSACTION_MS, BEGUN_MS, AWAITS_MS = 5_000, 400, 10_000
BLOCKS, LOG = (
    DataMissing("p.s.blocks.0[0] has offsets 5 to 9, not 3"),
    DataMissing("p.s.boundaries[0] has offsets 5 to 9, not 3"),
)


def why(
    error: Exception,
    life: Life,
    *others: Life,
    now_ms: int = 20_000,
    behind_ms: int = BEHIND_MS + 1,
    awaits_ms: int = 0,
) -> str:
    behind = behind_ms if error is LOG else None
    return cause(error, life, others, now_ms, TRANSACTION_MS, behind, awaits_ms)


def struck(what: str, until_ms: int) -> Life:
    life = Life(0)
    life.struck(what, until_ms)
    return life


@pytest.mark.parametrize("error", [Unavailable("x"), OutcomeUnknown("x"), LOG])
def test_who_was_struck_shortly_before_may_end(error: Exception) -> None:
    assert why(error, struck("cut", 20_000 - WINDOW_MS)) == "cut"
    assert not why(error, struck("cut", 20_000 - WINDOW_MS - 1))
    assert not why(error, Life(0)), "nothing befell it"
    assert not why(error, Life(0), struck("cut", 20_000)), "it befell another run"


def test_what_lasts_is_not_forgotten_for_something_shorter() -> None:
    life = struck("pause", 20_000)
    life.struck("pause", 5_000)
    assert why(Unavailable("x"), life) == "pause"


@pytest.mark.parametrize(
    ("other", "is_excused"),
    [
        (Life(0), True),
        (Life(0, 10_000 - LATE_MS), True),
        (Life(0, 10_000 - LATE_MS - 1), False),
        (Life(15_000), True),
    ],
)
def test_only_another_run_fences(other: Life, is_excused: bool) -> None:
    assert bool(why(Fenced("x"), Life(10_000), other)) == is_excused
    assert not why(Fenced("x"), struck("cut", 20_000))


@pytest.mark.parametrize(
    ("written_ms", "ended_ms", "is_excused"),
    [
        (14, 480, True),
        (WINDOW_MS, WINDOW_MS + LATE_MS, True),
        (WINDOW_MS, WINDOW_MS + LATE_MS + 1, False),
        (WINDOW_MS + 1, 2 * WINDOW_MS, False),
    ],
)
def test_a_record_of_its_own_epoch_that_comes_late_fences_who_wrote_it_again(
    written_ms: int, ended_ms: int, is_excused: bool
) -> None:
    life = struck(WRITE_LATE, written_ms)
    assert bool(why(Fenced("x"), life, now_ms=ended_ms)) == is_excused


def test_the_broker_fences_whose_transaction_timed_out_if_something_held_it_up() -> None:
    life = struck(TRANSACTION_TIMED_OUT, 20_000)
    assert not why(Fenced("x"), life)
    assert not why(Unavailable("x"), life)
    life.struck("pause", 20_000 - TRANSACTION_MS)
    assert why(Fenced("x"), life) == TRANSACTION_TIMED_OUT


def test_only_who_is_replaced_meets_missing_blocks_and_only_who_begins_a_trimmed_log() -> None:
    assert why(BLOCKS, Life(0), Life(1))
    assert not why(BLOCKS, Life(2), Life(1)), "the newest run is waited for"
    assert not why(BLOCKS, Life(20_000 - BEGINS_MS))
    assert why(LOG, Life(20_000 - BEGINS_MS))
    assert not why(LOG, Life(20_000 - BEGINS_MS - 1))
    assert why(LOG, Life(0), behind_ms=BEHIND_MS)


def test_a_log_may_be_trimmed_while_its_reader_awaits_a_record_of_its_own() -> None:
    life = struck("write lost", 20_000 - AWAITS_MS - WINDOW_MS)
    assert why(LOG, life, awaits_ms=AWAITS_MS) == "write lost"
    assert not why(LOG, life, awaits_ms=AWAITS_MS - 1)
    assert not why(Unavailable("x"), life, awaits_ms=AWAITS_MS), "what it awaits is not away"
    life = struck("cut", 20_000 - WINDOW_MS - 1)
    assert not why(LOG, life, awaits_ms=AWAITS_MS), "it awaits nothing after that"


def deleted(at_ms: int, count: int, partition: int = 0, topic: str = "p.s.blocks.0") -> Event:
    return Event(at_ms, "broker", "delete", (topic, partition, count))


@pytest.mark.parametrize(
    ("heard_ms", "events", "is_excused"),
    [
        ([950], [deleted(500, 2), deleted(900, 2)], True),
        ([900], [deleted(899 + HEARD_MS, 4)], True),
        ([900], [deleted(900 + HEARD_MS, 4)], False),
        ([900], [deleted(900 + HALF_MS, 4)], False),
        ([900], [deleted(901 + HALF_MS, 4)], True),
        ([], [deleted(BEGUN_MS, 4)], True),
        ([], [deleted(BEGUN_MS - 1, 4)], False),
        ([], [deleted(500, 3)], False),
        ([], [deleted(500, 4, partition=1), deleted(500, 4, topic="p.t.blocks.0")], False),
        ([], [], False),
    ],
)
def test_a_half_may_find_its_input_trimmed_only_while_it_is_not_heard(
    heard_ms: list[int], events: list[Event], *, is_excused: bool
) -> None:
    def is_unheard(error: Exception) -> bool:
        return is_unheard_half(error, BEGUN_MS, heard_ms, events, HALF_MS)

    assert is_unheard(BLOCKS) == is_excused
    assert not is_unheard(LOG)
    assert not is_unheard(Unavailable(str(BLOCKS)))


def test_a_half_is_not_heard_by_what_its_standby_sends() -> None:
    """Its topic has both; the first record is deleted."""
    topic, log = "p.control.processing.s.0.0", LocalEventLog(VirtualClock())
    log.admin().create([TopicSettings(topic, 1)])
    beats = [
        control_records.encode(Heartbeat(service, "s.0", "0", -1, "running", 0, 0))
        for service in (REPLICA_SERVICE, STANDBY_SERVICE, REPLICA_SERVICE)
    ]
    place = TopicPartition(topic, 0)
    with closing(log.writer()) as writer:
        for beat in beats:
            writer.send(place, beat)
        writer.flush()
    log.partition(place).trim(1)
    events = [Event(100 * n, "p", "append", (topic, 0, n, "")) for n in range(3)]
    trimmed = {(topic, 0, 0): Record(beats[0])}
    assert [*heartbeats_ms(topic, events, log, trimmed)] == [0, 200]


def test_other_errors_are_never_excused() -> None:
    assert not why(ConfigurationError("x"), struck("cut", 20_000), Life(0))
