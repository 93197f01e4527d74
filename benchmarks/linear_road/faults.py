"""Faults of a run by the clock: what breaks, how the pipeline is prepared for it, and the breaking.

The feeder is never disturbed: what it writes waits in the input topic while the system cannot read
it. Only a paused broker keeps it waiting, too.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from ruamel.yaml import YAML

from anabranch.adapters.system.clock import SystemClock
from anabranch.local import status
from anabranch.local.drill_links import Cut
from anabranch.local.drills import Drill
from anabranch.protocol.errors import AnabranchError
from benchmarks.linear_road.receiver import live_topic
from demo.deployment import DeploymentError

_now_ms: Final = SystemClock().now_ms
_SOURCE: Final = "traffic"
_BROKER: Final = "kafka/kafka"


class Kind(StrEnum):
    """Kind of fault."""

    KILL = "kill"
    """A processing node and all below it get SIGKILL. The supervisor starts it again."""
    CUT = "cut"
    """The source's process is cut off from the broker."""
    CUT_HALF = "cut-half"
    """One of two processes that read the source, half of its partitions each, is cut off."""
    PAUSE = "pause"
    """The broker gets SIGSTOP, and SIGCONT at the end."""


LASTS_S: Final = {Kind.KILL: 0, Kind.CUT: 20, Kind.CUT_HALF: 20, Kind.PAUSE: 10}
"""Length of each fault unless the command line names one, in seconds; 0: it only begins."""

_WORDS: Final = {
    Kind.KILL: "a processing node killed",
    Kind.CUT: "the source cut off from the broker",
    Kind.CUT_HALF: "half of the source cut off from the broker",
    Kind.PAUSE: "the broker paused",
}


@dataclass(frozen=True, slots=True)
class Fault:
    """Fault that is planned for a run."""

    kind: Kind
    after_s: int
    """Seconds of the part by the clock before it begins."""
    lasts_s: int
    has_standby: bool = False
    """Whether each stage has a warm standby on a second node."""

    @property
    def needs_links(self) -> bool:
        """Whether services must reach the broker through links that can be cut."""
        return self.kind in (Kind.CUT, Kind.CUT_HALF)

    def in_words(self) -> str:
        """Return what happens, for the claim."""
        length = f" for {self.lasts_s} s" if self.lasts_s else ""
        standby = ", each stage with a warm standby" if self.has_standby else ""
        return f"{_WORDS[self.kind]}{length}{standby}"

    def changes(self) -> list[str]:
        """Name what the deployment has that one without faults has not."""
        found = ["live topics of both outputs"]
        if self.kind is Kind.CUT_HALF:
            found.append(f"{_SOURCE} read in two shards")
        if self.has_standby:
            found.append("a second node with a warm standby of each stage")
        if self.needs_links:
            found.append("a proxy between each service and the broker")
        return found


def prepare(pipeline: Path, fault: Fault) -> None:
    """Change a copy of the example's file: live topics, and what the fault needs besides."""
    yaml = YAML()
    document = yaml.load(pipeline)
    for output in document["outputs"].values():
        output["live"] = {"topic": live_topic(output["corrected"]["topic"])}
    if fault.kind is Kind.CUT_HALF:
        document["sources"][_SOURCE]["shards"] = 2
    if fault.has_standby:
        for stage in document["stages"].values():
            stage |= {"replicas": 2, "ha": "passive"}
    yaml.dump(document, pipeline)


def targets(kind: Kind, labels: Sequence[str], standbys: dict[str, int]) -> list[str]:
    """Return the processes that a fault strikes, of all processes SERVICE/NAME. ``standbys``:
    number of replicas that stand by on each node. The node with the fewest of them is killed.

    Raises:
        DeploymentError: the deployment has no such process.
    """
    prefix = {Kind.KILL: "processing/", Kind.PAUSE: _BROKER}.get(kind, f"ingestion/{_SOURCE}")
    found = sorted(label for label in labels if label.startswith(prefix))
    if not found:
        raise DeploymentError(f"no process {prefix}* to break; there are {', '.join(labels)}")
    if kind is Kind.KILL:
        return [min(found, key=lambda label: standbys.get(label, 0))]
    return found[:1] if kind is Kind.CUT_HALF else found


@dataclass(frozen=True, slots=True)
class Struck:
    """Fault that has happened. Times are in ms since 1970."""

    processes: tuple[str, ...]
    begun_ms: int
    ended_ms: int
    """Time of the end; of a kill, that of its begin."""


class Injection(threading.Thread):
    """Thread that makes one fault happen in the deployment of ``state_dir``."""

    def __init__(self, fault: Fault, state_dir: Path, due_ms: int) -> None:
        """Prepare it. ``due_ms``: begin of the fault, in ms since 1970."""
        super().__init__(name="fault", daemon=True)
        self._fault = fault
        self._state_dir = state_dir
        self._due_ms = due_ms
        self._stopping = threading.Event()
        self._struck: Struck | None = None
        self._error: AnabranchError | DeploymentError | None = None

    def run(self) -> None:
        """Wait until the fault is due, begin it, and undo it at its end."""
        try:
            if not self._stopping.wait(max(0, self._due_ms - _now_ms()) / 1_000):
                self._strike(Drill(self._state_dir))
        except (AnabranchError, DeploymentError) as error:
            self._error = error

    def stop(self) -> None:
        """Undo the fault at once if it still lasts, and end."""
        self._stopping.set()
        self.join()

    def struck(self) -> Struck:
        """Return what has happened.

        Raises:
            DeploymentError: the fault failed, or is not over.
        """
        if self._struck is None:
            raise DeploymentError(f"the fault did not happen: {self._error or 'it is not over'}")
        return self._struck

    def _strike(self, drill: Drill) -> None:
        kind = self._fault.kind
        processes = targets(kind, drill.labels, _standbys(self._state_dir))
        begun_ms = _now_ms()
        try:
            for label in processes:
                match kind:
                    case Kind.KILL:
                        drill.kill(label)
                    case Kind.PAUSE:
                        drill.pause(label)
                    case Kind.CUT | Kind.CUT_HALF:
                        drill.cut(label, Cut())
            if self._fault.lasts_s:
                self._stopping.wait(self._fault.lasts_s)
        finally:
            if kind is not Kind.KILL:
                undo = drill.resume if kind is Kind.PAUSE else drill.heal
                for label in processes:
                    undo(label)
        ended_ms = _now_ms() if self._fault.lasts_s else begun_ms
        self._struck = Struck(tuple(processes), begun_ms, ended_ms)


def _standbys(state_dir: Path) -> dict[str, int]:
    """Return the number of replicas that stand by, by node."""
    return {
        f"{row['service']}/{row['name']}": sum(
            each.get("state") == "standby" for each in status.stages_of(row)
        )
        for row in status.rows_of(state_dir) or []
    }
