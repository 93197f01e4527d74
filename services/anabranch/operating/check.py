"""``python -m anabranch.operating.check FILE [OFFERS]``: check each stage's function with Spark,
without running it.

Builds the query of every stage on empty inputs of the right columns and prints one line per
finding. OFFERS is the pipeline file of a participant that runs stages of FILE for its owner; with
it, only the stages that this participant runs are checked.

Exit code 0: every stage can run; 2: at least one cannot.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.adapters.spark.query import StageQuery, build_query_alone
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.progress import Progress, printed, unwatched
from anabranch.adapters.system.scratch import Scratch
from anabranch.codec.blocks import EVENT_TIME
from anabranch.codec.edge import Encoder, Key
from anabranch.codec.time_units import wrong_unit
from anabranch.operating.trial import source_rows
from anabranch.pipeline.file import load, with_place
from anabranch.pipeline.offer_columns import not_as_stated, offered_inputs
from anabranch.pipeline.scaling import describe_scaling
from anabranch.pipeline.source_columns import source_schema
from anabranch.pipeline.transforms import import_roots
from anabranch.pipeline.waits import (
    describe,
    describe_shedding,
    too_long,
    too_open,
    too_short,
    too_short_to_shed,
    worth_less,
)
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.errors import ConfigurationError, StageFunctionError

if TYPE_CHECKING:
    from anabranch.pipeline.model import OfferedStage, Pipeline, Sink, Stage


def check_plans(pipeline: Pipeline, progress: Progress = unwatched) -> tuple[list[str], list[str]]:
    """Build the query of each stage, and return (errors, facts) as sentences.

    Starts Spark in this process and stops it before it returns. ``progress`` receives the number of
    stages that were checked.
    """
    checked = [s for s in pipeline.stages.values() if pipeline.host in ("", s.participant)]
    with tempfile.TemporaryDirectory(prefix="anabranch-check-") as folder:
        session = start_session(
            "check",
            master="local[1]",
            memory="512m",
            state_partitions=1,
            import_roots=import_roots(checked, pipeline.path),
            scratch=Scratch(Path(folder)),
        )
        try:
            plans = _Plans(pipeline, partial(build_query_alone, session, pipeline))
            # Upstream stages first: the columns that a stage reads are those that its plan gives.
            ordered = (pipeline.stages[name] for name in pipeline.order())
            for number, stage in enumerate(each for each in ordered if each in checked):
                progress("stages", number, len(checked))
                plans.check(stage)
        finally:
            session.stop()
    return [*plans.errors, *sink_mistakes(pipeline, plans.schemas)], plans.facts


class _Plans:
    """Findings about the stages' plans. Stages must be checked after the stages that they read."""

    def __init__(
        self, pipeline: Pipeline, build: Callable[[str, Mapping[str, pa.Schema]], StageQuery]
    ) -> None:
        """Start with the columns of the sources and bindings.

        ``build`` builds the query of a stage from the stage's name and its inputs' schemas.
        """
        self._pipeline = pipeline
        self._build = build
        self.schemas: dict[str, pa.Schema] = {
            name: source_schema(pipeline, name) for name in (*pipeline.sources, *pipeline.bindings)
        }
        """Columns of each stream that is known so far, by its name."""
        self.errors: list[str] = []
        """Sentences about stages that cannot run."""
        self.facts: list[str] = []
        """Sentences that the user should know."""

    def check(self, stage: Stage) -> None:
        """Add the facts and errors about ``stage``, and the columns of its result."""
        if not stage.is_whole_or_first_shard:
            return
        unknown = [s for s in stage.reads if s not in self.schemas]
        if unknown and self._pipeline.host:
            self.facts.append(
                f"stage {stage.name}: not checked, because the columns of {', '.join(unknown)} are"
                " not known here"
            )
        elif unknown:
            self._fail(stage, f"not checked, because {', '.join(unknown)} cannot run")
        elif stage.offered is not None and not stage.has_code:
            self._check_offered(stage, stage.offered)
        else:
            self._check_plan(stage)

    def _fail(self, stage: Stage, text: str) -> None:
        """Note a mistake in ``stage``."""
        self.errors.append(f"{with_place(self._pipeline, 'stages', stage.name)}: {text}")

    def _check_offered(self, stage: Stage, offered: OfferedStage) -> None:
        """Check a stage whose code only the offering participant has: its stated columns."""
        try:
            offered_inputs(stage, self.schemas)
        except ConfigurationError as error:
            self._fail(stage, str(error))
            return
        gives = offered.gives.arrow_schema()
        self.schemas[stage.name] = gives.append(pa.field(EVENT_TIME, pa.int64()))
        self.facts.append(
            f"stage {stage.name}: runs at {stage.participant}; gives {_listed(gives)}"
        )

    def _check_plan(self, stage: Stage) -> None:
        """Check a stage whose code is here: let Spark analyse the query of its function."""
        name, inputs = stage.name, {s: self.schemas[s] for s in stage.reads}
        try:
            query = self._build(name, inputs)
        except (ConfigurationError, StageFunctionError) as error:
            self._fail(stage, str(error))
            return
        stated = self._pipeline.publish_records.get(name)
        if stated is not None and (wrong := not_as_stated(stated, query.schema)):
            self._fail(stage, f"it does not give what publish says: {wrong}")
        self.schemas[name] = self.schemas[whole_of(name)] = query.schema
        traits = query.traits
        kind = "stateful" if traits.is_stateful else "stateless"
        self.facts.append(f"stage {name}: {kind}; {traits.batch}; gives {_listed(query.schema)}")
        if stage.share is not None:
            shards = len(self._pipeline.begins_with(whole_of(name)))
            self.facts.append(f"stage {name}: one of {shards} shards, which are alike")
        if self._pipeline.halves(name):
            self.facts.append(
                f"stage {name}: may be split while it runs (anabranch split {name}); its halves"
                f" take over when they have read {stage.state_horizon_ms} ms of input, its"
                " state_horizon, and are proven"
            )
        self.facts += [f"stage {name}: {traits.batch}, because {r}" for r in traits.reasons]
        if traits.reasons:
            self.facts.append(
                f"stage {name}: set `bucket` to more than the duration of a batch; otherwise"
                " buckets arrive faster than batches run, and queue up"
            )


