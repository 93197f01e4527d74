"""Writers that are opened ahead, and their log lines while the cluster is away: no broker answers,
and the client retries.
"""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.adapters.kafka import log as adapter
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.kafka.security import security_from_environment
from anabranch.adapters.kafka.settings import KafkaSettings
from anabranch.local.tcp_ports import free_port
from anabranch.protocol.errors import Unavailable


class Writer:
    """Fake of a producer."""

    def __init__(self, settings: KafkaSettings) -> None:
        self.served = 0
        MADE.append(self)

    def serve(self) -> None:
        self.served += 1


MADE: list[Any] = []


@pytest.fixture(autouse=True)
def writers(monkeypatch: pytest.MonkeyPatch) -> None:
    MADE.clear()
    monkeypatch.setattr(adapter, "KafkaLogWriter", Writer)


def test_writers_are_made_when_they_are_asked_for() -> None:
    log = KafkaEventLog("broker:9092", security={})
    assert MADE == []
    assert log.writer() is MADE[0]


def test_those_that_were_opened_ahead_are_given_first_and_once() -> None:
    log = KafkaEventLog("broker:9092", security={})
    log.open_ahead(2)
    assert [log.writer(), log.writer(), log.writer()] == MADE
    assert len(MADE) == 3


def test_no_more_are_opened_than_are_missing_and_those_that_wait_are_served() -> None:
    log = KafkaEventLog("broker:9092", security={})
    log.open_ahead(2)
    log.open_ahead(2)
    assert [writer.served for writer in MADE] == [1, 1]
    log.writer()
    log.open_ahead(2)
    assert len(MADE) == 3


def test_another_owners_cluster_that_is_away_is_reported_with_its_own_variable() -> None:
    address = f"127.0.0.1:{free_port()}"
    security = security_from_environment("their_broker")
    admin = KafkaEventLog(address, request_timeout_ms=500, security=security).admin()
    with pytest.raises(Unavailable, match="set ANABRANCH_CLUSTER_THEIR_BROKER_SECURITY_PROTOCOL"):
        admin.partitions(["t"])
    admin.close()
