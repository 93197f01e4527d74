"""Origin of a delivered record: the output that wrote it, and the life of the stream it is from.

Theory of operation. The id of a record, (bucket, position), names it within one stream, and a topic
may hold records of several streams: of another pipeline that delivers to it, or of an earlier life
of the same one, whose internal topics were deleted and created again. So each delivered record
carries its origin beside its id, and both together name it. The life is the identity that the
broker gave the boundary topic of the stream: a boundary topic that is created again begins another
stream, with buckets and positions of its own.

Records of an earlier life of the same output stay where they are, and are told apart. Records of
another output that may still deliver are a mistake in a pipeline file: neither of the two
sequences would be in order for readers. An output refuses to begin on such a topic. One that has
begun continues, since its own records are right, and its status names the other output.

Invariants:
    ON1 delivery compares its records only with records of its own origin.
    ON2 progress that was recorded in another life says nothing about this one.
    ON3 no output begins on a topic with records of another output that has recorded progress.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final, Self

from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError
from anabranch.protocol.identifiers import RecordId, is_name

ORIGINS_MAX: Final = 100
"""Maximum number of origins that a reader of one topic remembers: every writer of the topic
could otherwise fill the memory of its readers.
"""

_CHARACTERS_MAX: Final = 400
"""Maximum length of an origin as text: two names of 63 characters and the longest topic id, with
room to spare.
"""


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """Producer of a record: one output of one pipeline, in one life of its stream."""

    pipeline: str
    output: str
    life: str
    """Identity of the boundary topic of the output's stream."""

    def __str__(self) -> str:
        return f"{self.pipeline}.{self.output}.{self.life}"

    @property
    def header(self) -> bytes:
        """Value of the header ``anabranch-origin``."""
        return str(self).encode()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the origin written as ``pipeline.output.life``.

        Raises:
            RemoteProtocolError: ``text`` is not of that form.
        """
        pipeline, _, rest = text.partition(".")
        output, _, life = rest.partition(".")
        if not (is_name(pipeline) and is_name(output) and life) or len(text) > _CHARACTERS_MAX:
            message = f"{text[:60]!r} is not the origin of a record"
            raise RemoteProtocolError(message)
        return cls(pipeline, output, life)

    def is_same_output(self, other: Origin) -> bool:
        """Return whether ``other`` is a life of the same output."""
        return (self.pipeline, self.output) == (other.pipeline, other.output)


class NewestIds:
    """Newest id of each origin in one partition of a corrected topic, where the ids of an origin
    ascend: a reader takes each record once, though the topic may hold some of them twice.
    """

    def __init__(self) -> None:
        self._newest: dict[str, RecordId] = {}
        """Id that was read last at the end, by origin."""

    def is_new(self, origin: str, ident: RecordId) -> bool:
        """Take the next record of the partition; return whether it was not there before."""
        newest = self._newest.pop(origin, None)
        is_new = newest is None or ident > newest
        self._newest[origin] = ident if newest is None or is_new else newest
        if len(self._newest) > ORIGINS_MAX:
            del self._newest[next(iter(self._newest))]
        return is_new


def other_outputs(own: Origin, found: Collection[Origin]) -> list[Origin]:
    """Return the origins in ``found`` that are lives of other outputs than ``own``."""
    return sorted(origin for origin in found if not own.is_same_output(origin))


def shared_topic(own: Origin, topic: str, other: Origin) -> ConfigurationError:
    """Return the error of an output that would begin on a topic of the output ``other`` (ON3)."""
    return ConfigurationError(
        f"output {own.output}: topic {topic} has results of output {other.output} of pipeline"
        f" {other.pipeline}, which may still deliver: deliver to a topic of its own; or, if that"
        f" output has ended for good, delete its progress topics ({other.pipeline}."
        f"{other.output}. ... .progress; `anabranch reset` deletes all topics of a pipeline)"
    )
