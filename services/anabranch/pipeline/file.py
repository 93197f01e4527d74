"""Reading the pipeline file.

The file is walked key by key with the line numbers that the YAML reader keeps; every mistake
becomes one line ``FILE:LINE: key.path: what; how to fix``, and the walk goes on, so that a person
sees all of them at once. Only a file without a single mistake becomes a ``Pipeline``.
"""

from __future__ import annotations

import difflib
import os
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, Literal, cast

from anabranch.codec.logical_types import TIMESTAMPS
from anabranch.codec.record_schema import RecordSchema
from anabranch.pipeline import transforms
from anabranch.pipeline.addresses import holds_password
from anabranch.pipeline.bindings import bindings, published
from anabranch.pipeline.document import MISSING, Document, Place, key_text, shown, words
from anabranch.pipeline.environment import fill_in
from anabranch.pipeline.federation import federation
from anabranch.pipeline.model import (
    EventTime,
    HaMode,
    IdleTimeout,
    LiveSink,
    Output,
    Pipeline,
    Sink,
    Source,
    Stage,
)
from anabranch.pipeline.named_records import read_record
from anabranch.pipeline.offered import Host, OfferedStages
from anabranch.pipeline.parameters import read_parameters
from anabranch.pipeline.resources import resources_of
from anabranch.pipeline.yaml_text import read_yaml
from anabranch.protocol import limits
from anabranch.protocol.control.placement import misplaced
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import TopicNames

_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}\Z")
_NODE = re.compile(r"[a-z][a-z0-9_-]{0,62}(\.[0-9]{1,3})?\Z")
_REGISTRY = re.compile(r"https?://[^\s?#,]{1,500}\Z")

_FILE_KEYS: Final = (
    "version",
    "pipeline",
    "bucket",
    "max_delay",
    "partitions",
    "sources",
    "stages",
    "nodes",
    "resources",
    "outputs",
    "bindings",
    "publish",
    "federation",
    "schema_registry",
)
_NEEDED: Final = "pipeline, sources, stages and outputs"
_SOURCE_KEYS: Final = (
    "start",
    "topics",
    "record",
    "format",
    "event_time",
    "out_of_orderness",
    "idle_timeout",
    "bounded",
    "max_ahead",
    "late",
    "extra_fields",
    "dead_letter",
)
_STAGE_KEYS: Final = (
    "participant",
    "reads",
    "transform",
    "sql",
    "offered",
    "replicas",
    "ha",
    "state_horizon",
    "on_missing_input",
    "version",
    "parameters",
)
_HA_MODES: Final = ("active", "passive", "upstream_backup", "amnesia")
_OUTPUT_KEYS: Final = ("stage", "corrected", "live")
_SINK_KEYS: Final = ("topic", "format", "key", "partitions")
_LIVE_KEYS: Final = (*_SINK_KEYS, "upsert")


def load(path: Path | str, offers: Path | None = None) -> Pipeline:
    """The pipeline in the file at ``path``.

    ``offers``: the pipeline file of whoever reads it to run in it what it offers.

    Raises:
        ConfigurationError: one line per mistake, ``FILE:LINE: key: what; how to fix``.
    """
    path, host = Path(path), None if offers is None else _host(offers)
    root = read_yaml(path)
    if not isinstance(root, dict):
        what = "the file is empty" if root is None else f"a mapping is wanted, not {shown(root)}"
        raise ConfigurationError(f"{path}:1: {what}; it needs {_NEEDED}")
    walk = _Walk(path, root, host)
    fill_in(root, os.environ if host is None else {}, walk.mistake)
    pipeline = walk.pipeline()
    if walk.mistakes or pipeline is None:
        raise ConfigurationError("\n".join(walk.sorted_mistakes()))
    return pipeline


def _host(path: Path) -> Host:
    federation = load(path).federation
    if federation is None or not federation.offers:
        raise ConfigurationError(f"{path} offers nothing: it has no federation.offers")
    return Host(federation, path)


