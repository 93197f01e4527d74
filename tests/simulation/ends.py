"""Why a process may end: what befell it shortly before. An end without such a cause is a mistake of
the services.

The simulated ports tell of each fault where it meets a process: a request or an answer that a cut
held up, a write that did not go as it should, a pause. That a newer run of the same service took
over is told by the runs of that service.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.memory.partition import Record
from anabranch.codec import boundary_records, control_records
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import (
    ConfigurationError,
    DataMissing,
    Fenced,
    OutcomeUnknown,
    Outvoted,
    RemoteProtocolError,
    Unavailable,
)
from anabranch.protocol.log.boundary_log import LogState
from simulation.history import Event

WINDOW_MS: Final = 1_000
"""Time after a fault during which it may still be why a process ends, in ms: a few retries, with
their pauses.
"""
LATE_MS: Final = 4_000
"""Time after a run's death during which what it had sent may still fence another, in ms: a write
that arrives late, or a request of a cut-off process.
"""
BEGINS_MS: Final = 2_000
"""Time, in ms, in which a process that has begun reads what it found at its start: a replica that
moves stands by first, and its node starts Spark.
"""
BEHIND_MS: Final = 3_000
"""Boundary logs are so short here in some seeds that who looks at one once in a while may be
overtaken by its trimming.
"""
HEARD_MS: Final = 1_000
"""Time, in ms, in which the manager reads a heartbeat, and no longer deletes what it decided on
before.
"""
TRANSACTION_TIMED_OUT: Final = "its transaction timed out"
WRITE: Final = "write "
"""Begin of the names of faults after which a process may await a record of its own."""
WRITE_LATE: Final = "write late"
INPUT_RECREATED: Final = "input recreated"
"""A topic that it reads was deleted and created again. However late it finds that out, it may end
because the topic does not have its position.
"""
BLOCKS_LOST: Final = "all blocks lost"
"""The blocks of a stream were lost, and their partitions grew again: who reads at their offsets
finds out by what it finds there.
"""
_BLOCKS_GONE: Final = re.compile(r"(\S+\.blocks\.\S+)\[(\d+)\] has offsets \d+ to \d+, not (\d+)")


@dataclass
class Life:
    """One run of a service."""

    begun_ms: int
    ended_ms: int | None = None
    befell: dict[str, int] = field(default_factory=dict)
    """Faults that befell it, and the end of each."""
    made_wrong_rows: bool = False

    def struck(self, what: str, until_ms: int) -> None:
        """Note that ``what`` befell it, up to now or longer."""
        self.befell[what] = max(until_ms, self.befell.get(what, until_ms))

    def latest(self, now_ms: int, window_ms: int = WINDOW_MS, kind: str = "") -> str:
        """Return the last fault within the window whose name begins with ``kind``; empty if
        none.
        """
        causes = [
            (until_ms, what)
            for what, until_ms in self.befell.items()
            if what != TRANSACTION_TIMED_OUT
            and what.startswith(kind)
            and until_ms >= now_ms - window_ms
        ]
        return max(causes)[1] if causes else ""


def cause(
    error: Exception,
    life: Life,
    others: Iterable[Life],
    now_ms: int,
    transaction_ms: int,
    behind_ms: int | None = None,
    awaits_ms: int = 0,
) -> str:
    """Why a run ends with ``error``; empty: for no reason that there was.

    Args:
        error: What it ended with.
        life: Its own.
        others: Those of the other runs of the same service.
        now_ms: Virtual time.
        transaction_ms: After which the broker aborts a transaction.
        behind_ms: How long ago the record of a boundary log came that it wanted, and that is
            trimmed.
        awaits_ms: Longest wait of a process for its own record, in ms. It reads no other log
            meanwhile.
    """
    others = list(others)
    rivals = [
        other
        for other in others
        if other.ended_ms is None or other.ended_ms + LATE_MS >= life.begun_ms
    ]
    match error:
        case Outvoted():  # it, or who left it its state
            return "outvoted" * any(each.made_wrong_rows for each in (life, *others))
        case Fenced():
            return _overtaken(life, rivals, now_ms, transaction_ms)
        case OutcomeUnknown() | Unavailable():
            return life.latest(now_ms)
        case DataMissing() if behind_ms is not None:
            awaited = life.latest(now_ms, WINDOW_MS + awaits_ms, WRITE)
            if befell := life.latest(now_ms) or awaited:
                return befell
            if now_ms - life.begun_ms <= BEGINS_MS:
                return "it has just begun"
            return "overtaken by trimming" if behind_ms <= BEHIND_MS else ""
        case DataMissing():
            # rule 18: nobody waits for who was replaced
            is_replaced = any(rival.begun_ms >= life.begun_ms for rival in rivals)
            topics = (INPUT_RECREATED, BLOCKS_LOST)
            former = next((what for what in topics if what in life.befell), "")
            return "another run" if is_replaced else former
        case _:
            return ""


def _overtaken(life: Life, rivals: list[Life], now_ms: int, transaction_ms: int) -> str:
    if rivals:
        return "another run"
    late_ms = life.befell.get(WRITE_LATE)
    if late_ms is not None and late_ms <= life.begun_ms + WINDOW_MS and late_ms >= now_ms - LATE_MS:
        return "the record of its own epoch, which it had to write again, came late"
    timed_out = TRANSACTION_TIMED_OUT in life.befell and life.latest(
        now_ms, transaction_ms + WINDOW_MS
    )
    return TRANSACTION_TIMED_OUT if timed_out else ""


def is_of_other_state(error: Exception) -> bool:
    """Whether a process ends since its function cannot go on from the state in its checkpoint."""
    return isinstance(error, ConfigurationError) and "computed by another function" in str(error)


def is_of_earlier_attempt(error: Exception) -> bool:
    """Whether a process of a half ends since its shard is split by a later attempt."""
    return isinstance(error, Unavailable) and any(
        text in str(error) for text in ("is to be split anew", "is split by attempt")
    )


def is_unheard_half(
    error: Exception,
    begun_ms: int,
    heartbeats_ms: Collection[int],
    events: Iterable[Event],
    counts_ms: int,
) -> bool:
    """Return whether a half of a shard ended because blocks were trimmed that it had found at its
    start, while the manager could not know that it runs. Nothing is kept for it then (TM3), and its
    next process begins behind what is gone.

    Args:
        error: Error that ended the half.
        begun_ms: Start of its process.
        heartbeats_ms: Times of the heartbeats of the half, those of earlier attempts among them
            (``heartbeats_ms``).
        events: History of the run.
        counts_ms: Time for which a heartbeat of a half counts, in ms.
    """
    wanted = _BLOCKS_GONE.search(str(error)) if isinstance(error, DataMissing) else None
    if wanted is None:
        return False
    blocks, offset = (wanted[1], int(wanted[2])), int(wanted[3])
    deleted = 0
    for at_ms, _, what, facts in events:
        if what == "delete" and facts[:2] == blocks:
            assert isinstance(facts[2], int)
            deleted += facts[2]
            if deleted > offset:
                is_heard = any(HEARD_MS <= at_ms - each <= counts_ms for each in heartbeats_ms)
                return at_ms >= begun_ms and not is_heard
    return False


def heartbeats_ms(
    topic: str,
    events: Iterable[Event],
    log: LocalEventLog,
    trimmed: Mapping[tuple[str, int, int], Record],
) -> Iterator[int]:
    """Yield the time of each heartbeat of a replica in its control topic ``topic``. What a process
    that stands by for it sends is left out: of a stage that is not passive it holds nothing back.
    ``trimmed``: deleted records, by (topic, partition, offset).
    """
    partition = log.partition(TopicPartition(topic, 0))
    for at_ms, _, what, facts in events:
        if what == "append" and facts[0] == topic:
            offset = int(facts[2] or 0)
            record = trimmed.get((topic, 0, offset)) or partition.at(offset)
            entry = control_records.decode(record.value)
            if isinstance(entry, Heartbeat) and entry.service == REPLICA_SERVICE:
                yield at_ms


def is_superseded(
    error: Exception, key: str, version: int, log: LocalEventLog, pipeline: Pipeline
) -> bool:
    """Whether a process of the stage replica ``key`` that has ``version`` of the function may end
    with ``error`` because a higher one makes the stream by now.
    """
    service, _, name = key.partition("/")
    if service != "processing" or not isinstance(error, ConfigurationError | Fenced):
        return False
    stage = name.split(".")[0]
    log_state = LogState(pipeline.stream_writers(stage))
    partition = log.partition(TopicPartition(pipeline.topic_names.boundaries(stage), 0))
    for offset in range(partition.start, partition.end):
        record = partition.at(offset)
        with contextlib.suppress(RemoteProtocolError):  # nobody's, and read by nobody
            log_state.apply(offset, boundary_records.decode(record.value, record.headers))
    return log_state.version[0] > version
