"""The pipeline that a file with the options of a seed would give, and its topics."""

from __future__ import annotations

from pathlib import Path

from anabranch.codec import record_schema
from anabranch.codec.catalog import TopicSettings, topic_settings
from anabranch.codec.live_records import ORIGIN_HEADER
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import (
    EventTime,
    IdleTimeout,
    LiveSink,
    Output,
    Pipeline,
    Shed,
    Sink,
    Source,
    Stage,
)
from anabranch.ports import LogAdmin
from anabranch.protocol.edge.origins import Origin
from anabranch.protocol.stage.owners_checkpoint import Transfer
from simulation import halves, scaled
from simulation.options import NAME, NEW_NODE, Options, OutputOptions

SCHEMA = record_schema.from_avro(
    {
        "type": "record",
        "name": "reading",
        "fields": [{"name": "time", "type": ["null", "long"]}]
        + [{"name": name, "type": "long"} for name in ("id", "key", "v")],
    },
    "reading",
)


def pipeline(options: Options, changes: int | None = None) -> Pipeline:
    """Return the pipeline of a file with these options, after so many ``changes`` of the number of
    shards; None: after all.
    """
    files = options.files if changes is None else changes + 1
    numbers = options.numbers[:files]
    sources = {
        name: Source(
            name=name,
            topics=[f"in.{name}"],
            record=SCHEMA,
            event_time=EventTime(field=None if options.is_arrival else "time"),
            out_of_orderness_ms=options.out_of_orderness_ms,
            idle_timeout=IdleTimeout(
                partition_ms=options.idle_ms, source_ms=options.source_idle_ms
            ),
            max_ahead_ms=options.max_ahead_ms,
            late=options.late,
            dead_letter=f"in.{name}.rejected",
            shards=numbers[-1],
            shards_before=list(numbers[:-1]),
        )
        for name in options.sources
    }
    stages = {
        stage.name: Stage(
            name=stage.name,
            participant=scaled.participant(options, stage.name),
            reads=list(stage.reads),
            transform=["m:f"],
            replicas=stage.replicas,
            on_missing_input=stage.policy,
            ha=stage.ha,
            transfer=Transfer.CHECKPOINT if stage.by_checkpoint else Transfer.REBUILD,
            shed=Shed(
                kind="keys" if stage.shed_key else "rows",
                by=dict.fromkeys(stage.reads, stage.shed_key),
            )
            if stage.sheds
            else Shed(),
            state_horizon_ms=stage.horizon_buckets * options.bucket_ms
            if options.declares_horizon(stage)
            else None,
        )
        for stage in options.stages
    }
    halved = halves.names(options)
    return Pipeline(
        name=NAME,
        path=Path("pipeline.yaml"),
        bucket_ms=options.bucket_ms,
        max_delay_ms=options.max_delay_ms,
        partitions=options.partitions,
        sources=sources,
        stages=halves.with_halves(stages, halved),
        stage_shards={name: [name, *those] for name, those in halved.items()},
        outputs={each.name: _output(each, files) for each in options.outputs},
        named_nodes={NEW_NODE: []} if options.scenario == "moved" else scaled.nodes(options),
        scaling=scaled.section(options),
        federation=options.federation,
    )


def upgraded(of: Pipeline, stage: str, version: int) -> Pipeline:
    """Return the pipeline with that version of a stage's function."""
    changed = of.stages[stage].model_copy(update={"version": version})
    return of.model_copy(update={"stages": of.stages | {stage: changed}})


def _output(of: OutputOptions, files: int) -> Output:
    *before, shards = of.numbers[:files]
    live = LiveSink(topic=of.live_topic, key=["key"], partitions=of.partitions, upsert=of.is_upsert)
    sink = Sink(topic=of.name, key=["key"], partitions=of.partitions)
    return Output(
        name=of.name,
        stage=of.stream,
        corrected=sink,
        live=live if of.is_live else None,
        shards=shards,
        shards_before=before,
        max_delay_ms=of.own_max_delay_ms,
    )


def create_topics(admin: LogAdmin, of: Pipeline, options: Options) -> None:
    """Create what ``anabranch up`` creates before it starts services."""
    names = of.topic_names
    specs = [
        topic_settings("placement", names.placement()),
        topic_settings("alarms", names.alarms()),
        *(
            topic_settings("fences" if speaker.fences else "control", topic)
            for topic, speaker in {
                topic: speaker
                for changes in range(options.files)
                for topic, speaker in control_topics(pipeline(options, changes)).items()
            }.items()
        ),
    ]
    specs += [
        topic_settings(
            "arrivals" if options.is_arrival else "input",
            f"in.{source}",
            options.source_partitions - (options.grown_ms is not None),
        )
        for source in options.sources
    ]
    for stream in of.streams():
        specs.append(topic_settings("boundaries", names.boundaries(stream)))
        specs += [
            topic_settings("blocks", names.blocks(stream, r), of.partitions)
            for r in of.stream_writers(stream)
        ]
    specs += [
        topic_settings("rejected", f"{each.name}.rejected", max(each.numbers))
        for each in options.outputs
    ]
    assert not admin.create(specs)
    if options.output_bytes_max is not None:
        assert not admin.create(
            [_bounded_output(admin, of, options.output_bytes_max, each) for each in options.outputs]
        )


def _bounded_output(
    admin: LogAdmin, of: Pipeline, bytes_max: int, output: OutputOptions
) -> TopicSettings:
    """Return the topic of ``output``, which takes records of ``bytes_max`` beside their origin."""
    boundaries = of.topic_names.boundaries(of.outputs[output.name].stage)
    origin = Origin(of.name, output.name, admin.topic_ids([boundaries])[boundaries])
    size_bytes = bytes_max + len(ORIGIN_HEADER) + len(origin.header)
    config = {"max.message.bytes": str(size_bytes)}
    return topic_settings("output", output.name, output.partitions, config=config)
