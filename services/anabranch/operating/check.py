"""``python -m anabranch.operating.check FILE [OFFERS]``: what Spark thinks of each stage's
function, without running it.

Builds every stage's query on made-up inputs and prints one line per finding. Exit code 0: all can
run; 2: something cannot. With OFFERS, the pipeline file of who runs in FILE what it offers, only
that is looked at.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from anabranch.adapters.spark.query import StageQuery, build_query
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.progress import Progress, printed, unwatched
from anabranch.adapters.system.scratch import Scratch
from anabranch.codec.blocks import EVENT_TIME
from anabranch.codec.edge import Encoder
from anabranch.pipeline.file import load
from anabranch.pipeline.shape import describe, too_open, too_short
from anabranch.pipeline.transforms import import_roots
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.errors import ConfigurationError, StageFunctionError
from anabranch.runtime.offered_columns import not_as_stated, offered_inputs
from anabranch.runtime.source_columns import source_schema

if TYPE_CHECKING:
    from anabranch.pipeline.model import Offer, Pipeline, Sink, Stage


def check_plans(pipeline: Pipeline, progress: Progress = unwatched) -> tuple[list[str], list[str]]:
    """(what cannot run, what a person should know), as sentences. Starts Spark in this
    process for the time of the call. ``progress`` gets how many stages have been looked at.
    """
    looked_at = [s for s in pipeline.stages.values() if pipeline.host in ("", s.participant)]
    with tempfile.TemporaryDirectory(prefix="anabranch-check-") as folder:
        session = start_session(
            "check",
            master="local[1]",
            memory="512m",
            state_partitions=1,
            import_roots=import_roots(looked_at, pipeline.path),
            scratch=Scratch(Path(folder)),
        )
        try:
            build = partial(build_query, session, pipeline, kafka="", socket="")
            plans = _Plans(pipeline, build)
            ordered = (pipeline.stages[name] for name in pipeline.order())
            for number, stage in enumerate(each for each in ordered if each in looked_at):
                progress("stages", number, len(looked_at))
                plans.look(stage)
        finally:
            session.stop()
    return [*plans.errors, *sink_mistakes(pipeline, plans.schemas)], plans.facts


class _Plans:
    """The stages' plans, looked at in the order in which one reads another."""

    def __init__(
        self, pipeline: Pipeline, build: Callable[[str, Mapping[str, pa.Schema]], StageQuery]
    ) -> None:
        """``build``: the query of a stage, of its name and its inputs' schemas."""
        self._pipeline = pipeline
        self._build = build
        self.schemas: dict[str, pa.Schema] = {
            name: source_schema(pipeline, name) for name in (*pipeline.sources, *pipeline.bindings)
        }
        """Of each input so far."""
        self.errors: list[str] = []
        self.facts: list[str] = []

    def look(self, stage: Stage) -> None:
        """Note the facts and errors about ``stage``."""
        if not stage.stands_for_all:
            return
        unknown = [s for s in stage.reads if s not in self.schemas]
        if unknown and self._pipeline.host:
            self.facts.append(
                f"stage {stage.name}: not checked, since what {', '.join(unknown)} gives is not"
                " known here"
            )
        elif unknown:
            self.errors.append(
                f"stage {stage.name}: not checked, since {', '.join(unknown)} cannot run"
            )
        elif stage.offered is not None and not stage.has_code:
            self._look_at_offered(stage, stage.offered)
        else:
            self._look_at_plan(stage)

    def _look_at_offered(self, stage: Stage, offered: Offer) -> None:
        """Of one whose code its owner has."""
        try:
            offered_inputs(stage, self.schemas)
        except ConfigurationError as error:
            self.errors.append(f"stage {stage.name}: {error}")
            return
        gives = offered.gives.arrow_schema()
        self.schemas[stage.name] = gives.append(pa.field(EVENT_TIME, pa.int64()))
        self.facts.append(f"stage {stage.name}: runs at {stage.participant}; gives {_words(gives)}")

    def _look_at_plan(self, stage: Stage) -> None:
        """What Spark makes of the stage's function."""
        name, inputs = stage.name, {s: self.schemas[s] for s in stage.reads}
        try:
            query = self._build(name, inputs)
        except (ConfigurationError, StageFunctionError) as error:
            self.errors.append(f"stage {name}: {error}")
            return
        stated = self._pipeline.publish_records.get(name)
        if stated is not None and (wrong := not_as_stated(stated, query.schema)):
            self.errors.append(f"stage {name}: it does not give what publish says: {wrong}")
        self.schemas[name] = self.schemas[whole_of(name)] = query.schema
        traits = query.traits
        kind = "stateful" if traits.is_stateful else "stateless"
        self.facts.append(f"stage {name}: {kind}; {traits.batch}; gives {_words(query.schema)}")
        if stage.share is not None:
            self.facts.append(f"stage {name}: one of {stage.share.count} shards, which are alike")
        self.facts += [f"stage {name}: {traits.batch}, because {r}" for r in traits.reasons]
        if traits.reasons:
            self.facts.append(
                f"stage {name}: make `bucket` wider than a batch takes, or what arrives"
                " faster than that will queue up"
            )


def _words(schema: pa.Schema) -> str:
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def sink_mistakes(pipeline: Pipeline, schemas: Mapping[str, pa.Schema]) -> list[str]:
    """What of the outputs cannot be written: keys that are no columns, columns that the format does
    not have. Delivery would stop at it.

    ``schemas``: of the rows of each stage; outputs of a stage that is not there are not judged.
    """
    found: list[str] = []
    for name, output in pipeline.outputs.items():
        schema = schemas.get(output.stage)
        if schema is None:
            continue
        columns = pa.schema([field for field in schema if field.name != EVENT_TIME])
        sinks: dict[str, Sink | None] = {"corrected": output.corrected, "live": output.live}
        for which, sink in sinks.items():
            if sink is None:
                continue
            try:
                Encoder(columns, sink.format, sink.key, name=name)
            except ConfigurationError as error:
                found.append(f"output {name}.{which}: {error}")
    return found


def main(arguments: list[str]) -> int:
    """The command; returns its exit code."""
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        sys.stdout.write((__doc__ or "") + "\n")
        return 0 if arguments in (["--help"], ["-h"]) else 2
    try:
        pipeline = load(*(Path(each) for each in arguments))
        errors, facts = check_plans(pipeline, printed())
        facts += (
            []
            if pipeline.host
            else [*describe(pipeline), *too_short(pipeline), *too_open(pipeline)]
        )
    except ConfigurationError as error:
        errors, facts = [str(error)], []
    for line in [*facts, *(f"error: {text}" for text in errors)]:
        sys.stdout.write(line + "\n")
    return 2 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