def _listed(schema: pa.Schema) -> str:
    """Return the columns of ``schema`` with their types, for people."""
    return ", ".join(f"{field.name} {field.type}" for field in schema)


def sink_mistakes(pipeline: Pipeline, schemas: Mapping[str, pa.Schema]) -> list[str]:
    """Return an error for each output that delivery could not write: a key that is no column, or a
    column whose type the format lacks.

    ``schemas`` holds the columns of each stage's result. Outputs of other stages are skipped.
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
                Encoder(columns, sink.format, Key(sink.key, sink.key_format), name=name)
            except ConfigurationError as error:
                place = with_place(pipeline, "outputs", name)
                found.append(f"{place}.{which}: {error}")
    return found


def wrong_units(pipeline: Pipeline) -> list[str]:
    """Return a sentence for each file of sample records, ``tests/CASE/SOURCE.jsonl``, whose event
    times are as if of another unit, or cannot be read.
    """
    found = []
    for name, source in pipeline.sources.items():
        for path in sorted(pipeline.path.parent.glob(f"tests/*/{name}.jsonl")):
            try:
                times = source_rows(pipeline, name, path)[EVENT_TIME]
            except ConfigurationError as error:
                found.append(f"source {name}: {error}")
                continue
            if source.event_time.field is None or not len(times):
                continue
            newest_ms = pc.max(times.cast(pa.int64())).as_py()
            if why := wrong_unit(newest_ms, source.event_time.number_unit):
                found.append(f"source {name}: {path}: {why}")
    return found


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    if not 1 <= len(arguments) <= 2 or arguments[0].startswith("-"):
        sys.stdout.write((__doc__ or "") + "\n")
        return 0 if arguments in (["--help"], ["-h"]) else 2
    try:
        pipeline = load(*(Path(each) for each in arguments))
        errors, facts = check_plans(pipeline, printed())
        facts += (
            []
            if pipeline.host
            else [
                *describe(pipeline),
                *describe_shedding(pipeline),
                *describe_scaling(pipeline),
                *too_short(pipeline),
                *too_short_to_shed(pipeline),
                *worth_less(pipeline),
                *too_open(pipeline),
                *too_long(pipeline),
                *wrong_units(pipeline),
            ]
        )
    except ConfigurationError as error:
        errors, facts = [str(error)], []
    for line in [*facts, *(f"error: {text}" for text in errors)]:
        sys.stdout.write(line + "\n")
    return 2 if errors else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
