"""Which sessions there are: a chain, its bound, its failures. One session may serve several
experiments.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal

from anabranch.protocol.stage.availability import delay_bound_ms

Policy = Literal["process", "delay", "suspend"]
Function = Literal["merged", "windowed"]

_POLICIES: Final[tuple[Policy, ...]] = ("process", "delay")

WIDTH_MS: Final = 100
"""Width of a bucket, in ms: 100 in the published runs."""
RATE: Final = 175
"""Tuples/s of each of three sources, as in the published chains."""

EXPERIMENTS: Final = {
    1: "one node, D = 2 s, 6 s failure, Process",
    2: "2-node chain, 10 s failure, Process and Delay",
    3: "chains of 1-4 nodes",
    4: "whole delay: 4 nodes, X = 8 s",
    5: "availability during correction, one replica",
    6: "death of a replica",
}


@dataclass(frozen=True, slots=True)
class Session:
    """One deployment and the failures that it goes through one after the other."""

    name: str
    experiments: tuple[int, ...]
    nodes: int
    max_delay_ms: int
    policy: Policy = "process"
    failures_s: tuple[float, ...] = ()
    replicas: int = 1
    deaths: int = 0
    """Number of times that a replica is killed and started again."""
    function: Function = "merged"
    load: float = 0.0
    """Part of the stage's capacity, which is measured first; 0: ``RATE``."""
    width_ms: int = WIDTH_MS
    """Width of a bucket. Only sessions in virtual time have another one than WIDTH_MS."""


CHAIN_DELAY_MS: Final = 4_000
"""The bound of experiment 3, the same for every length; the least that four stages can hold
is 3 400 ms.
"""
FAILURES_S: Final = (5.0, 10.0, 15.0, 30.0, 60.0)


def chain(
    nodes: int, policy: Policy, failures_s: tuple[float, ...], max_delay_ms: int = CHAIN_DELAY_MS
) -> Session:
    """Return a session of experiment 3."""
    name = (
        f"chain-{nodes}-{policy}" if max_delay_ms == CHAIN_DELAY_MS else f"least-{nodes}-{policy}"
    )
    return Session(name, (3,), nodes, max_delay_ms, policy, failures_s)


def _fixed(load: float, seconds: float = 60) -> list[Session]:
    least_ms = delay_bound_ms(2)
    return [
        Session("one-node", (1,), 1, 2_000, failures_s=(6, 6, 6)),
        Session("two-process", (2,), 2, least_ms, failures_s=(10, 10)),
        Session("two-delay", (2,), 2, least_ms, "delay", (10,)),
        Session("whole-delay", (4,), 4, 8_000, failures_s=(5, 5)),
        Session(
            "correction", (5,), 1, 3_000, failures_s=(seconds,), function="windowed", load=load
        ),
        Session("death", (6,), 1, 3_000, replicas=2, deaths=2),
    ]


def sessions(experiments: set[int], *, quick: bool, full: bool, load: float) -> list[Session]:
    """Return the sessions to run for ``experiments`` on real processes. ``quick``: one failure of
    each kind, and no chains. ``full``: the whole published grid of chains, which takes more than an
    hour.
    """
    if quick:
        chosen = [
            replace(s, failures_s=s.failures_s[:1], deaths=min(1, s.deaths))
            for s in _fixed(load, 15)
            if s.name != "two-delay"
        ]
    else:
        chosen = _fixed(load)
        lengths = FAILURES_S if full else FAILURES_S[0:3:2]
        chosen += [chain(nodes, "process", lengths) for nodes in (1, 2, 3, 4)]
        chosen += [
            chain(nodes, "delay", FAILURES_S if full else (15.0,))
            for nodes in ((1, 2, 3, 4) if full else (4,))
        ]
    return [session for session in chosen if experiments & set(session.experiments)]


def virtual_sessions(experiments: set[int], load: float) -> list[Session]:
    """Every session, the whole published grid, and chains with the least bound they can hold:
    in virtual time a minute costs a second.
    """
    chosen = [*_fixed(load)]
    chosen += [chain(nodes, policy, FAILURES_S) for policy in _POLICIES for nodes in (1, 2, 3, 4)]
    chosen += [
        chain(nodes, policy, (15.0,), delay_bound_ms(nodes))
        for policy in _POLICIES
        for nodes in (1, 2, 3, 4)
    ]
    return [session for session in chosen if experiments & set(session.experiments)]
