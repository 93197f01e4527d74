"""What a pipeline file may not say of the shards of its sources, stages and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.pipeline.document import Document, Place
from anabranch.pipeline.model import Output, Source, Stage
from anabranch.protocol.edge.shards import members
from anabranch.protocol.limits import INPUTS_MAX, SHARDS_MAX

GENERATIONS_MAX: Final = 100
"""Numbers of shards that a source or output has had, one after the other: each process asks the
broker for the topics of all that a file could name.
"""


def numbers_of_shards(
    document: Document, value: object, at: Place, whose: str, *, may_forget: bool = False
) -> list[int]:
    """The numbers of shards that a source or output (``whose``) has had, and at last the one that
    it has. ``may_forget``: the first ones may be 0.
    """
    if not isinstance(value, list):
        return [document.integer(value, at, 1, SHARDS_MAX)]
    if not 0 < len(value) <= GENERATIONS_MAX:
        document.mistake(
            at,
            f"a list of {len(value)} numbers; write the number of shards, or a list of all numbers"
            f" that the {whose} has had, at most {GENERATIONS_MAX}, with the one that it is"
            " to have at its end",
        )
        return [1]
    found: list[int] = []
    for index, each in enumerate(value):
        is_needed = not may_forget or index == len(value) - 1 or any(found)
        found.append(document.integer(each, (*at, index), int(is_needed), SHARDS_MAX))
    return found


def check_shards(
    document: Document,
    sources: Mapping[str, Source | None],
    stages: Mapping[str, Stage],
    stage_shards: Mapping[str, int],
) -> None:
    """A stage reads no more streams than it can; and Kafka, to which a dot and an underscore are
    one in some places, does not take two names that differ in them only.

    ``stages``: that run, ``stage_shards``: how many there are of those that are split.
    """
    of_sources = {each.name: each.streams() for each in sources.values() if each is not None}
    counts = {name: len(streams) for name, streams in of_sources.items()} | dict(stage_shards)
    for name, stage in stages.items():
        streams = sum(counts.get(stream, 1) for stream in stage.reads)
        if streams > INPUTS_MAX >= len(stage.reads) and stage.stands_for_all:
            document.mistake(
                ("stages", name, "reads"),
                f"its inputs have {streams} streams, a stage reads at most {INPUTS_MAX}: give them"
                " fewer shards, or write 0 for numbers that nobody needs any more",
            )
    names = [*counts, *stages]
    for name, streams_of in of_sources.items():
        if streams_of != [name]:
            _check_alike(document, "sources", name, streams_of, names)
    for name, count in stage_shards.items():
        _check_alike(document, "stages", name, members(name, count), names)


def check_output_shards(document: Document, outputs: Mapping[str, Output | None]) -> None:
    """The same of the names of outputs, whose shards have topics, too."""
    for output in (each for each in outputs.values() if each is not None):
        processes = [*output.earlier_processes(), *output.processes()]
        if processes != [output.name]:
            _check_alike(document, "outputs", output.name, processes, outputs)


def _check_alike(
    document: Document, section: str, name: str, shards: Iterable[str], names: Iterable[str]
) -> None:
    """The shards of ``name`` beside the other ``names``."""
    for shard in shards:
        alike = shard.replace(".", "_")
        if alike != shard and alike in names:
            document.mistake(
                (section, name, "shards"),
                f"the topics of its shard {shard} and those of {alike} would have names that"
                f" Kafka takes for the same: give {alike} another name",
            )
