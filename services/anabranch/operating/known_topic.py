"""Check that a command was given the right broker: that the pipeline's topic exists there."""

from __future__ import annotations

from contextlib import closing

from anabranch.ports import EventLog
from anabranch.protocol.errors import ConfigurationError


def check_topic(log: EventLog, topic: str, pipeline: str) -> None:
    """Fail unless the internal topic ``topic`` of ``pipeline`` exists.

    Raises:
        ConfigurationError: the topic does not exist.
        Unavailable: the broker does not answer.
    """
    with closing(log.admin()) as admin:
        if admin.partitions([topic]).get(topic) is None:
            raise ConfigurationError(
                f"topic {topic} does not exist on this broker: pipeline {pipeline} has not run"
                " there; name the broker on which it runs with --kafka"
            )
