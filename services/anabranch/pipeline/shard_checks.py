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
    counts = {name: source.shards for name, source in sources.items() if source is not None}
    counts |= stage_shards
    for name, stage in stages.items():
        streams = sum(counts.get(stream, 1) for stream in stage.reads)
        if streams > INPUTS_MAX >= len(stage.reads) and (
            stage.share is None or not stage.share.index
        ):
            document.mistake(
                ("stages", name, "reads"),
                f"its inputs have {streams} streams, a stage reads at most {INPUTS_MAX}: give them"
                " fewer shards",
            )
    names = [*counts, *stages]
    for section, split in (("sources", counts.keys() - stage_shards), ("stages", stage_shards)):
        for name in (each for each in split if counts[each] > 1):
            _check_alike(document, section, name, members(name, counts[name]), names)


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
