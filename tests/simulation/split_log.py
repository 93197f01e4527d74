"""Independent reading of the log of moves for the checkers: attempts to split shards, and answers.

Nothing here uses ``protocol.stage.splitting``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.codec import control_records
from anabranch.ports import TopicPartition
from anabranch.protocol.control.records import SplitStep, Step
from simulation.committed import is_committed

if TYPE_CHECKING:
    from anabranch.adapters.memory.log import LocalEventLog


@dataclass
class Attempt:
    """Attempt to split a shard."""

    number: int
    wanted_ms: int
    answer: SplitStep | None = None
    answered_ms: int = 0

    @property
    def is_confirmed(self) -> bool:
        """Whether the halves take over."""
        return self.answer is not None and self.answer.step is Step.CONFIRMED


def attempts(steps: Iterable[tuple[int, SplitStep]]) -> list[Attempt]:
    """Return the attempts to split one shard by its steps, each given with the time at which it was
    appended.
    """
    found: list[Attempt] = []
    for at_ms, step in steps:
        last = found[-1] if found else None
        if step.step is Step.WANTED:
            is_open = last is not None and (last.answer is None or last.is_confirmed)
            known = -1 if last is None else last.number
            if not is_open and (not step.reason or step.attempt == known):
                found.append(Attempt(max(known + 1, step.written_ms), at_ms))
        elif last is not None and last.answer is None and step.attempt == last.number:
            last.answer, last.answered_ms = step, at_ms
    return found


def steps(
    log: LocalEventLog, topic: str, shard: str, times: Mapping[int, int] | None = None
) -> Iterator[tuple[int, SplitStep]]:
    """Yield the steps of splits of ``shard`` in the log of moves: time, step. ``times``:
    when each record was appended; None: that does not matter.
    """
    partition, times = log.partition(TopicPartition(topic, 0)), times or {}
    for offset in range(partition.start, partition.end):
        record = partition.at(offset)
        if is_committed(record):
            entry = control_records.decode(record.value)
            if isinstance(entry, SplitStep) and entry.shard == shard:
                yield times.get(offset, 0), entry
