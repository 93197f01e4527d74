"""Whether a command is at the right broker: the topic that it reads is there."""

from __future__ import annotations

from contextlib import closing

from anabranch.ports import EventLog
from anabranch.protocol.errors import ConfigurationError


def check_topic(log: EventLog, topic: str, pipeline: str) -> None:
    """Look for an internal topic of a pipeline, and say what is wrong in a person's words.

    Raises:
        ConfigurationError: it is not there.
        Unavailable: the broker does not answer.
    """
    with closing(log.admin()) as admin:
        if admin.partitions([topic]).get(topic) is None:
            raise ConfigurationError(
                f"topic {topic} does not exist on this broker: pipeline {pipeline} has not run"
                " there; name the broker on which it runs with --kafka"
            )
