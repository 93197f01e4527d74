"""What a pipeline file may not say of the shards of its sources and outputs."""

from __future__ import annotations

from collections.abc import Mapping

from anabranch.pipeline.document import Document
from anabranch.pipeline.model import Output, Source, Stage
from anabranch.protocol.limits import INPUTS_MAX


def check_shards(
    document: Document, sources: Mapping[str, Source | None], stages: Mapping[str, Stage]
) -> None:
    """A stage reads no more streams than it can; and Kafka, to which a dot and an underscore are
    one in some places, does not take two names that differ in them only.
    """
    counts = {name: source.shards for name, source in sources.items() if source is not None}
    for name, stage in stages.items():
        streams = sum(counts.get(stream, 1) for stream in stage.reads)
        if streams > INPUTS_MAX >= len(stage.reads):
            document.mistake(
                ("stages", name, "reads"),
                f"its sources have {streams} streams, a stage reads at most {INPUTS_MAX}: give the"
                " sources fewer shards",
            )
    for source in (each for each in sources.values() if each is not None and each.shards > 1):
        for stream in source.streams():
            alike = stream.replace(".", "_")
            if alike in counts or alike in stages:
                document.mistake(
                    ("sources", source.name, "shards"),
                    f"the topics of its shard {stream} and those of {alike} would have names that"
                    f" Kafka takes for the same: give {alike} another name",
                )


def check_output_shards(document: Document, outputs: Mapping[str, Output | None]) -> None:
    """The same of the names of outputs, whose shards have topics, too."""
    for output in (each for each in outputs.values() if each is not None and each.shards > 1):
        for process in output.processes():
            alike = process.replace(".", "_")
            if alike in outputs:
                document.mistake(
                    ("outputs", output.name, "shards"),
                    f"the topics of its shard {process} and those of {alike} would have names that"
                    f" Kafka takes for the same: give {alike} another name",
                )
