"""Topics that a pipeline file names, and checks that each has one use."""

from __future__ import annotations

import re
from collections.abc import Mapping

from anabranch.pipeline.document import Document, Place, key_text
from anabranch.pipeline.model import Output, Source, Stage
from anabranch.pipeline.topic_names import TopicNames

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")


def collides(topic: str, other: str) -> bool:
    """Return whether Kafka refuses one of two topics where the other is: their metrics would have
    one name.
    """
    return topic != other and topic.replace(".", "_") == other.replace(".", "_")


class TopicUses:
    """Uses of the topics of one file, noted while the file is read."""

    def __init__(self, document: Document) -> None:
        self._document = document
        self._places: dict[str, Place] = {}
        """Topic to the place at which the file names it first, to report further uses."""
        self._wrong: set[str] = set()
        """Names of topics with a mistake."""
        self._made_of: dict[str, str] = {}
        """Topic to the one of whose name its own is made."""

    def topic(self, value: object, at: Place, *, alone: bool = True, made_of: str = "") -> str:
        """Return ``value`` as a name that Kafka accepts; empty: it is no text.

        Args:
            value: Value of the file.
            at: Place of the value.
            alone: Whether the topic may have no other use.
            made_of: Name of which the file does not say this one, but that it is made of: a mistake
                in that name is reported once.
        """
        text = self._document.text(value, at)
        if text is None:
            return ""
        mistakes = self._mistakes(text, alone=alone)
        self._places.setdefault(text, at)
        self._made_of.setdefault(text, made_of)
        self._report(text, at, made_of, mistakes)
        return text

    def _report(self, topic: str, at: Place, made_of: str, mistakes: list[str]) -> None:
        """Report mistakes in a name, unless it is made of a wrong one."""
        if made_of not in self._wrong:
            for each in mistakes:
                self._document.mistake(at, each)
        self._wrong |= {topic} if mistakes else set()

    def _mistakes(self, text: str, *, alone: bool) -> list[str]:
        """Return what is wrong with the name ``text``."""
        found = list[str]()
        if not _TOPIC.match(text) or text in (".", ".."):
            found.append(
                f"{text!r} is not a topic name; use at most 249 letters, digits, '.', '_' and '-'"
            )
        found += [
            f"Kafka refuses topic {text} beside {other} ({key_text(place)}): it tells topics apart"
            " with '.' and '_' alike; give one another name"
            for other, place in self._places.items()
            if collides(text, other)
        ]
        first = self._places.get(text)
        if first is not None and (alone or first[-1] != "dead_letter"):
            found.append(f"topic {text} is used by {key_text(first)} already; a topic has one use")
        return found

    def check_internal(
        self,
        name: str,
        stages: Mapping[str, Stage],
        sources: Mapping[str, Source | None],
        outputs: Mapping[str, Output | None],
    ) -> None:
        """Report users' topics that are internal topics of the pipeline: both would write them."""
        names = TopicNames(name)
        internal = {names.manager(), names.fences(), names.alarms(), names.placement()}
        internal |= {
            topic
            for output in outputs.values()
            if output is not None
            for topic in (
                *map(names.progress, (*output.earlier_processes(), *output.processes())),
                names.live_progress(output.name),
            )
        }
        writers = {
            **{
                stream: ["0"]
                for source in sources.values()
                if source is not None
                for stream in source.streams()
            },
            **{key: stage.replica_ids() for key, stage in stages.items()},
        }
        for stream, replicas in writers.items():
            internal |= {
                names.boundaries(stream),
                *(names.blocks(stream, replica) for replica in replicas),
            }
        for topic, at in self._places.items():
            beside = next((each for each in internal if collides(topic, each)), None)
            if topic in internal or topic.startswith(f"{name}.control."):
                wrong = f"topic {topic} is an internal topic of this pipeline"
            elif beside is not None:
                wrong = (
                    f"Kafka refuses topic {topic} beside {beside}, an internal topic of this"
                    " pipeline: it tells topics apart with '.' and '_' alike"
                )
            else:
                continue
            self._report(topic, at, self._made_of[topic], [f"{wrong}; give it another name"])
