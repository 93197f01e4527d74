"""Reader of the pipeline file: turns it into a checked ``Pipeline``.

The file is walked key by key with the line numbers that the YAML reader keeps. Every mistake
becomes one line, ``FILE:LINE: key.path: what; how to fix``, and the walk continues, so that a
person sees all mistakes at once. Only a file without a single mistake becomes a ``Pipeline``.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final, cast

from anabranch.pipeline.addresses import holds_password
from anabranch.pipeline.bindings import LookupContext, bindings, published
from anabranch.pipeline.clusters import check_uses, clusters
from anabranch.pipeline.document import MISSING, Document, Place, guess, shown
from anabranch.pipeline.environment import fill_in
from anabranch.pipeline.federation import federation
from anabranch.pipeline.k_safety import K_SAFETY_MAX, check_k_safety
from anabranch.pipeline.kept_bindings import LookUp, from_kept
from anabranch.pipeline.model import Binding, Federation, Pipeline, RecordSchema, Stage
from anabranch.pipeline.offer_instances import Host, OfferedStages
from anabranch.pipeline.output_section import read_output
from anabranch.pipeline.resources import resources_of
from anabranch.pipeline.scaling_section import read_scaling
from anabranch.pipeline.shard_checks import check_output_shards, check_shards
from anabranch.pipeline.source_section import read_source
from anabranch.pipeline.stage_section import check_cycles, read_nodes, read_stage
from anabranch.pipeline.stage_shards import expanded
from anabranch.pipeline.topic_uses import TopicUses
from anabranch.pipeline.yaml_text import read_yaml
from anabranch.protocol import limits
from anabranch.protocol.edge.shards import whole_of
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.identifiers import is_name

_REGISTRY = re.compile(r"https?://[^\s?#,]{1,500}\Z")

_FILE_KEYS: Final = (
    "version",
    "pipeline",
    "bucket",
    "max_delay",
    "k_safety",
    "partitions",
    "sources",
    "stages",
    "nodes",
    "resources",
    "scaling",
    "outputs",
    "bindings",
    "clusters",
    "publish",
    "federation",
    "schema_registry",
)
_NEEDED: Final = "pipeline, sources, stages and outputs"


def load(
    path: Path | str, offers: Path | None = None, *, look_up: LookUp | None = None
) -> Pipeline:
    """Return the pipeline in the file at ``path``.

    Args:
        path: The pipeline file.
        offers: Pipeline file of a participant other than the owner, which reads ``path`` to run its
            offers there; None: the owner reads it.
        look_up: Lookup of streams of others that the file names without their columns; None: the
            file of kept bindings beside it (``kept_bindings``).

    Raises:
        ConfigurationError: one line per mistake, ``FILE:LINE: key: what; how to fix``.
    """
    path, host = Path(path), None if offers is None else _read_host(offers)
    root = read_yaml(path)
    if not isinstance(root, dict):
        what = "the file is empty" if root is None else f"a mapping is wanted, not {shown(root)}"
        raise ConfigurationError(f"{path}:1: {what}; it needs {_NEEDED}")
    walk = _PipelineReader(path, root, host, look_up or from_kept(path))
    # Another participant's file must not read this process's environment: it could carry secrets
    # out, as names of topics for example.
    fill_in(root, os.environ if host is None else {}, walk.mistake)
    pipeline = walk.pipeline()
    if walk.mistakes or pipeline is None:
        raise ConfigurationError("\n".join(walk.sorted_mistakes()))
    return pipeline


def with_place(pipeline: Pipeline, section: str, name: str) -> str:
    """Return ``FILE:LINE: stage NAME`` for an entry of the section ``stages``, ``outputs`` or
    ``sources`` of the pipeline's file, for messages; without the line if the file has gone.
    """
    what = f"{section.removesuffix('s')} {name}"
    try:
        document = Document(pipeline.path, read_yaml(pipeline.path))
    except ConfigurationError:
        return what
    return f"{pipeline.path}:{document.line((section, whole_of(name)))}: {what}"


def hosted_pipelines(named: Federation) -> dict[str, Pipeline]:
    """Return the pipelines of others whose stages may run here, read from this participant's copies
    of their files.

    Raises:
        ConfigurationError: a file is wrong, or is that of another pipeline.
    """
    found = {name: load(path) for name, path in named.hosts.items()}
    for name, pipeline in found.items():
        if pipeline.name != name:
            raise ConfigurationError(
                f"federation.hosts.{name}: {pipeline.path} is the file of pipeline {pipeline.name};"
                f" name the file of {name}"
            )
    return found


def federation_name(path: Path) -> str:
    """Return the federation that the file at ``path`` names, whatever other mistakes the file has.

    Raises:
        ConfigurationError: the file is no pipeline file, or names no federation.
    """
    root = read_yaml(path)
    if isinstance(root, dict):
        fill_in(root, os.environ, lambda *_: None)
        member = root.get("federation")
        name = member.get("name") if isinstance(member, dict) else None
        if isinstance(name, str) and is_name(name):
            return str(name)
    raise ConfigurationError(
        f"{path} names no federation; add its name and yours, federation: {{name: tolls,"
        " participant: north}"
    )


def _read_host(path: Path) -> Host:
    federation = load(path).federation
    if federation is None or not federation.offers:
        raise ConfigurationError(
            f"{path} offers nothing: it has no federation.offers; name the pipeline file of a"
            " participant that runs stages for others"
        )
    return Host(federation, path)


def _keys_of(section: object) -> list[str]:
    """Return the text keys of a section of the file, whether or not their values are valid."""
    return [name for name in section if isinstance(name, str)] if isinstance(section, dict) else []


def _read_by_others(outputs: dict[str, Any], published: Collection[str]) -> list[object]:
    """Return the stages that outputs or other pipelines read, as the file names them."""
    named = [entry.get("stage") for entry in outputs.values() if isinstance(entry, dict)]
    return [*named, *published]


class _PipelineReader(Document):
    """Reader of one pipeline file."""

    def __init__(self, path: Path, root: object, host: Host | None, look_up: LookUp) -> None:
        super().__init__(path, root)
        self._host, self._look_up = host, look_up
        self._uses = TopicUses(self)

    def pipeline(self) -> Pipeline | None:
        """Return the pipeline; None where there is a mistake."""
        top = self.mapping(self.root, (), _FILE_KEYS)
        self._check_version(top.get("version", 1))
        name = self.name(top.get("pipeline", MISSING), ("pipeline",), "pipeline")
        bucket_ms = cast(
            "int", self.duration(top.get("bucket", "250ms"), ("bucket",), 10, 24 * 3_600_000)
        )
        max_delay_ms = cast("int", self.duration(top.get("max_delay", "3s"), ("max_delay",), 1))
        partitions = self.integer(
            top.get("partitions", 4), ("partitions",), 1, limits.PARTITIONS_MAX
        )
        k_safety = self.integer(top.get("k_safety", 0), ("k_safety",), 0, K_SAFETY_MAX)
        sections = self._sections(top)
        named_clusters = clusters(self, top.get("clusters", {}))
        bound = self._bindings(top, sections, bucket_ms, named_clusters)
        publish_ms, publish_records = published(self, top.get("publish", {}), sections["stages"])
        registry = self._registry(top.get("schema_registry"))
        has_registry = registry is not None
        sources = {
            key: read_source(self, self._uses, key, value, has_registry=has_registry)
            for key, value in sections["sources"].items()
        }
        records = {name: source.rows for name, source in sources.items() if source is not None}
        records |= {name: binding.record for name, binding in bound.items()}
        stages, stage_shards = expanded(
            self,
            sections["stages"],
            self._whole_stages(top, sections, records),
            _read_by_others(sections["outputs"], publish_ms),
            checks_code=self._host is None,
        )
        check_shards(self, sources, stages, stage_shards)
        federated = federation(
            self,
            top.get("federation", MISSING),
            stages,
            host="" if self._host is None else self._host.participant,
        )
        check_uses(self, top, stages, federated)
        for stage in stages.values():
            if stage.parent and federated is not None:
                self.mistake(
                    ("stages", whole_of(stage.name), "halvings"),
                    "is for pipelines outside a federation: another participant's node cannot run"
                    " a half",
                )
                break
        nodes = read_nodes(self, top.get("nodes", {}), stages)
        scaling = read_scaling(self, top.get("scaling"), stages, nodes)
        outputs = {
            key: read_output(self, self._uses, key, value, sections, has_registry=has_registry)
            for key, value in sections["outputs"].items()
        }
        check_output_shards(self, outputs)
        if name is None:
            return None
        self._uses.check_internal(name, stages, sources, outputs)
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
            stage_shards=stage_shards,
            bindings=bound,
            clusters=named_clusters,
            k_safety=k_safety,
            publish_ms=publish_ms,
            publish_records=publish_records,
            named_nodes=nodes,
            resources=resources,
            scaling=scaling,
            federation=federated,
            schema_registry=registry,
        )
        self._check_resources(pipeline)
        check_k_safety(self, pipeline)
        return pipeline

    def _whole_stages(
        self,
        top: dict[str, Any],
        sections: dict[str, dict[str, Any]],
        records: dict[str, RecordSchema],
    ) -> dict[str, Stage]:
        """Return the stages as the file has them, before those with shards are replaced by their
        shards. ``records``: columns of the other streams, by name.
        """
        streams = [*sections["sources"], *_keys_of(top.get("bindings")), *sections["stages"]]
        offered = OfferedStages(self, top.get("federation"), self._host)
        stages = {
            key: read_stage(self, key, value, streams, offered)
            for key, value in sections["stages"].items()
        }
        check_cycles(self, stages)
        offered.check(stages, records)
        return stages

    def _bindings(
        self,
        top: dict[str, Any],
        sections: dict[str, dict[str, Any]],
        bucket_ms: int,
        named_clusters: dict[str, str],
    ) -> dict[str, Binding]:
        member = top.get("federation")
        named_federation = member.get("name", "") if isinstance(member, dict) else member
        return bindings(
            self,
            top.get("bindings", {}),
            [*sections["sources"], *sections["stages"]],
            LookupContext(named_federation, bucket_ms, named_clusters, self._look_up),
        )

    def _check_version(self, version: object) -> None:
        if version != 1 or isinstance(version, bool):
            self.mistake(
                ("version",),
                f"{shown(version)} is no version of the pipeline file that this anabranch reads;"
                " write version: 1",
            )

    def _sections(self, top: dict[str, Any]) -> dict[str, dict[str, Any]]:
        """Return sources, stages and outputs as the file has them. Reports a stage that has the
        name of a source.
        """
        sections = {
            key: self._section(top, key, needed=instead not in top)
            for key, instead in (
                ("sources", "bindings"),
                ("stages", "stages"),
                ("outputs", "publish"),
            )
        }
        for entry in sections["stages"]:
            if entry in sections["sources"]:
                self.mistake(
                    ("stages", entry),
                    f"{entry} is the name of a source already; give every stream its own name",
                )
        return sections

    def _check_resources(self, pipeline: Pipeline) -> None:
        """Report resources for a node that does not exist, or that another participant runs."""
        known = [*pipeline.nodes(), *pipeline.partner_nodes]
        for node in pipeline.resources:
            if node not in known:
                self.mistake(("resources", node), f"there is no node {node}; {guess(node, known)}")
            elif node in pipeline.offering_nodes:
                owner = pipeline.offering_nodes[node]
                self.mistake(
                    ("resources", node), f"it is a node of {owner}, which sets this; leave it out"
                )

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
