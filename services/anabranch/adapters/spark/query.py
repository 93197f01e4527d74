"""Construction of a stage's query: its inputs as streaming DataFrames, the user's functions over
them, and what the resulting plan allows.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyspark
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - the customary name
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import TimestampType

from anabranch import __version__
from anabranch.adapters.spark.function_errors import explain
from anabranch.adapters.spark.known_names import SPARK
from anabranch.adapters.spark.plan_facts import (
    OBSERVED,
    check_operations,
    literals_of,
    processors_used,
    read_facts,
    shape_of,
    used_columns,
)
from anabranch.adapters.spark.source import FORMAT
from anabranch.adapters.spark.source_options import SourceOptions
from anabranch.adapters.spark.state_plan import stateful_operators
from anabranch.codec.blocks import EVENT_TIME, schema_text
from anabranch.pipeline.offer_columns import not_as_offered, offered_inputs
from anabranch.pipeline.row_expressions import check_on
from anabranch.pipeline.transforms import import_transform
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.errors import ConfigurationError, StageFunctionError
from anabranch.protocol.log.stateful_plan import StatefulOperator, StatefulPlan
from anabranch.protocol.stage.intervals import Interval
from anabranch.protocol.stage.kept_rows import salt_of
from anabranch.protocol.stage.planner import PlanTraits, judge
from anabranch.protocol.stage.shares import Share

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline, Stage

_SPLITS_MAX: Final = 2
"""Default number of tasks that read one input."""
_ENGINE: Final = (
    f"anabranch {__version__}, Spark {pyspark.__version__},"
    f" Python {sys.version_info.major}.{sys.version_info.minor}"
)
"""Names and versions of the programs on which the description of a function's state depends."""


@dataclass(frozen=True, slots=True)
class StageQuery:
    """Query of a stage, ready to be started under any number of names."""

    frame: Callable[[str], DataFrame]
    """Function (the name that Spark knows the query by) that builds the query."""
    traits: PlanTraits
    schema: pa.Schema
    """Columns of the resulting rows, then event time as int64 ms."""
    fingerprint: str
    function: str
    stateful_plan: StatefulPlan
    """Description of the query's stateful operators, by which checkpoints of another function are
    recognised.
    """


def build_query(
    session: SparkSession,
    pipeline: Pipeline,
    stage_name: str,
    schemas: Mapping[str, pa.Schema],
    *,
    kafka: str,
    socket: str,
    splits_max: int = _SPLITS_MAX,
) -> StageQuery:
    """Build and judge the query of ``stage_name``.

    Args:
        session: The session, with the data source registered.
        pipeline: The pipeline.
        stage_name: One of its stages.
        schemas: Columns of each input.
        kafka: Address of the brokers, for the readers.
        socket: Path of the planner's socket.
        splits_max: Number of tasks that read one input.

    Raises:
        StageFunctionError: the function raised, or its result cannot be run; names the function.
        ConfigurationError: a function cannot be imported.
    """
    stage = pipeline.stages[stage_name]
    functions = functions_of(stage, pipeline)
    schemas = input_columns(stage, schemas)
    whole = schemas
    shed = stage.shed
    # A mistake in what chooses rows must not come to light only under load.
    if shed.function:
        import_transform(shed.function, pipeline.path)
    for name in shed.by if shed.expression else ():
        check_on(whole[name], shed.expression)
    keys = {name: () if stage.share is None else stage.share.by[name] for name in stage.reads}
    arguments = dict(zip(stage.reads, stage.arguments, strict=True))

    # Built up to three times: over all columns to judge the plan, over the used ones to see that
    # the function does not depend on the others, and once more for each query that is started.
    def build(
        columns: Mapping[str, list[str]],
        ordered: bool,
        query: str,
        schemas: Mapping[str, pa.Schema] = schemas,
        *,
        is_marked: bool = True,
    ) -> DataFrame:
        """Build the query over ``columns`` of its inputs."""
        inputs = {}
        for name in stage.reads:
            options = SourceOptions(
                blocks=_blocks_of(pipeline, name),
                query=query,
                stream=name,
                kafka=pipeline.clusters.get(pipeline.cluster_of(name), kafka),
                cluster=pipeline.cluster_of(name),
                socket=socket,
                schema=schema_text(schemas[name]),
                columns=tuple(columns[name]),
                optional=_optional(pipeline, name, whole[name]),
                width_ms=pipeline.bucket_ms,
                splits_max=splits_max,
                is_own=pipeline.is_of(stage.participant, name),
                ordered=ordered,
                kept_salt=salt_of(stage_name),
                kept_by=shed.by.get(name),
                kept_function=shed.function,
                kept_expression=shed.expression,
                kept_schema=schema_text(whole[name]) if shed.function or shed.expression else "",
                share_by=keys[name],
                share_bits="" if stage.share is None else stage.share.interval.bits,
                pipeline=str(pipeline.path),
            )
            inputs[arguments[name]] = input_frame(session, name, options, is_marked=is_marked)
        return apply_functions(functions, stage, inputs)

    everything = {name: [n for n in schemas[name].names if n != EVENT_TIME] for name in stage.reads}
    processors_used()
    frame = build(everything, ordered=False, query="")
    check_result(frame, stage)
    traits = judged(frame, stage, functions[-1])
    columns = {
        name: [*dict.fromkeys([*used_columns(frame, name), *keys[name]])] for name in stage.reads
    }
    schemas_read: Mapping[str, pa.Schema] = narrowed(schemas, columns)
    if not _makes_the_same(
        frame, lambda: build(columns, ordered=False, query="", schemas=schemas_read)
    ):
        check_repeats(stage, frame, build(everything, ordered=False, query=""))
        schemas_read = schemas
    schema = _result_schema(frame)
    if stage.offered is not None and (wrong := not_as_offered(stage, schema)):
        raise StageFunctionError(f"{stage.functions[-1]}: {wrong}")
    return StageQuery(
        lambda name: build(
            columns,
            ordered=not traits.is_batch_safe,
            query=name,
            schemas=schemas_read,
            is_marked=False,
        ),
        traits,
        schema,
        fingerprint_of(functions, stage, pipeline, schemas),
        ", ".join(stage.functions),
        _stateful_plan(frame if traits.is_stateful else None, functions, stage, schemas),
    )


