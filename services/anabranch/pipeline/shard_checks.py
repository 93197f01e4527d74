"""What a pipeline file may not say of the shards of its sources, stages and outputs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.pipeline.document import Document
from anabranch.pipeline.model import Output, Source, Stage
from anabranch.protocol.edge.shards import members
from anabranch.protocol.limits import INPUTS_MAX


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
    for output in (each for each in outputs.values() if each is not None and each.shards > 1):
        _check_alike(document, "outputs", output.name, output.processes(), outputs)


def _check_alike(
    document: Document, section: str, name: str, shards: Iterable[str], names: Iterable[str]
) -> None:
    """The shards of ``name`` beside the other ``names``."""
    for shard in shards:
        alike = shard.replace(".", "_")
        if alike in names:
            document.mistake(
                (section, name, "shards"),
                f"the topics of its shard {shard} and those of {alike} would have names that"
                f" Kafka takes for the same: give {alike} another name",
            )