class _Walk(Document):
    """One pass over the pipeline file."""

    def __init__(self, path: Path, root: object, host: Host | None) -> None:
        super().__init__(path, root)
        self._host = host
        self._topics: dict[str, Place] = {}
        """Topic to the place at which it was named first, for uses that exclude each other."""

    def topic(self, value: object, at: Place, *, alone: bool = True) -> str:
        """A name that Kafka takes. ``alone``: no other use of the topic is allowed."""
        text = self.text(value, at)
        if text is None:
            return ""
        if not _TOPIC.match(text) or text in (".", ".."):
            self.mistake(
                at,
                f"{text!r} is not a topic name; use at most 249 letters, digits, '.', '_' and '-'",
            )
        first = self._topics.get(text)
        if first is not None and (alone or first[-1] != "dead_letter"):
            self.mistake(
                at, f"topic {text} is used by {key_text(first)} already; a topic has one use"
            )
        self._topics.setdefault(text, at)
        return text

    # -- the file
    # ----------------------------------------------------------------------------------------------

    def pipeline(self) -> Pipeline | None:
        """The pipeline; only meaningful when there is no mistake."""
        top = self.mapping(self.root, (), _FILE_KEYS)
        version = top.get("version", 1)
        if version != 1 or isinstance(version, bool):
            self.mistake(
                ("version",),
                f"{shown(version)} is no version of the pipeline file that this anabranch reads;"
                " write version: 1",
            )
        name = self.name(top.get("pipeline", MISSING), ("pipeline",), "pipeline")
        bucket_ms = cast(
            "int", self.duration(top.get("bucket", "250ms"), ("bucket",), 10, 24 * 3_600_000)
        )
        max_delay_ms = cast("int", self.duration(top.get("max_delay", "3s"), ("max_delay",), 1))
        partitions = self.integer(
            top.get("partitions", 4), ("partitions",), 1, limits.PARTITIONS_MAX
        )
        sections = {
            key: self._section(top, key, needed=instead not in top)
            for key, instead in (
                ("sources", "bindings"),
                ("stages", "stages"),
                ("outputs", "publish"),
            )
        }
        for key, twice in (("stages", sections["sources"]), ("outputs", {})):
            for entry in sections[key]:
                if entry in twice:
                    self.mistake(
                        (key, entry),
                        f"{entry} is the name of a source already; give every stream its own name",
                    )
        bound = bindings(
            self,
            top.get("bindings", {}),
            [*sections["sources"], *sections["stages"]],
        )
        publish_ms = published(self, top.get("publish", {}), sections["stages"])
        registry = self._registry(top.get("schema_registry"))
        streams = [*sections["sources"], *bound, *sections["stages"]]
        sources = {key: self._source(key, value) for key, value in sections["sources"].items()}
        offered = OfferedStages(self, top.get("federation"), self._host)
        stages = {
            key: self._stage(key, value, streams, offered)
            for key, value in sections["stages"].items()
        }
        self._cycles(stages)
        records = {name: source.record for name, source in sources.items() if source is not None}
        records |= {name: binding.record for name, binding in bound.items()}
        offered.check(stages, records)
        federated = federation(
            self,
            top.get("federation", MISSING),
            stages,
            host="" if self._host is None else self._host.participant,
        )
        nodes = self._nodes(top.get("nodes", {}), stages)
        outputs = {
            key: self._output(key, value, sections) for key, value in sections["outputs"].items()
        }
        if name is None:
            return None
        self._internal_topics(name, stages, sources, outputs)
        resources = resources_of(self, top.get("resources", {}))
        if self.mistakes:
            return None
        pipeline = Pipeline(
            version=1,
            name=name,
            path=self.path,
            bucket_ms=bucket_ms,
            max_delay_ms=max_delay_ms,
            partitions=partitions,
            sources={key: value for key, value in sources.items() if value is not None},
            stages=stages,
            outputs={key: value for key, value in outputs.items() if value is not None},
            bindings=bound,
            publish_ms=publish_ms,
            named_nodes=nodes,
            resources=resources,
            federation=federated,
            schema_registry=registry,
        )
        known = [*pipeline.nodes(), *pipeline.partner_nodes]
        for node in resources:
            if node not in known:
                self.mistake(("resources", node), f"there is no node {node}; {_guess(node, known)}")
            elif node in pipeline.offering_nodes:
                owner = pipeline.offering_nodes[node]
                self.mistake(("resources", node), f"it is a node of {owner}, for {owner} to say")
        return pipeline

    def _registry(self, value: object) -> str | None:
        at: Place = ("schema_registry",)
        if value is None:
            return None
        if not isinstance(value, str) or not _REGISTRY.match(value):
            self.mistake(at, "write the URL of a schema registry, as http://registry:8081")
        elif holds_password(value):
            self.mistake(
                at,
                "it holds a password: set ANABRANCH_SCHEMA_REGISTRY_USERNAME and"
                " ANABRANCH_SCHEMA_REGISTRY_PASSWORD_FILE in the environment instead",
            )
        else:
            return value
        return None

    def _section(self, top: dict[str, Any], key: str, *, needed: bool) -> dict[str, Any]:
        if key not in top:
            if needed:
                self.mistake((), f"{key}: is missing; a pipeline has sources, stages and outputs")
            return {}
        section = self.mapping(top[key], (key,), None)
        if not section and isinstance(top[key], dict):
            self.mistake((key,), "is empty; name at least one")
        for entry in section:
            self.name(entry, (key, entry), key[:-1])
        return section

    def _source(self, name: str, value: object) -> Source | None:
        at: Place = ("sources", name)
        raw = self.mapping(value, at, _SOURCE_KEYS)
        if not isinstance(value, dict):
            return None
        topics = self.texts(raw.get("topics", MISSING), (*at, "topics"), "topic")
        for topic, place in topics:
            self.topic(topic, place)
        record = read_record(self, raw.get("record", MISSING), (*at, "record"))
        event_time = self._event_time(raw.get("event_time", MISSING), (*at, "event_time"), record)
        idle = self.mapping(
            raw.get("idle_timeout", {}), (*at, "idle_timeout"), ("partition", "source")
        )
        bounded = self.boolean(raw.get("bounded", False), (*at, "bounded"))
        format_ = self.choice(raw.get("format", "json"), (*at, "format"), ("json", "avro"))
        late = self.choice(
            raw.get("late", "dead_letter"), (*at, "late"), ("dead_letter", "reassign")
        )
        extra_fields = self.choice(
            raw.get("extra_fields", "ignore"), (*at, "extra_fields"), ("ignore", "reject")
        )
        if "extra_fields" in raw and format_ == "avro":
            self.mistake(
                (*at, "extra_fields"),
                "is for format: json; which fields a record in Avro has is what its schema says",
            )
        default = f"{topics[0][0]}.rejected" if topics else "rejected"
        dead_letter = self.topic(raw.get("dead_letter", default), (*at, "dead_letter"), alone=False)
        out_of_orderness_ms = self.duration(
            raw.get("out_of_orderness", "0ms"), (*at, "out_of_orderness")
        )
        partition_ms = self.duration(
            idle.get("partition", "5s"), (*at, "idle_timeout", "partition"), 1, word="never"
        )
        source_ms = self.duration(
            idle.get("source", "never"), (*at, "idle_timeout", "source"), 1, word="never"
        )
        start = self._start(raw.get("start", "earliest"), (*at, "start"))
        max_ahead_ms = self.duration(
            raw.get("max_ahead", "1m"), (*at, "max_ahead"), 1, word="unlimited"
        )
        if record is None or event_time is None:
            return None
        return Source(
            name=name,
            topics=[topic for topic, _ in topics],
            record=record,
            format=cast("Literal['json', 'avro']", format_),
            event_time=event_time,
            out_of_orderness_ms=out_of_orderness_ms or 0,
            idle_timeout=IdleTimeout(partition_ms=partition_ms, source_ms=source_ms),
            bounded=bounded,
            max_ahead_ms=max_ahead_ms,
            late=cast("Literal['dead_letter', 'reassign']", late),
            extra_fields=cast("Literal['ignore', 'reject']", extra_fields),
            dead_letter=dead_letter,
            start=start,
        )

    def _event_time(
        self, value: object, at: Place, record: RecordSchema | None
    ) -> EventTime | None:
        if value is MISSING:
            self.mistake(
                at[:-1],
                "event_time is missing; name the field, event_time: {field: NAME, unit: ms}, or"
                " event_time: arrival",
            )
            return None
        if value == "arrival":
            return EventTime(field=None)
        if isinstance(value, str):
            self.mistake(
                at, f"{value!r} is not known; use arrival, or {{field: {value}, unit: ms}}"
            )
            return None
        raw = self.mapping(value, at, ("field", "unit"))
        unit = self.choice(raw.get("unit", "ms"), (*at, "unit"), ("ms", "s", "us"))
        if not isinstance(value, dict):
            return None
        field = self.text(raw.get("field", MISSING), (*at, "field"))
        if field is not None and record is not None:
            known = [
                entry.name
                for entry in record.fields
                if entry.kind in ("int", "long") or entry.kind in TIMESTAMPS
            ]
            found = record.field(field)
            if found is None:
                guess = difflib.get_close_matches(field, [entry.name for entry in record.fields], 1)
                hint = (
                    f"did you mean {guess[0]!r}?"
                    if guess
                    else f"its integers and timestamps are {words(known)}"
                )
                self.mistake((*at, "field"), f"record {record.name} has no field {field}; {hint}")
            elif field not in known:
                self.mistake(
                    (*at, "field"),
                    f"{field} is neither an integer nor a timestamp; use one of {words(known)}, or event_time:"
                    " arrival",
                )
            elif found.kind in TIMESTAMPS:
                if "unit" in raw:
                    self.mistake(
                        (*at, "unit"), f"{field} is a {found.kind}, which has a unit; leave it out"
                    )
                return EventTime(field=field, unit="us", is_timestamp=True)
        return (
            None
            if field is None
            else EventTime(field=field, unit=cast("Literal['ms', 's', 'us']", unit))
        )

    def _start(self, value: object, at: Place) -> Literal["earliest", "latest"] | int:
        if value in ("earliest", "latest"):
            return cast("Literal['earliest', 'latest']", str(value))
        try:
            # YAML reads a time without quotes as one, in UTC where it names no zone.
            found = (
                value if isinstance(value, datetime) else datetime.fromisoformat(cast("str", value))
            )
            found_ms = round(
                (found if found.tzinfo is not None else found.replace(tzinfo=UTC)).timestamp()
                * 1_000
            )
        except (TypeError, ValueError):
            found_ms = -1
        if found_ms < 0:
            self.mistake(
                at,
                f"{shown(value)} is not known; use earliest, latest, or a time such as"
                " 2026-05-01T14:00:00Z",
            )
        return max(found_ms, 0)

    def _sql(self, raw: dict[str, Any], at: Place) -> str | None:
        if "sql" not in raw:
            return None
        if "transform" in raw:
            self.mistake((*at, "sql"), "a stage has either transform or sql; leave one of them out")
        return self.text(raw["sql"], (*at, "sql"))

    def _stage(self, name: str, value: object, streams: list[str], offered: OfferedStages) -> Stage:
        at: Place = ("stages", name)
        raw = self.mapping(value, at, _STAGE_KEYS)
        given = isinstance(value, dict)
        participant = (
            self.name(raw.get("participant", "local"), (*at, "participant"), "participant") or ""
        )
        reads = self.texts(raw.get("reads", MISSING), (*at, "reads"), "stream") if given else []
        for stream, place in reads:
            if stream not in streams:
                self.mistake(
                    place, f"there is no source or stage {stream}; {_guess(stream, streams)}"
                )
        if len(reads) > limits.INPUTS_MAX:
            self.mistake((*at, "reads"), f"at most {limits.INPUTS_MAX} inputs are possible")
        parameters = read_parameters(self, raw.get("parameters", {}), (*at, "parameters"))
        for key in parameters:
            if key in [stream for stream, _ in reads]:
                self.mistake(
                    (*at, "parameters", key),
                    f"{key} is an input of the stage already; give the parameter another name",
                )
        sql = self._sql(raw, at)
        references = (
            self._references(raw.get("transform", MISSING), (*at, "transform"))
            if given and "sql" not in raw and "offered" not in raw
            else []
        )
        for index, (reference, place) in enumerate(references if self._host is None else ()):
            alone = len(references) == 1
            problem = transforms.check(
                reference,
                self.path,
                [stream for stream, _ in reads],
                parameters if alone and index == 0 else None,
            )
            if problem is not None:
                self.mistake(place, problem)
        replicas = self.integer(raw.get("replicas", 1), (*at, "replicas"), 1, limits.REPLICAS_MAX)
        ha, state_horizon_ms = self._ha(raw, at, replicas)
        stage = Stage(
            name=name,
            participant=participant,
            reads=[stream for stream, _ in reads],
            transform=[reference for reference, _ in references],
            sql=sql,
            replicas=replicas,
            ha=ha,
            state_horizon_ms=state_horizon_ms,
            on_missing_input=cast(
                "Any",
                self.choice(
                    raw.get("on_missing_input", "process"),
                    (*at, "on_missing_input"),
                    ("process", "delay", "suspend"),
                ),
            ),
            version=self.integer(
                raw.get("version", 1), (*at, "version"), 1, limits.STAGE_VERSION_MAX
            ),
            parameters=parameters,
        )
        return offered.stage(stage, raw) if "offered" in raw else stage

    def _ha(self, raw: dict[str, Any], at: Place, replicas: int) -> tuple[HaMode, int | None]:
        """How the stage outlives the loss of a process: (mode, state horizon in ms)."""
        mode = cast("HaMode", self.choice(raw.get("ha", "active"), (*at, "ha"), _HA_MODES))
        alone = mode in ("upstream_backup", "amnesia")
        state_horizon_ms = (
            self.duration(
                raw["state_horizon"], (*at, "state_horizon"), 0, limits.STATE_HORIZON_MS_MAX
            )
            if "state_horizon" in raw
            else None
        )
        if mode == "passive" and replicas < limits.PASSIVE_REPLICAS_MIN:
            self.mistake(
                (*at, "ha"),
                "passive wants replicas: 2 or more: one runs, the others stand by; a single process"
                " is ha: active",
            )
        if alone and replicas > 1:
            self.mistake((*at, "ha"), f"{mode} is one process; use replicas: 1, or ha: active")
        if alone and "state_horizon" not in raw:
            example = (
                "state_horizon: 10s for windows of 10 seconds, 0ms for a function of single rows"
                " that keeps event_time"
            )
            self.mistake(
                (*at, "ha"),
                f"{mode} wants to know how much later than itself a record can still change"
                f" results; say {example}",
            )
        return mode, state_horizon_ms

    def _references(self, value: object, at: Place) -> list[tuple[str, Place]]:
        """As ``texts``, but the same function may come twice in a chain."""
        if isinstance(value, str):
            return [(str(value), at)]
        if not isinstance(value, list) or not value:
            self.mistake(
                at,
                (
                    "is missing; write module:function, or sql: with a query"
                    if value is MISSING
                    else f"module:function is wanted, not {shown(value)}"
                ),
            )
            return []
        found = [(self.text(item, (*at, index)), (*at, index)) for index, item in enumerate(value)]
        return [(text, place) for text, place in found if text is not None]

    def _nodes(self, value: object, stages: dict[str, Stage]) -> dict[str, list[str]]:
        """The nodes that the file names, with what they run."""
        found: dict[str, list[str]] = {}
        for node, labels in self.mapping(value, ("nodes",), None).items():
            if not _NODE.match(node):
                self.mistake(
                    ("nodes", node),
                    f"{node!r} is no name of a node; use lower case letters, digits, '_' and '-',"
                    " then .NUMBER if you like",
                )
            found[node] = (
                []
                if labels == []
                else [label for label, _ in self.texts(labels, ("nodes", node), "STAGE.REPLICA")]
            )
        for mistake in misplaced([stage.placed() for stage in stages.values()], found):
            given = found.get(mistake.node, [])
            if mistake.label in given:
                self.mistake(("nodes", mistake.node, given.index(mistake.label)), mistake.text)
            else:
                self.mistake(("nodes",), f"node {mistake.node}: {mistake.text}")
        return found

    def _cycles(self, stages: dict[str, Stage]) -> None:
        done: set[str] = set()

        def visit(name: str, trail: list[str]) -> None:
            if name in trail:
                cycle = trail[trail.index(name) :]
                start = cycle.index(min(cycle, key=list(stages).index))
                cycle = [*cycle[start:], *cycle[: start + 1]]
                self.mistake(
                    ("stages", cycle[0], "reads"),
                    f"stages read each other in a circle: {' reads '.join(cycle)}",
                )
                return
            if name in done:
                return
            for stream in stages[name].reads:
                if stream in stages:
                    visit(stream, [*trail, name])
            done.add(name)

        for name in stages:
            visit(name, [])

    def _output(
        self, name: str, value: object, sections: dict[str, dict[str, Any]]
    ) -> Output | None:
        at: Place = ("outputs", name)
        raw = self.mapping(value, at, _OUTPUT_KEYS)
        if not isinstance(value, dict):
            return None
        stage = self.text(raw.get("stage", MISSING), (*at, "stage"))
        if stage is not None and stage not in sections["stages"]:
            source = stage in sections["sources"]
            hint = (
                "it is a source; an output shows a stage"
                if source
                else _guess(stage, list(sections["stages"]))
            )
            self.mistake((*at, "stage"), f"there is no stage {stage}; {hint}")
        if "corrected" not in raw:
            self.mistake(at, "corrected is missing; name its topic, corrected: {topic: NAME}")
            return None
        corrected = self._sink(raw["corrected"], (*at, "corrected"))
        if corrected.topic:
            self.topic(f"{corrected.topic}.rejected", (*at, "corrected", "topic"))
        live = self._live(raw["live"], (*at, "live"), corrected) if "live" in raw else None
        return Output(name=name, stage=stage or "", corrected=corrected, live=live)

    def _live(self, value: object, at: Place, corrected: Sink) -> LiveSink:
        sink = self._sink(value, at, _LIVE_KEYS)
        raw = value if isinstance(value, dict) else {}
        upsert = self.boolean(raw.get("upsert", False), (*at, "upsert"))
        key = sink.key if "key" in raw else corrected.key
        if upsert and not key:
            self.mistake(
                (*at, "upsert"),
                "an upsert view holds one value per key; name the columns of the key, key:"
                " [COLUMN]",
            )
        return LiveSink(
            topic=sink.topic, format=sink.format, key=key, partitions=sink.partitions, upsert=upsert
        )

    def _sink(self, value: object, at: Place, known: tuple[str, ...] = _SINK_KEYS) -> Sink:
        raw = self.mapping(value, at, known)
        topic = (
            self.topic(raw.get("topic", MISSING), (*at, "topic")) if isinstance(value, dict) else ""
        )
        keys = (
            self.texts(raw["key"], (*at, "key"), "column")
            if "key" in raw and raw["key"] != []
            else []
        )
        partitions = raw.get("partitions")
        return Sink(
            topic=topic,
            format=cast(
                "Literal['json', 'avro']",
                self.choice(raw.get("format", "json"), (*at, "format"), ("json", "avro")),
            ),
            key=[column for column, _ in keys],
            partitions=(
                None
                if partitions is None
                else self.integer(partitions, (*at, "partitions"), 1, limits.PARTITIONS_MAX)
            ),
        )

    def _internal_topics(
        self,
        name: str,
        stages: dict[str, Stage],
        sources: dict[str, Source | None],
        outputs: dict[str, Output | None],
    ) -> None:
        """A user's topic may not be one of ours: both would write it."""
        names = TopicNames(name)
        internal = {names.manager(), names.alarms(), names.placement()}
        internal |= {
            topic
            for output in outputs
            for topic in (names.progress(output), names.live_progress(output))
        }
        writers = {
            **{key: ["0"] for key in sources},
            **{key: stage.replica_ids() for key, stage in stages.items()},
        }
        for stream, replicas in writers.items():
            internal |= {
                names.boundaries(stream),
                *(names.blocks(stream, replica) for replica in replicas),
            }
        for topic, at in self._topics.items():
            if topic in internal or topic.startswith(f"{name}.control."):
                self.mistake(
                    at, f"topic {topic} is an internal topic of this pipeline; give it another name"
                )


def _guess(word: str, known: list[str]) -> str:
    guess = difflib.get_close_matches(word, known, 1)
    return f"did you mean {guess[0]!r}?" if guess else f"there are {words(known)}"
