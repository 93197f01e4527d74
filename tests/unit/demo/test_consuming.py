"""Readers of several topics: an error of one of them ends what waits for records."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from demo import consuming
from demo.consuming import TopicReaders
from experiments.overload.deployments import one_stage
from experiments.overload.rush import Rush, _Waiting

DENIED = KafkaException(KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED))


class Reader:
    """Reader of a topic; that of ``tolls.live`` fails at once."""

    ended: list[str]

    def __init__(self, _: str, topic: str, take: Any) -> None:
        self._topic, self._take = topic, take
        self.error: Exception | None = None

    def start(self) -> None:
        self._take(self._topic)
        self.error = DENIED if self._topic == "tolls.live" else None

    def stop(self) -> None:
        self.ended.append(self._topic)


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the topics whose readers have ended."""
    found: list[str] = []
    monkeypatch.setattr(consuming, "TopicReader", Reader)
    monkeypatch.setattr(Reader, "ended", found, raising=False)
    return found


def readers(*topics: str) -> tuple[TopicReaders, list[str]]:
    """Return readers that run, and what they have taken."""
    taken: list[Any] = []
    started = TopicReaders("", dict.fromkeys(topics, taken.append))
    started.start()
    return started, taken


def test_readers_that_read_pass_every_record_on(ended: list[str]) -> None:
    started, taken = readers("tolls", "counts")
    started.check()
    started.stop()
    assert taken == ended == ["tolls", "counts"]


def test_an_error_of_one_is_raised_and_the_others_end_too(ended: list[str]) -> None:
    started, _ = readers("tolls.live", "counts")
    with pytest.raises(KafkaException, match="AUTHORIZATION"):
        started.check()
    with pytest.raises(KafkaException, match="AUTHORIZATION"):
        started.stop()
    assert ended == ["tolls.live", "counts"]


def test_a_rush_does_not_wait_for_what_nobody_reads(tmp_path: Path) -> None:
    rush = Rush(one_stage(tmp_path, "rows"), tmp_path, lambda _: None)
    rush.readers, _ = readers("tolls", "tolls.live")
    deployment: Any = SimpleNamespace(check_running=lambda: None, log_tail=lambda: "")
    waiting = _Waiting(rush, deployment, lambda *_: None)
    with pytest.raises(KafkaException, match="AUTHORIZATION"):
        waiting.until(lambda: False, 1.0, "steady results")
