"""All that is wrong with a run of ``split_world``, in words, under the name of the checker that
tells it. Nothing here uses ``protocol.stage.splitting`` but its constants: logs are read again, and
rows are compared instead of digests.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from anabranch.protocol.control.records import Step
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted
from anabranch.protocol.stage.intervals import interval_of
from anabranch.protocol.stage.splitting import (
    PROVEN_BUCKETS,
    REACH_BUCKETS,
    SPLIT_MS_MAX,
    STALLED_MS,
)
from simulation.split_world import (
    HORIZON,
    LONG_TURNS,
    STAGE,
    Decision,
    Result,
    SplitWorld,
    State,
    computed,
    hashed,
)

PACE_MAX = 2
"""Pace of a half from which on it need not reach the shard."""
MARGIN = 2 * PROVEN_BUCKETS
"""Number of buckets after the halves' beginning that are enough for a proof: some have no rows."""


def judge(world: SplitWorld) -> list[str]:
    """Return all that is wrong with a run that is over."""
    return [
        *(f"results: {text}" for text in _results(world)),
        *(f"proof: {text}" for text in _proofs(world)),
        *(f"ends: {text}" for text in _ends(world)),
        *(f"outcome: {text}" for text in _outcomes(world)),
        *(f"lost: {text}" for text in _lost(world)),
    ]


def _results(world: SplitWorld) -> Iterator[str]:
    """Yield readers that have not taken all buckets, each row once."""
    state: State = {}
    expected: dict[int, list[Result]] = {}
    for bucket, rows in world.input.items():
        state, found = computed(world.options, state, bucket, rows)
        for of, made in found.items():
            expected[of] = [*expected.get(of, []), *made]
    for number, taken in enumerate(world.taken):
        if taken.upto < world.options.buckets:
            yield f"reader {number} has no bucket after {taken.upto}"
        for bucket in range(1, taken.upto + 1):
            due, has = Counter(expected.get(bucket, ())), Counter(taken.rows.get(bucket, ()))
            if due != has:
                yield f"reader {number}, bucket {bucket}: lacks {due - has}, has {has - due}"
                break


def _halves(shard: str) -> tuple[str, str]:
    return (f"{shard}0", f"{shard}1") if "." in shard else (f"{shard}.0", f"{shard}.1")


def _state(world: SplitWorld, stream: str, count: int) -> tuple[LogState, int | None]:
    """Return the state of the first ``count`` records of a log, and its last void bucket: one
    horizon after what the first record of a chain leaves out. None: there is no record.
    """
    state, void = LogState(world.writers), None
    for offset, entry in enumerate(world.logs.get(stream, ())[:count]):
        accepted = state.apply(offset, entry).accepted
        if accepted and isinstance(entry, BoundaryRecord):
            is_late = entry.prev is None and bool(entry.missing)
            void = max(void or 0, entry.closed + HORIZON if is_late else 0)
    return state, void


def _rows(world: SplitWorld, state: LogState, bucket: int) -> Counter[Result]:
    return Counter(
        row
        for _, _, parts in state.stable(bucket, bucket)
        for part in parts
        for row in world.blocks[part.attempt, bucket]
    )


def _has_both(world: SplitWorld, state: LogState, bucket: int) -> bool:
    """Return whether both halves of the first shard have rows in ``bucket`` of its log."""
    intervals = [interval_of(half) for half in _halves(STAGE)]
    found = {hashed(key) for key, *_ in _rows(world, state, bucket)}
    return all(any(map(interval.has, found)) for interval in intervals)


def _answers(world: SplitWorld) -> Iterator[tuple[int, int, Decision]]:
    """Yield the first answer of each attempt: attempt, place in the log of moves, and what its
    process had read.
    """
    decisions = {id(each.record): each for each in world.decisions}
    open_attempts: dict[str, int] = {}
    newest: dict[str, int] = {}
    for offset, record in enumerate(world.moves):
        if record.step is Step.WANTED:
            is_stale = bool(record.reason) and record.attempt != newest.get(record.shard, -1)
            if record.shard not in open_attempts and not is_stale:
                number = max(newest.get(record.shard, -1) + 1, record.written_ms)
                open_attempts[record.shard] = newest[record.shard] = number
        elif open_attempts.get(record.shard) == record.attempt:
            if record.step is Step.WITHDRAWN:
                del open_attempts[record.shard]
            else:
                open_attempts[record.shard] = -1
            yield record.attempt, offset, decisions[id(record)]


def _proofs(world: SplitWorld) -> Iterator[str]:
    """Yield confirmations that do not rest on enough equal buckets, and withdrawals for a bucket
    that does not differ.
    """
    for attempt, _, decision in _answers(world):
        record = decision.record
        shard, halves = record.shard, _halves(record.shard)
        states = [_state(world, each, decision.read[each]) for each in (shard, *halves)]
        voids = [void for _, void in states[1:]]
        compared, of_both, differs = 0, 0, set()
        upto = min(state.upto for state, _ in states)
        if None not in voids:
            for bucket in range(max(void or 0 for void in voids) + 1, upto + 1):
                mine, lower, upper = (_rows(world, state, bucket) for state, _ in states)
                if mine != lower + upper:
                    differs.add(bucket)
                compared, of_both = compared + 1, of_both + bool(lower and upper)
        if record.step is Step.CONFIRMED:
            if differs:
                yield f"{shard} is confirmed, and buckets {sorted(differs)} differ"
            if compared < PROVEN_BUCKETS or not of_both:
                yield f"attempt {attempt} of {shard} is confirmed after {compared} equal buckets"
            behind = states[0][0].upto - min(state.upto for state, _ in states[1:])
            if behind > REACH_BUCKETS:
                yield f"{shard} is confirmed with a half that is {behind} buckets behind"
        elif record.bucket >= 0 and record.bucket not in differs:
            yield f"{shard} is withdrawn for bucket {record.bucket}, which does not differ"


