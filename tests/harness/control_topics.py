"""Records on the control topics of a pipeline, by whichever process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, contextmanager

from anabranch.codec import control_records
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Pipeline
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.control.records import Alarm, ControlRecord, Heartbeat, Speaker
from anabranch.streams.heartbeats import HeartbeatSender
from harness.repeating import repeating
from harness.sources import everything


def topic_of(of: Pipeline, entry: ControlRecord) -> str:
    """Return the topic in which ``entry`` counts; of several the first."""
    return _topic(control_topics(of), entry)


def _topic(speakers: Mapping[str, Speaker], entry: ControlRecord) -> str:
    return next(topic for topic, speaker in speakers.items() if speaker.may_say(entry))


def say(log: EventLog, of: Pipeline, *entries: ControlRecord) -> None:
    """Write each where it counts."""
    writer = log.writer()
    speakers = control_topics(of)
    for entry in entries:
        writer.send(
            TopicPartition(_topic(speakers, entry), 0),
            control_records.encode(entry),
            control_records.key_of(entry),
        )
    writer.flush()
    writer.close()


@contextmanager
def beating(
    log: EventLog, topic: str, clock: Clock, newest: Callable[[], Heartbeat | None]
) -> Iterator[None]:
    """Send ``newest``, if there is any, again and again on a thread: an idle process counts as
    dead, however busy the test is.
    """
    with closing(HeartbeatSender(log, topic, clock, every_ms=200)) as sender:

        def say_so() -> None:
            if (beat := newest()) is not None:
                sender.send(beat)

        with repeating(say_so, 0.1):
            yield


def all_control_records(log: EventLog, of: Pipeline) -> list[ControlRecord]:
    """All that stands in the topics, one after the other."""
    return [
        control_records.decode(value)
        for topic in control_topics(of)
        for chunk in everything(log, topic)
        for value in chunk.values
    ]


def alarms(log: EventLog, of: Pipeline) -> list[Alarm]:
    found = (
        control_records.decode(value)
        for chunk in everything(log, of.topic_names.alarms())
        for value in chunk.values
    )
    return [entry for entry in found if isinstance(entry, Alarm)]