def build_query_alone(
    session: SparkSession, pipeline: Pipeline, stage_name: str, schemas: Mapping[str, pa.Schema]
) -> StageQuery:
    """Build and judge the query of ``stage_name`` in a session in which no query runs.

    Raises:
        ConfigurationError: as ``build_query``.
        StageFunctionError: as ``build_query``, or the function starts queries of its own: results
            that go past anabranch are neither exact nor recovered.
    """
    query = build_query(session, pipeline, stage_name, schemas, kafka="", socket="")
    started = session.streams.active
    for each in started:
        each.stop()
    if started:
        raise StageFunctionError(
            f"{query.function}: starts a query of its own (writeStream.start()); return the"
            " DataFrame, and name its topic under `outputs`"
        )
    return query


def _stateful_plan(
    frame: DataFrame | None,
    functions: list[Callable[..., Any]],
    stage: Stage,
    schemas: Mapping[str, pa.Schema],
) -> StatefulPlan:
    """Describe the state of ``frame``; without a frame the stage has none. If the plan cannot be
    read, describe the state by the stage's whole source.
    """
    source = source_digest(functions, stage, schemas)
    operators = () if frame is None else stateful_operators(frame)
    if operators is None:
        operators = (StatefulOperator("function", (("source", (source,)),)),)
    return StatefulPlan(operators, source, _ENGINE, stage.version)


def _result_schema(frame: DataFrame) -> pa.Schema:
    """Return the columns of the rows that ``frame`` gives, then event time as int64 ms."""
    arrow = to_arrow_schema(frame.schema, timezone="UTC")
    fields = [arrow.field(name) for name in arrow.names if name != EVENT_TIME]
    return pa.schema([*fields, pa.field(EVENT_TIME, pa.int64())])


def _optional(pipeline: Pipeline, name: str, schema: pa.Schema) -> tuple[str, ...]:
    """Return the fields of a source's record that may be null: the user may have added them later.
    Every column of a stage's result is mandatory: its function always computes it.
    """
    return tuple(each.name for each in schema if each.nullable) if name in pipeline.sources else ()


def _blocks_of(pipeline: Pipeline, name: str) -> dict[str, str]:
    """Return, by stream of the input ``name``, the topics of its blocks without the dot and the
    replica.
    """
    names = pipeline.topic_names
    return {
        stream: names.blocks(stream, "").removesuffix(".")
        for stream in pipeline.input_streams(name)
    }


