"""``ingestion.source_topics``: what is wrong with a topic is said before anything is read."""

from __future__ import annotations

import pytest

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.ingestion import source_topics
from anabranch.pipeline.model import EventTime, Pipeline
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.limits import RECORD_BYTES_ON_BROKER_MAX
from harness.sources import create_topics, pipeline


def check(log: LocalEventLog, of: Pipeline) -> source_topics.SourceTopics:
    return source_topics.check(log.admin(), of, of.sources["reports"], "reports")


def test_says_which_is_missing() -> None:
    log, of = LocalEventLog(), pipeline("p", ("cars", "trucks"))
    log.admin().create([TopicSettings("p.cars", 3)])
    with pytest.raises(ConfigurationError, match=r"topic p\.trucks does not exist: create it"):
        check(log, of)
    log.admin().create([TopicSettings("p.trucks", 1)])
    with pytest.raises(
        ConfigurationError,
        match=r"p\.reports\.blocks\.0 does not exist: 'anabranch topics' creates it",
    ):
        check(log, of)


def test_takes_the_dead_letter_topic_of_the_catalog_whatever_the_input_takes() -> None:
    """A record that is too large is cut; and `anabranch topics --create` may have created the topic
    before the input.
    """
    log, of = LocalEventLog(), pipeline("p")
    create_topics(log, of, 3, config={"max.message.bytes": "20000000"})
    assert check(log, of) == source_topics.SourceTopics(
        {"p.reports": 3}, blocks=2, dead_letter=1, rejected_kept_ms=2_592_000_000
    )
    assert log.admin().settings("p.reports.rejected")["max.message.bytes"] == str(
        RECORD_BYTES_ON_BROKER_MAX
    )
    assert check(log, of).dead_letter == 1, "and takes it as it is from then on"


def test_makes_the_dead_letter_topic_as_the_catalog_says() -> None:
    log, of = LocalEventLog(), pipeline("p")
    create_topics(log, of, config={"max.message.bytes": "1000"})
    check(log, of)
    assert log.admin().settings("p.reports.rejected")["max.message.bytes"] == "16777216"


@pytest.mark.parametrize(
    ("largest", "needed"), [(2_000_000, 2_065_536), (20_000_000, RECORD_BYTES_ON_BROKER_MAX)]
)
def test_rejects_a_dead_letter_topic_that_is_too_small(largest: int, needed: int) -> None:
    log, of = LocalEventLog(), pipeline("p")
    create_topics(log, of, config={"max.message.bytes": str(largest)})
    log.admin().create(
        [TopicSettings("p.reports.rejected", 4, config={"max.message.bytes": str(needed - 1)})]
    )
    with pytest.raises(
        ConfigurationError,
        match=(
            rf"takes records of {needed - 1} .* up to {largest}, and headers are added: set"
            rf" max\.message\.bytes={needed} on p\.reports\.rejected"
        ),
    ):
        check(log, of)


def test_arrival_needs_the_time_of_the_broker() -> None:
    log, of = LocalEventLog(), pipeline("p", event_time=EventTime(field=None))
    create_topics(log, of)
    with pytest.raises(
        ConfigurationError,
        match=(
            r"needs message\.timestamp\.type=LogAppendTime on topic p\.reports; it has CreateTime"
        ),
    ):
        check(log, of)
    log, of = LocalEventLog(), pipeline("p", event_time=EventTime(field=None))
    create_topics(log, of, config={"message.timestamp.type": "LogAppendTime"})
    assert check(log, of).inputs == {"p.reports": 2}


def test_a_producers_time_needs_the_time_of_the_producer() -> None:
    log, of = LocalEventLog(), pipeline("p", event_time=EventTime(field=None, of_producer=True))
    create_topics(log, of, config={"message.timestamp.type": "LogAppendTime"})
    with pytest.raises(
        ConfigurationError,
        match=r"type=CreateTime on topic p\.reports; it has LogAppendTime",
    ):
        check(log, of)
    log = LocalEventLog()
    create_topics(log, of)
    assert check(log, of).inputs == {"p.reports": 2}


@pytest.mark.parametrize("policy", ["compact", "compact,delete"])
def test_rejects_a_dead_letter_topic_that_is_compacted(policy: str) -> None:
    """Compaction would keep only the last record of each key."""
    log, of = LocalEventLog(), pipeline("p")
    create_topics(log, of)
    log.admin().create([TopicSettings("p.reports.rejected", 1, config={"cleanup.policy": policy})])
    with pytest.raises(
        ConfigurationError,
        match=rf"topic p.reports.rejected has cleanup.policy={policy}.*set cleanup.policy=delete",
    ):
        check(log, of)


@pytest.mark.parametrize(("retention", "kept_ms"), [("60000", 60_000), ("-1", None)])
def test_says_how_long_dead_letters_are_kept(retention: str, kept_ms: int | None) -> None:
    log, of = LocalEventLog(), pipeline("p")
    create_topics(log, of)
    config = {"retention.ms": retention}
    log.admin().create([TopicSettings("p.reports.rejected", 1, config=config)])
    assert check(log, of).rejected_kept_ms == kept_ms
