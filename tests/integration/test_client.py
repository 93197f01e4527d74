"""The client on a real broker, on topics that the real delivery writes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.client import Security, corrected, live
from anabranch.protocol.errors import Unavailable
from harness import outputs
from harness.outputs import Replica, create_topics, delivered, drain, rows, until_decided
from harness.waiting import wait_until

pytestmark = pytest.mark.integration


@dataclass
class Car:
    """A value of the output, in part."""

    car: int


def test_results_come_once_and_what_is_taken_back_is_gone(kafka: str) -> None:
    log = KafkaEventLog(kafka)
    clock = SystemClock()
    entropy = SystemEntropy()
    pipeline = outputs.pipeline("client", live=True, partitions=2)
    create_topics(log, pipeline)
    replica = Replica(log, pipeline, clock, entropy)
    service = outputs.service(log, pipeline, clock, entropy)
    service.start()
    replica.close_buckets(1, {1: rows(1, 3)})
    service.step()
    with (
        replica.beating(),
        live(kafka, "client.out.live", of=Car, security=Security(plain_text=True)) as answer,
    ):

        def until(done: Callable[[], bool]) -> None:
            def is_done() -> bool:
                service.step()
                answer.refresh()
                return done()

            wait_until(is_done, 60, lambda: f"the answer: {answer.rows()}", every_s=0)

        until(lambda: len(answer.rows()) == 3)
        replica.show(2, {2: rows(2, 2)}, ("reports",))
        until(lambda: answer.in_failure and len(answer.rows()) == 5)
        assert [row.stable for row in answer.rows()] == [True] * 3 + [False] * 2
        replica.close_buckets(2, {2: rows(2, 4)})
        replica.end_branch()
        until(lambda: not answer.in_failure and len(answer.rows()) == 7)
        shown = [(row.id, row.value.car) for row in answer.rows()]
    drain(service, 2)
    service.stop()
    until_decided(log, pipeline)
    with corrected(kafka, "client.out", follow=False) as found:
        got = {row.id: row.value for row in found}
        assert sum(found.positions.values()) >= len(got)
    assert got == {
        str(ident): json.loads(value or b"") for _, ident, _, value in delivered(log, pipeline)
    }
    assert sorted(shown) == sorted((ident, value["car"]) for ident, value in got.items())

    async def read() -> list[int]:
        async with corrected(kafka, "client.out", of=Car, follow=False) as rows_of:
            return [row.value.car async for row in rows_of]

    assert sorted(asyncio.run(read())) == sorted(value["car"] for value in got.values())


def test_a_client_that_wants_tls_does_not_go_on_without(kafka: str) -> None:
    with pytest.raises(Unavailable), corrected(kafka, "client.out", security=Security()):
        pass