def narrowed(
    schemas: Mapping[str, pa.Schema], columns: Mapping[str, list[str]]
) -> dict[str, pa.Schema]:
    """Return the inputs' columns without those that are not in ``columns``, except event time: even
    an empty column costs a copy in every row.
    """
    return {
        name: pa.schema(
            [field for field in schema if field.name == EVENT_TIME or field.name in columns[name]]
        )
        for name, schema in schemas.items()
    }


def _makes_the_same(frame: DataFrame, build: Callable[[], DataFrame]) -> bool:
    """Return whether ``build`` gives a query that does the same as ``frame``. It may not, if a
    function inspects which columns exist.
    """
    try:
        other = build()
        return bool(other.schema == frame.schema) and shape_of(other) == shape_of(frame)
    except Exception:  # noqa: BLE001 - the user's code may raise anything if a column is missing
        return False


def input_frame(
    session: SparkSession, name: str, options: SourceOptions, *, is_marked: bool
) -> DataFrame:
    """Return the DataFrame that the user's function gets for one input.

    The plan moves its watermark (``adapters.spark.own_watermark``), not the rows. ``is_marked``:
    mark where the input begins by ``observe``, for a query that is only analysed.
    """
    frame = (
        session.readStream.format(FORMAT)
        .option("config", options.to_json())
        .load()
        .withWatermark(EVENT_TIME, "0 seconds")
    )
    return frame.observe(OBSERVED + name, F.count(F.lit(1)).alias("rows")) if is_marked else frame


def input_columns(stage: Stage, schemas: Mapping[str, pa.Schema]) -> Mapping[str, pa.Schema]:
    """Return the columns that the stage's function gets of each input, from those that exist.

    Raises:
        ConfigurationError: an input lacks columns that an offer promises, or the key by which
            rows are assigned to shards or left out.
    """
    found = offered_inputs(stage, schemas)
    share = stage.share
    if share is None and stage.shed.kind == "keys":
        share = Share(Interval(), stage.shed.by)
    if share is not None:
        types = {name: {each.name: str(each.type) for each in of} for name, of in found.items()}
        if wrong := share.wrong_keys(types):
            raise ConfigurationError(f"`shard_by` of {whole_of(stage.name)}: {wrong}")
    return found


def functions_of(stage: Stage, pipeline: Pipeline) -> list[Callable[..., Any]]:
    """Return the functions that compute the stage, in order.

    Raises:
        ConfigurationError: a function cannot be imported.
    """
    if not stage.has_code:
        raise ConfigurationError(
            f"the code of {stage.functions[0]} is only at participant {stage.participant}"
        )
    if stage.sql is None:
        path = stage.found_next_to(pipeline.path)
        return [import_transform(reference, path) for reference in stage.transform]
    text, reads = stage.sql, stage.arguments

    def sql(**given: Any) -> DataFrame:
        """Run the query over the inputs by name, with the stage's parameters as ``:name``."""
        session = given[reads[0]].sparkSession
        for name in reads:
            given[name].createOrReplaceTempView(f"`{name}`")
        return session.sql(
            text, args={name: value for name, value in given.items() if name not in reads}
        )

    return [sql]


def apply_functions(
    functions: list[Callable[..., Any]], stage: Stage, inputs: Mapping[str, DataFrame]
) -> DataFrame:
    """Apply the user's functions in order: the first to the inputs, by name, each other to the
    previous result. Each gets those parameters of the stage that it has arguments for.

    Raises:
        StageFunctionError: a function raised, or returned no DataFrame.
    """
    result: Any = None
    for i, (reference, function) in enumerate(zip(stage.functions, functions, strict=True)):
        accepted = inspect.signature(function).parameters
        anything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in accepted.values())
        parameters = {k: v for k, v in stage.parameters.items() if anything or k in accepted}
        try:
            result = function(**inputs, **parameters) if i == 0 else function(result, **parameters)
        except Exception as error:  # the user's code may raise anything
            raise StageFunctionError(explain(stage, reference, function, error)) from error
        if not isinstance(result, DataFrame):
            message = f"{reference}: returned {type(result).__name__}, not a DataFrame" + (
                "; end it with `return`" if result is None else ""
            )
            raise StageFunctionError(message)
    return result


