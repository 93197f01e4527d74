"""An idle node rehearses what may come to it, after a while, and makes room for a replica."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from anabranch.protocol.control.idle_node import (
    IDLE_FOR_MS,
    Idleness,
    IdleStep,
    Rehearsable,
    rehearsed,
)

FIRST = Rehearsable("first", ("f",), ("cars",))
SECOND = Rehearsable("second", ("f",), ("first",))
JOIN = Rehearsable("join", ("g",), ("cars", "first"))
OTHER = Rehearsable("other", ("g",), ("cars", "people"))
AGAIN = Rehearsable("again", ("f",), ("people",))
HIDDEN = Rehearsable("hidden", (), ("cars",))
NOTHING_READ = Rehearsable("nothing_read", ("h",), ())
ALL = (FIRST, SECOND, JOIN, OTHER, AGAIN, HIDDEN, NOTHING_READ)


@pytest.mark.parametrize(
    ("may_come", "expected"),
    [
        ([stage.name for stage in ALL], ["first", "other"]),
        (["again", "second", "join"], ["again"]),
        (["hidden", "nothing_read"], []),
        ([], []),
    ],
)
def test_ri1_ri2_each_code_whose_columns_are_known_is_rehearsed_once(
    may_come: Collection[str], expected: list[str]
) -> None:
    assert rehearsed(ALL, may_come) == expected


class Node:
    """A node that does at once what it is told."""

    def __init__(self, stages: Collection[str] = ("first",)) -> None:
        self.now_ms, self.has_engine, self.has_replica, self.rehearses = 0, True, False, False
        self._idleness = Idleness(stages)

    def after(self, ms: int) -> IdleStep:
        self.now_ms += ms
        step = self._idleness.next_step(
            self.now_ms,
            has_engine=self.has_engine,
            has_replica=self.has_replica,
            rehearses=self.rehearses,
        )
        self.rehearses = step is IdleStep.BEGIN or (self.rehearses and step is not IdleStep.END)
        return step


def test_ri3_it_begins_once_when_the_node_was_idle_for_a_while() -> None:
    node = Node()
    assert node.after(0) is IdleStep.NOTHING
    assert node.after(IDLE_FOR_MS - 1) is IdleStep.NOTHING
    assert node.after(1) is IdleStep.BEGIN
    assert node.after(IDLE_FOR_MS) is IdleStep.NOTHING
    node.rehearses = False  # it failed for good
    assert node.after(0) is IdleStep.BEGIN


def test_ri3_the_start_of_the_engine_is_not_idle() -> None:
    node = Node()
    node.has_engine = False
    assert node.after(5 * IDLE_FOR_MS) is IdleStep.NOTHING
    node.has_engine = True
    assert node.after(1) is IdleStep.NOTHING
    assert node.after(IDLE_FOR_MS) is IdleStep.BEGIN
    node.has_engine = False
    assert node.after(1) is IdleStep.END, "it is to stop"


def test_ri4_a_replica_ends_it_and_begins_the_time_anew() -> None:
    node = Node()
    node.after(0)
    assert node.after(IDLE_FOR_MS) is IdleStep.BEGIN
    node.has_replica = True
    assert node.after(1) is IdleStep.END
    assert node.after(2 * IDLE_FOR_MS) is IdleStep.NOTHING
    node.has_replica = False
    assert node.after(1) is IdleStep.NOTHING
    assert node.after(IDLE_FOR_MS) is IdleStep.BEGIN


def test_without_stages_nothing_begins() -> None:
    node = Node(())
    node.after(0)
    assert node.after(2 * IDLE_FOR_MS) is IdleStep.NOTHING
