"""Whether the scenario of a seed has come to pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Final

from checkers.streams import Reading
from simulation import workload
from simulation.options import NEW_NODE
from simulation.probes import BEGUN_AFTER_AN_END
from simulation.raw_logs import with_trimmed
from simulation.scenarios import READ_WHILE_SHED, SCALED, SPLIT
from simulation.silences import is_for_good
from simulation.world import Run

Readings = Mapping[str, Reading]
"""Boundary log of each stream, read."""


def has_happened(run: Run, readings: Readings) -> bool:
    """Whether the run has a scenario, and it came to pass."""
    return bool(run.options.scenario) and HAPPENED[run.options.scenario](run, readings)


def _reached(*names: str) -> Callable[[Run, Readings], bool]:
    """Any of ``names`` was reached."""
    return lambda run, _: any(run.history.probes[name] > 0 for name in names)


def _is_chain(run: Run, _: Readings) -> bool:
    stages = run.options.stages
    return len(stages) == 3 and any(stage.replicas == 3 for stage in stages)


def _fails_again(run: Run, _: Readings) -> bool:
    return run.history.probes["live failure"] > 1


def _is_never_back(run: Run, _: Readings) -> bool:
    return is_for_good(run)


def _stage_was_down(run: Run, _: Readings) -> bool:
    """All replicas of a stage were alive, and then none was."""
    ends = [event for event in run.history.events if event.what in ("start", "end")]
    for stage in run.options.stages:
        alive: set[str] = set()
        begun, down = False, False
        for event in ends:
            if not event.who.startswith(f"processing/{stage.name}."):
                continue
            (alive.add if event.what == "start" else alive.discard)(event.who)
            begun = begun or len(alive) == stage.replicas
            down = down or (begun and not alive and event.at_ms < run.options.heal_ms)
        if down:
            return True
    return False


def _blocks_were_missing(run: Run, readings: Readings) -> bool:
    return (
        _reached("fault blocks deleted", "fault blocks spoilt")(run, readings)
        and run.history.probes["log blocks_missing"] > 0
    )


def _recovered_twice(run: Run, _: Readings) -> bool:
    reached = run.history.probes
    return reached["transaction torn"] > 0 and reached["log outcome_unknown"] > 1


def _delivered_apart(run: Run, _: Readings) -> bool:
    """One output was delivered while the delivery of the other was down."""
    down: set[str] = set()
    for event in run.history.events:
        service = event.who.partition("#")[0]
        if event.at_ms >= run.options.heal_ms:
            return False
        if not service.startswith("delivery/"):
            continue
        if event.what == "end":
            down.add(service)
        elif event.what == "start":
            down.discard(service)
        elif event.what == "commit" and down - {service}:
            return True
    return False


def _forged_of_all_kinds(run: Run, _: Readings) -> bool:
    return all(
        run.history.probes[f"log state {reason}"]
        for reason in ("unknown_writer", "known", "older_branch")
    )


def _has_moved(run: Run, _: Readings) -> bool:
    """Return whether the replica began on the new node."""
    return any(event.what == "begins" and event.who == NEW_NODE for event in run.history.events)


def _was_in_front(run: Run, readings: Readings) -> bool:
    """Return whether a source named a part far ahead of what it had closed."""
    far = run.options.ahead[1] // 2
    return any(
        part.bucket > record.closed + far
        for source in run.options.sources
        for writer in readings[source].writers.values()
        for _, record in writer.accepted
        for part in record.parts
    )


def _crossed_a_gap(run: Run, readings: Readings) -> bool:
    """Return whether a stage that runs one bucket per batch closed several at once: all but one
    were empty.
    """
    return any(
        after.base is None and after.closed > before.closed + 1
        for stage in run.options.stages
        if not stage.is_batch_safe
        for writer in readings[stage.name].writers.values()
        for (_, before), (_, after) in pairwise(writer.accepted)
    )


def _went_on_with_far_rows(run: Run, readings: Readings) -> bool:
    """Return whether a process continued another's record while a part was open that was named
    before the remembered records of the chain.
    """
    kept = run.options.chain_records_max or 0
    for writer in readings[run.options.stages[0].name].writers.values():
        records = [record for _, record in writer.accepted]
        for number in range(kept + 1, len(records)):
            record, before = records[number], records[: number - kept]
            goes_on = record.base is None and record.epoch > records[number - 1].epoch
            if goes_on and any(p.bucket > record.closed for each in before for p in each.parts):
                return True
    return False


def _arrives_before_it(run: Run, _: Readings) -> bool:
    """Return whether a record has an earlier timestamp than the one in front of it."""
    latest: dict[tuple[str, int], int] = {}
    for source in run.options.sources:
        topic = workload.topic_of(source)
        for partition, _offset, record in with_trimmed(run, topic):
            if record.timestamp_ms < latest.get((topic, partition), 0):
                return True
            latest[topic, partition] = record.timestamp_ms
    return False


HAPPENED: Final[dict[str, Callable[[Run, Readings], bool]]] = {
    "chain": _is_chain,
    "second failure": _reached("replica row 7: forks again"),
    "flapping": _fails_again,
    "never back": _is_never_back,
    "stage down": _stage_was_down,
    "passive": _reached("fails over to a copy"),
    "branch fails": _reached("replica row 8: the branch failed", "branch cannot begin"),
    "blocks deleted": _blocks_were_missing,
    "recovery twice": _recovered_twice,
    "forged": _forged_of_all_kinds,
    "far rows": _went_on_with_far_rows,
    "quiet gap": _crossed_a_gap,
    "ahead": _was_in_front,
    "given up": _reached("source given up"),
    "deep join": _reached("depth measured"),
    "moved": _has_moved,
    SCALED: _has_moved,
    "outvoted": _reached("end because of outvoted"),
    "two outputs": _delivered_apart,
    "upstream backup": _reached("state made anew"),
    "amnesia": _reached("results given up"),
    "asked for": _reached("recomputed: recomputed"),
    "upgraded": _reached("another version counts"),
    "end trimmed": _reached(BEGUN_AFTER_AN_END),
    "slow corrections": _reached("live rec_done beside a branch"),
    "added late": _reached("results given up"),
    "pushed back": _reached("log the source reads again"),
    "resharded": _reached("log a stream has ended"),
    "output resharded": _reached("log a shard has ended"),
    "input gone": _reached("missing input given up"),
    "made anew": _reached("made anew after results"),
    "overload": _reached("sheds rows"),
    READ_WHILE_SHED: _reached("reads what was shed"),
    SPLIT: _reached("log shard_split"),
    "input recreated": _reached("missing input given up"),
    "arrival": _arrives_before_it,
    "outlived": _reached("the first life writes on"),
    "too large": _reached("notice delivered"),
    "delta": _reached("tentative batch"),
    "new column": _reached("missing column refused"),
    "own bounds": _reached("patient output masks a failure"),
}
"""Test of whether each of ``scenarios.CHANCES`` came about."""
