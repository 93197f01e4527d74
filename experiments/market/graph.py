"""Graphs of contracts: who may trade with whom."""

from __future__ import annotations

import random

Edges = list[set[int]]
"""Contract partners of each participant, one contract each way."""


def random_graph(participants: int, contracts_min: int, chance: random.Random) -> Edges:
    """Return a random tree with further random contracts until each participant has at least
    ``contracts_min``: always connected.
    """
    edges: Edges = [set() for _ in range(participants)]

    def join(one: int, other: int) -> None:
        edges[one].add(other)
        edges[other].add(one)

    for number in range(1, participants):
        join(number, chance.randrange(number))
    most = min(contracts_min, participants - 1)
    for number in range(participants):
        while len(edges[number]) < most:
            other = chance.randrange(participants)
            if other != number:
                join(number, other)
    return edges


def complete_graph(participants: int) -> Edges:
    """Everybody with everybody."""
    return [set(range(participants)) - {number} for number in range(participants)]


def chain(participants: int) -> Edges:
    """Each with the next one."""
    return [
        {other for other in (number - 1, number + 1) if 0 <= other < participants}
        for number in range(participants)
    ]


def hops(edges: Edges, start: int) -> list[int]:
    """Return the number of contracts from ``start`` to each participant."""
    found = {start: 0}
    queue = [start]
    for one in queue:
        for other in edges[one]:
            if other not in found:
                found[other] = found[one] + 1
                queue.append(other)
    return [found[number] for number in range(len(edges))]


def diameter(edges: Edges) -> int:
    """Return the longest shortest path, searched from both ends of a long one: exact on trees, a
    lower bound otherwise.
    """
    far = hops(edges, 0)
    start = far.index(max(far))
    return max(hops(edges, start))
