"""Checks of the shards of a pipeline file's sources, stages and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from anabranch.pipeline.document import Document, Place
from anabranch.pipeline.model import Output, Source, Stage
from anabranch.protocol.limits import INPUTS_MAX, SHARDS_MAX

GENERATIONS_MAX: Final = 100
"""Maximum number of generations of shards of a source or output. Each process asks the broker for
the topics of all generations that a file could name.
"""


def numbers_of_shards(
    document: Document, value: object, at: Place, whose: str, *, may_forget: bool = False
) -> list[int]:
    """Return the numbers of shards that a source or output (``whose``) has had; the last one is the
    current. ``may_forget``: leading numbers may be 0.
    """
    if not isinstance(value, list):
        return [document.integer(value, at, 1, SHARDS_MAX)]
    if not 0 < len(value) <= GENERATIONS_MAX:
        document.mistake(
            at,
            f"a list of {len(value)} numbers; write the number of shards, or a list of all numbers"
            f" that the {whose} has had, at most {GENERATIONS_MAX}, with the wanted number last",
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
    stage_shards: Mapping[str, list[str]],
) -> None:
    """Report stages that read more streams than the limit, and shards whose topics Kafka would
    confuse with others: it takes names for equal that differ only in a dot and an underscore.

    ``stages``: the stages that run; ``stage_shards``: names of the shards of those that are split.
    """
    of_sources = {each.name: each.streams() for each in sources.values() if each is not None}
    counts = {name: len(streams) for name, streams in (of_sources | dict(stage_shards)).items()}
    for name, stage in stages.items():
        streams = sum(counts.get(stream, 1) for stream in stage.reads)
        if streams > INPUTS_MAX >= len(stage.reads) and stage.is_whole_or_first_shard:
            document.mistake(
                ("stages", name, "reads"),
                f"its inputs have {streams} streams, a stage reads at most {INPUTS_MAX}: give them"
                " fewer shards, or write 0 for earlier numbers whose streams are no longer needed",
            )
    names = [*counts, *stages]
    for name, streams_of in of_sources.items():
        if streams_of != [name]:
            _check_confusable(document, "sources", name, streams_of, names)
    for name, shards in stage_shards.items():
        _check_confusable(document, "stages", name, shards, names)


def check_output_shards(document: Document, outputs: Mapping[str, Output | None]) -> None:
    """Report shards of outputs whose topics Kafka would confuse with others'."""
    for output in (each for each in outputs.values() if each is not None):
        processes = [*output.earlier_processes(), *output.processes()]
        if processes != [output.name]:
            _check_confusable(document, "outputs", output.name, processes, outputs)


def _check_confusable(
    document: Document, section: str, name: str, shards: Iterable[str], names: Iterable[str]
) -> None:
    """Report those ``shards`` of ``name`` that Kafka would confuse with one of ``names``."""
    for shard in shards:
        alike = shard.replace(".", "_")
        if alike != shard and alike in names:
            document.mistake(
                (section, name, "shards"),
                f"the topics of its shard {shard} and those of {alike} would have names that"
                f" Kafka takes for equal; give {alike} another name",
            )
