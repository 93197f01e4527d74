"""Judgement of the split of a shard in a run: what each log of the shard and of its halves must
hold, whether the answers to attempts rest on what the logs held then, and whether they came.

Nothing here uses ``protocol.stage.splitting`` but its constants: logs are read again, and rows are
compared instead of digests.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

from anabranch.codec import control_records
from anabranch.protocol.control.consistency import SPLIT_DIFFERS
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE
from anabranch.protocol.control.records import Alarm, Move, SplitStep
from anabranch.protocol.control.scaling import Cause
from anabranch.protocol.limits import BUCKET_MAX
from anabranch.protocol.stage.splitting import PROVEN_BUCKETS, REACH_BUCKETS
from checkers import streams
from checkers.trimming import Presence, SyncedClaim
from simulation import halves, hurrying, split_log, workload
from simulation.raw_logs import appended_ms, boundary_log, records
from simulation.scenarios import SPLIT
from simulation.workload import Buckets

if TYPE_CHECKING:
    from simulation.options import StageOptions
    from simulation.world import Run

_RESTS_MS: Final = 1_500
"""Time from a confirmation, or from the healing, until all processes of the shard rest and have
said so, in ms.
"""
_UNREAD_MS: Final = 1_500
"""Maximum time, in ms, between what a process of the shard has read and its answer to it, in the
log of moves, where nothing is slow.
"""


def answers(run: Run, of_stages: Mapping[str, Buckets]) -> dict[str, Buckets]:
    """Return ``of_stages`` with the streams of all halves."""
    found = dict(of_stages)
    for stage in run.options.stages:
        for number, half in enumerate(halves.of(stage)):
            own: Buckets = {}
            for stream in stage.reads:
                for bucket, rows in of_stages[stream].items():
                    own[bucket] = [*own.get(bucket, ()), *halves.parts(rows)[number]]
            own = {bucket: rows for bucket, rows in sorted(own.items()) if rows}
            found[half.name] = workload.apply(stage.operator, own, run.options.bucket_ms)
    return found


def unread(
    run: Run, stream: str, reading: streams.Reading, answer: Buckets
) -> set[tuple[str, int]]:
    """Return (writer, bucket) of what nobody reads of the log of a shard or half: the void buckets
    of a half, and what comes after the end of a shard.
    """
    shards = halves.names(run.options)
    found: set[tuple[str, int]] = set()
    if stream in shards:
        if end_of(reading) is not None:
            # Its end closes no bucket of its writer's own.
            for name, writer in reading.writers.items():
                upto = closed_upto(writer)
                found |= {(name, b) for b in {*answer, *writer.closed_parts} if b > upto}
    elif any(stream in those for those in shards.values()):
        for name, writer in reading.writers.items():
            found |= {(name, bucket) for bucket in range(1, void_upto(writer) + 1)}
    return found


def read_together(
    run: Run, complete: Mapping[str, list[tuple[int, int]]]
) -> dict[str, list[tuple[int, int]]]:
    """Return (time, last complete bucket) of each shard that may be split, as those who read it
    find it: after its end that of its halves.
    """
    found = {}
    for shard, those in halves.names(run.options).items():
        ended_ms = next((at_ms for at_ms, upto in complete[shard] if upto == BUCKET_MAX), None)
        found[shard] = [each for each in complete[shard] if each[1] != BUCKET_MAX]
        if ended_ms is not None:
            later = sorted({at_ms for half in those for at_ms, _ in complete[half]} | {ended_ms})
            found[shard] += [
                (at_ms, min(_upto(complete[half], at_ms) for half in those))
                for at_ms in later
                if at_ms >= ended_ms
            ]
    return found


def _upto(complete: list[tuple[int, int]], at_ms: int) -> int:
    return max((upto for when, upto in complete if when <= at_ms), default=0)


def counting(run: Run) -> dict[str, list[Presence]]:
    """Return when each replica of a half counts as a reader, as its heartbeats name it: while its
    split is wanted, and from a confirmation on.
    """
    found = {}
    for stage in run.options.stages:
        spans = []
        for each in attempts_of(run, stage.name):
            begin_ms, end_ms = each.wanted_ms, each.answered_ms or math.inf
            spans.append(Presence(begin_ms, end_ms, begin_ms, hurrying.HALF_MS))
            if each.is_confirmed:
                spans.append(Presence(end_ms, math.inf, begin_ms, hurrying.READER_MS))
        for half in halves.of(stage):
            for number in range(half.replicas):
                found[f"{REPLICA_SERVICE} {half.name}.{number}"] = spans
    return found


def gone_since_ms(run: Run, spoke_ms: Mapping[str, float]) -> dict[str, float]:
    """Return since when each replica of a half, or of a shard that was split, holds nothing back
    any more; infinity: it does at the end. ``spoke_ms``: time of the last heartbeat of each reader:
    a process that was paused sends one after its split was withdrawn.
    """
    found = {
        reader: max(spans[-1].end_ms, spoke_ms.get(reader, 0)) + hurrying.HALF_MS if spans else 0
        for reader, spans in counting(run).items()
    }
    for stage in run.options.stages if run.options.scenario == SPLIT else ():
        ended_ms = [each.answered_ms for each in attempts_of(run, stage.name) if each.is_confirmed]
        for number in range(stage.replicas if ended_ms else 0):
            rests_ms = max(ended_ms[0], run.options.heal_ms) + _RESTS_MS
            found[f"{REPLICA_SERVICE} {stage.name}.{number}"] = rests_ms
    return found


def not_kept(run: Run, claims: Sequence[SyncedClaim]) -> list[str]:
    """Return what a shard that is split if its node is lost let go of its input, though its halves
    would need it: the buckets of the proof, and one horizon before them.
    """
    wrong = []
    for stage in run.options.stages:
        if not (stage.may_split and run.options.recovers_in_parallel):
            continue
        times = appended_ms(run, run.pipeline.topic_names.boundaries(stage.name))
        numbers = [str(number) for number in range(stage.replicas)]
        writers = streams.read(boundary_log(run, stage.name), numbers).writers
        closes = [
            (times.get(offset, 0), record.closed)
            for writer in writers.values()
            for offset, record in writer.accepted
        ]
        own = {f"{REPLICA_SERVICE} {stage.name}.{number}" for number in numbers}
        for claim in claims:
            closed = max((upto for at_ms, upto in closes if at_ms <= claim.at_ms), default=0)
            least = max(0, closed - stage.horizon_buckets - PROVEN_BUCKETS)
            if claim.reader in own and least < claim.bucket < BUCKET_MAX:
                wrong.append(
                    f"{claim.reader} needs no input up to {claim.bucket}, with {closed} closed, and"
                    f" its halves would begin after {least}"
                )
    return wrong[:1]


def not_read(run: Run) -> list[str]:
    """Return the streams that nobody reads to their end: halves that did not take over, and shards
    whose halves did.
    """
    found = []
    for shard, those in halves.names(run.options).items():
        is_split = any(each.is_confirmed for each in attempts_of(run, shard))
        found += [shard] if is_split else those
    return found


def attempts_of(run: Run, shard: str) -> list[split_log.Attempt]:
    """Return the attempts to split a shard, in order."""
    topic = run.pipeline.topic_names.placement()
    times = appended_ms(run, topic)
    return split_log.attempts(split_log.steps(run.log, topic, shard, times))


def void_upto(writer: streams.Writer, before: int | None = None) -> int:
    """Return the last bucket that a writer of a half leaves out, as its records before offset
    ``before`` name it; 0: none.
    """
    return max(
        (
            record.closed
            for offset, record in writer.accepted
            if record.missing and (before is None or offset < before)
        ),
        default=0,
    )


def closed_upto(writer: streams.Writer) -> int:
    """Return the last bucket that a writer closed, by its records but for the end of the stream."""
    return max((record.closed for _, record in writer.accepted if not record.heirs), default=0)


def end_of(reading: streams.Reading) -> tuple[int, int] | None:
    """Return the offset of the record that ends the stream of a shard, and the last bucket that is
    read from it; None: it has not ended.
    """
    accepted = sorted(
        (offset, record)
        for writer in reading.writers.values()
        for offset, record in writer.accepted
    )
    upto = 0
    for offset, record in accepted:
        if record.heirs:
            return offset, max(upto, record.past)
        upto = max(upto, record.closed)
    return None


@dataclass
class _Split:
    """Split of the shard of ``stage`` in a run."""

    run: Run
    stage: StageOptions
    readings: Mapping[str, streams.Reading]
    blocks: Mapping[str, streams.ReadPart]

    @cached_property
    def attempts(self) -> list[split_log.Attempt]:
        """Attempts, in order."""
        return attempts_of(self.run, self.stage.name)

    @cached_property
    def streams(self) -> list[str]:
        """The shard and its halves."""
        return [self.stage.name, *(half.name for half in halves.of(self.stage))]

    def rows(self, stream: str, bucket: int) -> Counter[object]:
        """Return the rows of a closed bucket, as the first writer made it that has not voided
        it.
        """
        for name, writer in self.readings[stream].writers.items():
            void = 0 if stream == self.stage.name else void_upto(writer)
            if max(void, writer.base) < bucket <= closed_upto(writer):
                parts = writer.closed_parts.get(bucket, ())
                return Counter(
                    row for part in parts for row in self.blocks[stream](name, part) or ()
                )
        return Counter()

    def reached(self, stream: str, at_ms: int) -> tuple[int, int]:
        """Return the last bucket that any writer had closed at a time, and the last one that was
        void then.
        """
        times = appended_ms(self.run, self.run.pipeline.topic_names.boundaries(stream))
        closed = void = 0
        for writer in self.readings[stream].writers.values():
            for offset, record in writer.accepted:
                if times.get(offset, 0) <= at_ms and not record.heirs:
                    closed = max(closed, record.closed)
                    void = max(void, record.closed if record.missing else 0)
        return closed, void


def check(
    run: Run, readings: Mapping[str, streams.Reading], blocks: Mapping[str, streams.ReadPart]
) -> list[str]:
    """Return what is wrong with the splits of a run, in words."""
    wrong: list[str] = []
    for stage in run.options.stages:
        if stage.may_split:
            split = _Split(run, stage, readings, blocks)
            wrong += [*_ends(split), *_answers(split), *_outcome(split), *_lost(split)]
    return wrong


def _ends(split: _Split) -> Iterator[str]:
    """Yield a shard that ends without a confirmation, or with void buckets after its end."""
    shard, *those = split.streams
    end = end_of(split.readings[shard])
    confirmed = [each for each in split.attempts if each.is_confirmed]
    if end is None:
        if confirmed and split.run.is_complete:
            yield f"{shard} is confirmed and does not end"
        return
    offset, upto = end
    times = appended_ms(split.run, split.run.pipeline.topic_names.boundaries(shard))
    if not confirmed or times.get(offset, 0) < confirmed[0].answered_ms:
        yield f"{shard} ends without a confirmation"
    for half in those:
        void = min(void_upto(each) for each in split.readings[half].writers.values())
        if void > upto:
            yield f"{half} leaves out buckets up to {void}, and {shard} ends after {upto}"


def _answers(split: _Split) -> Iterator[str]:
    """Yield answers that do not rest on what the logs held."""
    shard, *those = split.streams
    for attempt in split.attempts:
        answer = attempt.answer
        if answer is None:
            continue
        if answer.bucket >= 0:
            whole = split.rows(shard, answer.bucket)
            if whole == sum((split.rows(half, answer.bucket) for half in those), Counter()):
                yield f"{shard} is withdrawn for bucket {answer.bucket}, which does not differ"
        if not attempt.is_confirmed:
            continue
        found = [split.reached(stream, attempt.answered_ms) for stream in split.streams]
        void = max(void for _, void in found[1:])
        upto = min(closed for closed, _ in found)
        buckets = range(void + 1, upto + 1)
        sums = [(split.rows(shard, b), [split.rows(h, b) for h in those]) for b in buckets]
        differ = [
            b
            for b, (all_, parts) in zip(buckets, sums, strict=True)
            if all_ != sum(parts, Counter())
        ]
        if differ:
            yield f"{shard} is confirmed, and buckets {differ} differ"
        if len(buckets) < PROVEN_BUCKETS or not any(all(parts) for _, parts in sums):
            yield f"{shard} is confirmed after {len(buckets)} equal buckets"
        then, _ = split.reached(shard, attempt.answered_ms - _UNREAD_MS)
        if then - upto > REACH_BUCKETS:
            yield f"{shard} is confirmed with a half that is {then - upto} buckets behind"


def _outcome(split: _Split) -> Iterator[str]:
    """Yield attempts that did not come to the end that they must have."""
    shard, is_mixed = split.stage.name, split.stage.operator == "mixed"
    alarms = set(_alarmed(split.run, shard))
    for attempt in split.attempts:
        answer = attempt.answer
        if answer is None:
            if split.run.is_complete:
                yield f"attempt {attempt.number} of {shard} has no answer"
            continue
        if attempt.is_confirmed and is_mixed:
            yield f"{shard} is confirmed, though the function mixes keys"
        if answer.bucket >= 0 and not is_mixed:
            yield f"{shard} is withdrawn for a bucket, though the function is key by key"
        is_due = split.run.is_complete and split.run.options.has_manager
        if answer.bucket >= 0 and is_due and answer.bucket not in alarms:
            yield f"{shard} is withdrawn for bucket {answer.bucket}, and there is no alarm"


def _lost(split: _Split) -> Iterator[str]:
    """Yield a shard whose node was lost and that was not split in the same action, in a run in
    which nothing strikes the pool and the manager.
    """
    run, shard = split.run, split.stage.name
    own = f"processing/{run.options.moved}"
    is_struck = any(
        fault.target != own and not fault.kind.startswith("silent") for fault in run.faults
    )
    if not run.options.recovers_in_parallel or is_struck:
        return
    left_ms = None
    for _, _, record in records(run, run.pipeline.topic_names.placement()):
        entry = control_records.decode(record.value)
        if isinstance(entry, SplitStep) and entry.shard == shard:
            if left_ms not in (None, entry.written_ms):
                yield f"{shard} has left a lost node, and is split later"
            return
        if isinstance(entry, Move) and (entry.stage, entry.cause) == (shard, Cause.LOST):
            left_ms = entry.written_ms
    if left_ms is not None:
        yield f"{shard} has left a lost node, and is not split"


def _alarmed(run: Run, shard: str) -> Iterator[int]:
    """Yield the buckets of which an alarm says that they differ."""
    for _, _, record in records(run, run.pipeline.topic_names.alarms()):
        entry = control_records.decode(record.value)
        if isinstance(entry, Alarm) and (entry.kind, entry.stream) == (SPLIT_DIFFERS, shard):
            yield entry.bucket