def check_result(frame: DataFrame, stage: Stage) -> None:
    """Check that the result has distinct columns and a timestamp ``event_time``.

    Raises:
        StageFunctionError: the result has not.
    """
    names = frame.columns
    twice = sorted({n for n in names if names.count(n) > 1})
    lower = [name.lower() for name in names]
    alike = sorted({n for n in names if lower.count(n.lower()) > 1})
    problem = None
    if twice:
        problem = f"the result has more than one column {', '.join(twice)}"
    elif alike:
        problem = (
            f"the columns {', '.join(alike)} of the result differ by case alone, which Spark does"
            " not distinguish: give one another name"
        )
    elif not names:
        problem = "the statement gives no rows: a stage is one query, SELECT ... or WITH ... SELECT"
    elif EVENT_TIME not in names:
        how = (
            "withColumn('event_time', col('window.end'))"
            if stage.sql is None
            else "SELECT ..., window.end AS event_time"
        )
        problem = (
            f"the result has no column event_time (it has {', '.join(names)}): keep that of the"
            f" input, or after group by window(event_time, '10 seconds'): {how}"
        )
    elif not isinstance(frame.schema[EVENT_TIME].dataType, TimestampType):
        problem = (
            f"event_time of the result is {frame.schema[EVENT_TIME].dataType.simpleString()}, not a"
            " timestamp"
        )
    elif not frame.isStreaming:
        problem = "the result is not made from the stage's inputs"
    if problem:
        message = f"{stage.functions[-1]}: {problem}"
        raise StageFunctionError(message)


def judged(frame: DataFrame, stage: Stage, function: Callable[..., Any]) -> PlanTraits:
    """Judge what the query ``frame`` of ``stage``, which ``function`` returned, allows.

    Raises:
        StageFunctionError: the query cannot be run.
    """
    reference = stage.functions[-1]
    try:
        traits = judge(read_facts(frame, stage.reads, processors_used()), SPARK)
        if not traits.errors:
            check_operations(frame)
    except Exception as error:
        raise StageFunctionError(explain(stage, reference, function, error)) from error
    if traits.errors:
        raise StageFunctionError("; ".join(f"{reference}: {text}" for text in traits.errors))
    return traits


def check_repeats(stage: Stage, frame: DataFrame, again: DataFrame) -> None:
    """Check that the function, called once more, built the same query.

    A value that the function takes from a clock or a random generator while it builds the query
    becomes a constant of the query, which differs at every replica. A constant that changes more
    slowly than the two calls follow each other, such as a date, is not found.

    Raises:
        StageFunctionError: a constant differs.
    """
    before, after = literals_of(frame), literals_of(again)
    if len(before) != len(after):
        return
    changed = [f"{old} was {new}" for old, new in zip(before, after, strict=True) if old != new]
    if changed:
        message = (
            f"{stage.functions[-1]}: {changed[0]} when the function was called again: every replica"
            " would have another value. Take event_time for the clock, xxhash64 of a row's columns"
            " for chance, or a parameter of the stage"
        )
        raise StageFunctionError(message)


def fingerprint_of(
    functions: list[Callable[..., Any]],
    stage: Stage,
    pipeline: Pipeline,
    schemas: Mapping[str, pa.Schema],
) -> str:
    """Return a digest of everything that the results depend on besides the input. Replicas with
    different fingerprints are compared only if their versions are equal, and none of them is
    outvoted.
    """
    facts = (
        source_digest(functions, stage, schemas),
        pipeline.bucket_ms,
        __version__,
        pyspark.__version__,
    )
    return hashlib.blake2b(repr(facts).encode(), digest_size=16).hexdigest()


def source_digest(
    functions: list[Callable[..., Any]], stage: Stage, schemas: Mapping[str, pa.Schema]
) -> str:
    """Return a digest of what a person wrote of a stage: the modules of its functions, their
    parameters, and the columns of its inputs.
    """
    digest = hashlib.blake2b(digest_size=16)
    for function in functions:
        try:
            module = inspect.getmodule(function)
            text = inspect.getsource(module if module is not None else function)
        except (OSError, TypeError) as error:
            message = f"the source of {function!r} cannot be read: {error}"
            raise ConfigurationError(message) from error
        digest.update(text.encode())
    facts = (
        stage.transform if stage.sql is None else stage.sql,
        sorted(stage.parameters.items()),
        {n: str(s) for n, s in schemas.items()},
        "" if stage.share is None else stage.share.text(),
    )
    digest.update(repr(facts).encode())
    return digest.hexdigest()
