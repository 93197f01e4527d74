"""Results of a session, on real processes or in virtual time."""

from __future__ import annotations

import itertools
import json
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from experiments.dpc.figures import Cut, DeathFigures, Event, FailureFigures, Trace
from experiments.dpc.plan import Session


@dataclass(slots=True)
class SessionResult:
    """Results of a session."""

    session: Session
    failures: list[FailureFigures] = field(default_factory=list)
    by_node: list[list[FailureFigures]] = field(default_factory=list)
    """The same at the output of each stage, first to last: [failure][node]."""
    deaths: list[DeathFigures] = field(default_factory=list)
    compared: int = 0
    wrong: int = 0
    rate: int = 0
    """Tuples/s of all sources."""
    capacity: int = 0
    """Tuples/s of the stage while it drains a backlog; 0: not measured."""
    batch_ms: float = 0.0
    """Median time between two stable records of the last stage in normal operation: about a
    batch, at least a bucket.
    """
    hop_ms: list[float] = field(default_factory=list)
    """Per stage, the median time from its input's boundary to its own, in normal operation."""
    busy: float = 0.0
    """Part of the machine's CPU that the session used in normal operation, its sources and
    the broker included.
    """
    busy_failing: float = 0.0
    """The same from the first failure to the end of its corrections."""
    others: float = 0.0
    """Part of the machine's CPU that others used during the session."""
    lag_ms: float = 0.0
    """The latest record of a source."""
    waits_ms: list[int] = field(default_factory=list)
    """First wait of each stage."""
    seconds: float = 0.0
    error: str = ""
    traces: list[Trace] = field(default_factory=list)
    """Trace of each stage."""
    cuts: list[Cut] = field(default_factory=list)

    def failed(self, by_node: list[FailureFigures]) -> None:
        """Add a failure: its figures at the output of each stage."""
        self.by_node.append(by_node)
        self.failures.append(by_node[-1])

    def measure_normal(self, settled_ms: float) -> None:
        """Fill in the figures of normal operation: of the time before the first failure or,
        without one, of the end.
        """
        last = self.traces[-1]
        end_ms = self.cuts[0].at_ms if self.cuts else last.events[-1].at_ms
        begin_ms = end_ms - settled_ms
        inside = [
            e.at_ms for e in last.events if not e.is_tentative and begin_ms <= e.at_ms < end_ms
        ]
        self.batch_ms = (
            median(b - a for a, b in itertools.pairwise(inside)) if len(inside) > 2 else 0.0
        )
        before = 0.0
        for trace in self.traces:
            delays = [r.delay_ms for r in trace.new_results() if begin_ms <= r.at_ms < end_ms]
            middle = median(delays) if delays else 0.0
            self.hop_ms.append(middle - before)
            before = middle

    def to_json(self) -> str:
        """All of it, to keep beside the logs."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> SessionResult:
        """Parse what ``to_json`` returned."""
        given: dict[str, Any] = json.loads(text)
        session = given["session"]
        tuples = {name: tuple(session[name]) for name in ("experiments", "failures_s")}
        return cls(
            **given
            | {
                "session": Session(**session | tuples),
                "failures": [FailureFigures(**each) for each in given["failures"]],
                "by_node": [
                    [FailureFigures(**each) for each in nodes] for nodes in given["by_node"]
                ],
                "deaths": [DeathFigures(**each) for each in given["deaths"]],
                "traces": [_trace(each) for each in given["traces"]],
                "cuts": [Cut(**each) for each in given["cuts"]],
            }
        )


def _trace(given: dict[str, Any]) -> Trace:
    events = [Event(**event | {"missing": tuple(event["missing"])}) for event in given["events"]]
    return Trace({int(bucket): at_ms for bucket, at_ms in given["due_ms"].items()}, events)
