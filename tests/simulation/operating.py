"""The operator of a pipeline, as one more process: gives up what a source owes, and lets stages
begin anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.operating.give_up import GiveUp, GiveUpMissing
from anabranch.operating.restate import Restating
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import ConfigurationError, DataMissing, Fenced, Unavailable
from anabranch.protocol.log.given_up import Times
from anabranch.protocol.log.records import BoundaryRecord, LogEntry
from simulation.network import Network, Port, SimulatedLog
from simulation.options import Options
from simulation.side_ports import SimulatedClock
from simulation.workload import BASE_MS


def give_up(
    network: Network,
    port: Port,
    pipeline: Pipeline,
    source: str,
    until_ms: int,
    token: int,
    gone: set[tuple[str, int]],
    produce: Callable[[str, int], None],
) -> None:
    """Start an operator who gives up what ``source`` owes up to ``until_ms``; then its
    partitions in ``gone`` come back.
    """
    command = GiveUp(
        SimulatedLog(port),
        pipeline,
        source,
        Times(0, until_ms),
        SimulatedClock(port, BASE_MS),
        SeededEntropy(token),
    )

    def act() -> None:
        while True:
            try:
                command.do()
            except (Fenced, DataMissing):
                # A process of the source began, or its log was trimmed, meanwhile: again, as the
                # command says.
                continue
            except ConfigurationError:  # nothing is owed, or nobody has ever read the source
                network.history.reached("nothing to give up")
                return
            break
        network.history.reached("source given up")
        back = [place for place in sorted(gone) if place[0] == source]
        gone.difference_update(back)
        for _, partition in back:
            produce(source, partition)

    network.scheduler.spawn(port.process, act, 0)


def restate(network: Network, port: Port, pipeline: Pipeline, stage: str) -> None:
    """Start an operator who lets ``stage`` of ``pipeline``, with another version of its function,
    begin anew.
    """
    command = Restating(SimulatedLog(port), pipeline, stage, None, SimulatedClock(port, BASE_MS))

    def act() -> None:
        while True:
            try:
                command.do()
            except (DataMissing, Unavailable):  # again, as the command says
                network.scheduler.wait(network.scheduler.now_ms + 100)
                continue
            break
        network.history.reached("stage begins anew")

    network.scheduler.spawn(port.process, act, 0)


def give_up_missing(
    network: Network, port: Port, pipeline: Pipeline, source: str, until_ms: int, token: int
) -> None:
    """Start an operator who gives up what is gone of the input of ``source``, if anything is."""
    command = GiveUpMissing(
        SimulatedLog(port),
        pipeline,
        source,
        until_ms,
        SimulatedClock(port, BASE_MS),
        SeededEntropy(token),
    )

    def act() -> None:
        while True:
            try:
                command.do_missing()
            except (Fenced, DataMissing):
                continue
            except ConfigurationError:  # it had been read
                return
            break
        network.history.reached("missing input given up")

    network.scheduler.spawn(port.process, act, 0)


def check_named(
    results: Iterable[Mapping[str, bytes]], entries: Iterable[LogEntry], options: Options
) -> list[str]:
    """Results, by their headers, name what was given up: while a stage has state from there on,
    else in these buckets alone; and nothing else.

    ``entries``: of the boundary logs of all sources.
    """
    ranges = [
        each for entry in entries if isinstance(entry, BoundaryRecord) for each in entry.given_up
    ]
    is_stateful = any(stage.operator in ("sum", "both") for stage in options.stages)
    wrong = []
    for headers in results:
        bucket = int(headers["anabranch-id"].decode().partition(".")[0])
        named = set(headers.get("anabranch-missing", b"").decode().split(",")) - {""}
        lacks = {
            each.source
            for each in ranges
            if each.first <= bucket and (is_stateful or bucket <= each.last)
        }
        if named != lacks:
            wrong.append(
                f"a result of bucket {bucket} names {sorted(named)} as given up, it lacks"
                f" {sorted(lacks)}"
            )
    return wrong