def _ends(world: SplitWorld) -> Iterator[str]:
    """Yield streams that end without a confirmation that counts, before a void bucket, by a process
    that was replaced, or before what could be read.
    """
    confirmed = {
        decision.record.shard: world.order.index(("moves", offset))
        for _, offset, decision in _answers(world)
        if decision.record.step is Step.CONFIRMED
    }
    for shard in list(world.logs):
        state, epochs = LogState(world.writers), {}
        for offset, entry in enumerate(world.logs[shard]):
            upto = state.upto
            if isinstance(entry, EpochStarted):
                epochs[entry.replica] = offset
            if not state.apply(offset, entry).accepted or not state.heirs:
                continue
            if isinstance(entry, BoundaryRecord) and entry.epoch != epochs[entry.replica]:
                yield f"{shard} is ended by a process that was replaced"
            if state.upto < upto:
                yield f"{shard} ends after {state.upto}, and {upto} could be read"
            at = world.order.index((shard, offset))
            if confirmed.get(shard, at + 1) > at:
                yield f"{shard} ends without a confirmation"
            for half in _halves(shard):
                _, void = _state(world, half, len(world.logs.get(half, ())))
                if void is not None and void > upto:
                    yield f"{half} voids buckets up to {void}, and {shard} ends after {upto}"
            break


def _could_be_proven(world: SplitWorld, decision: Decision) -> bool:
    """Return whether both halves began, are fast enough, and left enough buckets to compare."""
    if world.options.half_pace > PACE_MAX:
        return False
    voids = [_state(world, half, decision.read[half])[1] for half in _halves(decision.record.shard)]
    return None not in voids and max(void or 0 for void in voids) + MARGIN < world.options.buckets


def _lost(world: SplitWorld) -> Iterator[str]:
    """Yield a shard whose processes died, and whose split waited for buckets that a later process
    of it closed, though its log had enough, all input was kept, and nothing else was struck.
    """
    options = world.options
    is_struck = bool(options.faults) or not options.is_keyed or options.has_odd_clock
    is_kept = options.keeps_input or not options.trims
    if not world.lost_turn or is_struck or not is_kept or options.restored_after < LONG_TURNS:
        return
    upto = world.lost_upto
    state = world.state_of(STAGE)
    proof = range(upto - PROVEN_BUCKETS + 1, upto + 1)
    if proof.start < 1 or not any(_has_both(world, state, bucket) for bucket in proof):
        return
    for _, _, decision in _answers(world):
        if decision.record.shard == STAGE:
            closed = _state(world, STAGE, decision.read[STAGE])[0].closed_upto
            if decision.record.step is not Step.CONFIRMED or closed > upto:
                yield f"{STAGE} is lost after {upto}, and is {decision.record.step} after {closed}"
    restored_ms = (world.lost_turn + options.restored_after) * options.turn_ms
    for entry in world.logs[STAGE]:
        if isinstance(entry, BoundaryRecord) and entry.heirs and entry.written_ms >= restored_ms:
            yield f"{STAGE} is lost after {upto}, and ends only when a process has its checkpoint"


def _outcomes(world: SplitWorld) -> Iterator[str]:
    """Yield splits that did not come to the end that they must have."""
    options = world.options
    ended = {shard for shard in world.logs if world.state_of(shard).heirs}
    answers = list(_answers(world))
    counted = {attempt for attempt, _, _ in _answers(world)}
    wishes = {each.written_ms for each in world.moves if each.is_scalers_wish}
    for decision in world.decisions:
        attempt = decision.record.attempt
        if attempt in wishes - counted:
            yield f"attempt {attempt}, which a scaler wanted too late, is answered"
    if not answers and any(each.step is Step.WANTED for each in world.moves):
        yield "the split has no answer"
    for _, _, decision in answers:
        record = decision.record
        took_ms = record.written_ms - decision.seen_ms
        if took_ms > SPLIT_MS_MAX + STALLED_MS:
            yield f"{record.shard} is answered by one process after {took_ms // 1_000} s"
        if record.step is Step.CONFIRMED:
            if not options.is_keyed:
                yield f"{record.shard} is confirmed, though the function mixes keys"
            if record.shard not in ended:
                yield f"{record.shard} is confirmed and does not end"
        elif record.bucket >= 0 and options.is_keyed:
            yield f"{record.shard} is withdrawn for a bucket, though the function is key by key"
        elif (
            record.bucket < 0 and not decision.is_by_odd_clock and _could_be_proven(world, decision)
        ):
            yield f"{record.shard} is withdrawn, though its halves run: {record.reason}"
    if options.never_starts and STAGE in ended:
        yield "a shard ended without halves"
