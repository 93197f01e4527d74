"""The identity of a stream's life, by the topic of its boundary log."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.protocol.errors import Unavailable
from anabranch.streams.stream_life import check_life, life_of

TOPIC = "p.s.boundaries"


def made_anew(log: LocalEventLog) -> str:
    admin = log.admin()
    admin.delete_topics([TOPIC])
    admin.create([TopicSettings(TOPIC, 1)])
    return life_of(log, TOPIC)


def test_a_topic_that_is_made_anew_is_another_life() -> None:
    log = LocalEventLog()
    log.admin().create([TopicSettings(TOPIC, 1)])
    first = life_of(log, TOPIC)
    assert life_of(log, TOPIC) == first
    check_life(log, TOPIC, first)
    assert made_anew(log) != first
    with pytest.raises(Unavailable, match=f"topic {TOPIC} was deleted and made anew"):
        check_life(log, TOPIC, first)


def test_a_topic_that_is_missing_has_no_life() -> None:
    with pytest.raises(Unavailable, match=f"topic {TOPIC} does not exist"):
        life_of(LocalEventLog(), TOPIC)
