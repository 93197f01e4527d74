"""Tests of the client of a topic's reader: when it is replaced, with a client and a clock made up
for it.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace

import pytest
from confluent_kafka import OFFSET_INVALID, TopicPartition

from demo import consuming

IDLE_S = consuming._IDLE_S


class Broker:
    """Ends of two partitions, and what a client has handed over of them."""

    def __init__(self) -> None:
        self.now_s = 100.0
        self.ends = {0: 5, 1: 5}
        self.positions = {0: OFFSET_INVALID, 1: OFFSET_INVALID}
        self.questions: list[list[int]] = []

    def position(self, places: list[TopicPartition]) -> list[TopicPartition]:
        return [
            TopicPartition("t", each.partition, self.positions[each.partition]) for each in places
        ]

    def list_offsets(
        self, wanted: dict[TopicPartition, object], **_how: object
    ) -> dict[TopicPartition, Future[SimpleNamespace]]:
        self.questions.append([place.partition for place in wanted])
        answers = {}
        for place in wanted:
            answers[place] = Future[SimpleNamespace]()
            if place.partition in self.ends:
                answers[place].set_result(SimpleNamespace(offset=self.ends[place.partition]))
        return answers


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Broker:
    broker = Broker()
    client = SimpleNamespace(assign=lambda _: None, position=broker.position)
    monkeypatch.setattr(consuming, "Consumer", lambda _: client)
    monkeypatch.setattr(consuming, "AdminClient", lambda _: broker)
    monkeypatch.setattr(consuming, "time", SimpleNamespace(monotonic=lambda: broker.now_s))
    return broker


@pytest.fixture
def after(broker: Broker) -> Callable[..., bool]:
    """Let the time pass, records of some partitions come, and the reader judge its client."""
    reader = consuming.TopicReader("none:0", "t", lambda _: None)
    reader._assign([0, 1])

    def wait(seconds: float, *read: int) -> bool:
        broker.now_s += seconds
        for partition in read:
            reader._heard_s[partition] = broker.now_s
        return reader._has_stopped()

    return wait


def test_a_client_without_records_is_replaced(after: Callable[..., bool]) -> None:
    assert [after(IDLE_S - 1), after(1)] == [False, True]


def test_one_that_reads_all_partitions_is_kept(broker: Broker, after: Callable[..., bool]) -> None:
    assert not any(after(IDLE_S / 2, 0, 1) for _ in range(9))
    assert broker.questions == []


def test_one_that_hands_over_no_record_of_a_partition_is_replaced(
    broker: Broker, after: Callable[..., bool]
) -> None:
    assert [after(IDLE_S, 0), after(IDLE_S - 1, 0), after(1, 0)] == [False, False, True]
    assert broker.questions[0] == [1]


def test_a_partition_without_further_records_is_no_reason(
    broker: Broker, after: Callable[..., bool]
) -> None:
    broker.positions[1] = broker.ends[1]
    assert not any(after(IDLE_S, 0) for _ in range(5))


def test_nor_is_one_whose_records_came_after_the_question(
    broker: Broker, after: Callable[..., bool]
) -> None:
    for _ in range(5):
        assert not after(IDLE_S, 0)
        broker.positions[1] = broker.ends[1]
        broker.ends[1] += 1


def test_nor_is_one_of_which_the_broker_does_not_answer(
    broker: Broker, after: Callable[..., bool]
) -> None:
    del broker.ends[1]
    assert not any(after(IDLE_S, 0) for _ in range(5))
