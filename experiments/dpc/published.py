"""The figures of the published experiments: what was published, what is asked of ours, and how it
is taken from what a session measured.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from experiments.dpc.plan import CHAIN_DELAY_MS

if TYPE_CHECKING:
    from experiments.dpc.figures import FailureFigures
    from experiments.dpc.results import SessionResult

NOTHING: Final = "-"

Values = Callable[[Sequence["SessionResult"]], list[float]]


@dataclass(frozen=True, slots=True)
class Figure:
    """One of them."""

    experiment: int
    what: str
    published: str
    target: str
    values: Values
    unit: str = "s"
    at_most: float | None = None
    above: float | None = None
    sessions: Sequence[str] = ()
    """Names of the sessions whose corrections must have ended."""
    is_end: bool = False
    """It is when they did."""


def failures(
    results: Sequence[SessionResult], names: Sequence[str], seconds: float | None = None
) -> list[FailureFigures]:
    """Return the failures in the sessions of these names. ``seconds``: only those of about this
    length.
    """
    return [
        f
        for r in results
        if r.session.name in names
        for f in r.failures
        if seconds is None or abs(f.seconds - seconds) < max(1, 0.1 * seconds)
    ]


def _of(
    names: Sequence[str],
    figure: Callable[[FailureFigures], float | None],
    seconds: float | None = None,
) -> Values:
    return lambda results: [
        x for f in failures(results, names, seconds) if (x := figure(f)) is not None
    ]


def _growth(results: Sequence[SessionResult], kind: str, policy: str) -> list[float]:
    """Growth of the longest delay from the shortest to the longest chain, per node, for
    failures that both had.
    """
    longest = {
        (r.session.nodes, round(f.seconds)): f.longest_ms
        for r in results
        if r.session.name.startswith(f"{kind}-") and r.session.policy == policy
        for f in r.failures
    }
    nodes = sorted({each for each, _ in longest})
    if len(nodes) < 2:
        return []
    first, last = nodes[0], nodes[-1]
    return [
        (longest[last, s] - longest[first, s]) / (last - first)
        for n, s in longest
        if n == last and (first, s) in longest
    ]


_PROCESS: Final = ("two-process",)
_DELAY: Final = ("two-delay",)
_CHAINS: Final = tuple(f"chain-{nodes}-process" for nodes in (1, 2, 3, 4))
_CORRECTION: Final = ("correction",)
_ENDS: Final = "end of the failure to end of the corrections"
_BOUND: Final = f"within X = {CHAIN_DELAY_MS / 1000:g} s"

FIGURES: Final = (
    Figure(
        1,
        "longest delay of new results (Procnew)",
        "1.83 s",
        NOTHING,
        _of(["one-node"], lambda f: f.longest_ms),
    ),
    Figure(
        1,
        "the same minus the failure-free latency (Delaynew)",
        NOTHING,
        "<= D = 2 s",
        _of(["one-node"], lambda f: f.delay_ms),
        at_most=2_000,
        sessions=["one-node"],
    ),
    Figure(
        1,
        "delay of the first tentative result: the wait as used",
        "1.8 s",
        "as far as possible",
        _of(["one-node"], lambda f: f.first_ms),
    ),
    Figure(
        1,
        _ENDS,
        "0.03 s",
        NOTHING,
        _of(["one-node"], lambda f: f.done_ms),
        sessions=["one-node"],
        is_end=True,
    ),
    Figure(
        2,
        "Process: Procnew",
        "2.22 s",
        "<= 2.2 s",
        _of(_PROCESS, lambda f: f.longest_ms),
        at_most=2_200,
        sessions=_PROCESS,
    ),
    Figure(2, "Process: Delaynew", NOTHING, NOTHING, _of(_PROCESS, lambda f: f.delay_ms)),
    Figure(
        2,
        f"Process: {_ENDS}",
        "1.8 s",
        NOTHING,
        _of(_PROCESS, lambda f: f.done_ms),
        sessions=_PROCESS,
        is_end=True,
    ),
    Figure(2, "Delay: Procnew", "3.74 s", NOTHING, _of(_DELAY, lambda f: f.longest_ms)),
    Figure(
        2,
        f"Delay: {_ENDS}",
        "1.5 s",
        NOTHING,
        _of(_DELAY, lambda f: f.done_ms),
        sessions=_DELAY,
        is_end=True,
    ),
    Figure(
        3,
        "Process: growth of Procnew per node, X the same",
        "about 0.3 s",
        "shown",
        lambda r: _growth(r, "chain", "process"),
    ),
    Figure(
        3,
        "Process: growth of Procnew per node, X the least that holds",
        "about 0.3 s",
        "shown",
        lambda r: _growth(r, "least", "process"),
    ),
    Figure(
        3,
        "Delay: growth of Procnew per node, X the same",
        "about 2 s",
        "shown",
        lambda r: _growth(r, "chain", "delay"),
    ),
    Figure(
        3,
        "Process, 1-4 nodes: Delaynew",
        NOTHING,
        _BOUND,
        _of(_CHAINS, lambda f: f.delay_ms),
        at_most=CHAIN_DELAY_MS,
        sessions=_CHAINS,
    ),
    Figure(
        4,
        "5 s failure: tentative results",
        "0",
        "0",
        _of(["whole-delay"], lambda f: f.tentative_rows, 5),
        unit="",
        at_most=0,
    ),
    Figure(
        4,
        "5 s failure: Delaynew",
        "< 8 s",
        "<= 8 s",
        _of(["whole-delay"], lambda f: f.delay_ms, 5),
        at_most=8_000,
    ),
    Figure(
        5,
        "Delaynew while correcting",
        "replicas must take turns",
        "<= X = 3 s",
        _of(_CORRECTION, lambda f: f.correcting_ms - f.normal_ms),
        at_most=3_000,
        sessions=_CORRECTION,
    ),
    Figure(
        5,
        "Delaynew of the whole failure",
        NOTHING,
        "<= X = 3 s",
        _of(_CORRECTION, lambda f: f.delay_ms),
        at_most=3_000,
        sessions=_CORRECTION,
    ),
    Figure(
        5,
        _ENDS,
        NOTHING,
        NOTHING,
        _of(_CORRECTION, lambda f: f.done_ms),
        sessions=_CORRECTION,
        is_end=True,
    ),
    Figure(
        5,
        "input corrected per second (above 1 it catches up)",
        NOTHING,
        "> 1",
        _of(_CORRECTION, lambda f: f.speed),
        unit="x",
        above=1.0,
    ),
    Figure(
        6,
        "added median delay of stable results",
        "40 ms + detection",
        "masked",
        lambda r: [d.after_median_ms - d.before_median_ms for s in r for d in s.deaths],
        unit="ms",
    ),
    Figure(
        6,
        "added maximum delay of stable results",
        "40 ms + detection",
        "masked",
        lambda r: [d.after_max_ms - d.before_max_ms for s in r for d in s.deaths],
        unit="ms",
        at_most=3_000,
    ),
    Figure(
        6,
        "tentative results",
        NOTHING,
        "0",
        lambda r: [d.tentative_rows for s in r for d in s.deaths],
        unit="",
        at_most=0,
    ),
)
