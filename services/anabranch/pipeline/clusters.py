"""The section ``clusters`` of a pipeline file: Kafka clusters of other owners that carry streams
read here.

The file names their addresses only. User and secret differ from process to process, and the file is
shown to others, so they come from the environment (``adapters.kafka.security``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from anabranch.pipeline.addresses import holds_password, variables_of
from anabranch.pipeline.document import MISSING, Document, Place, guess
from anabranch.pipeline.model import Federation, Pipeline, Stage
from anabranch.protocol.errors import ConfigurationError

CLUSTER_KEYS: Final = ("kafka",)
_BROKERS: Final = re.compile(r"[^\s,/@]+:[0-9]{1,5}(,[^\s,/@]+:[0-9]{1,5})*\Z")


def clusters(file: Document, value: object) -> dict[str, str]:
    """Return the section ``clusters``: addresses by name."""
    found: dict[str, str] = {}
    for name, entry in file.mapping(value, ("clusters",), None).items():
        at: Place = ("clusters", name)
        file.name(name, at, "cluster")
        raw: Mapping[str, Any] = file.mapping(entry, at, CLUSTER_KEYS)
        if not isinstance(entry, dict):
            continue
        address = file.text(raw.get("kafka", MISSING), (*at, "kafka"))
        if address is None:
            continue
        if holds_password(address):
            file.mistake(
                (*at, "kafka"),
                "it holds a password; set user and secret in the environment variables"
                f" {variables_of(name)}... instead",
            )
        elif not _BROKERS.match(address):
            file.mistake((*at, "kafka"), "write the brokers' address, HOST:PORT[,HOST:PORT...]")
        for other, known in found.items():
            if brokers(address) & brokers(known):
                file.mistake((*at, "kafka"), f"it is the cluster {other}; give it one name")
            if variables_of(name) == variables_of(other):
                file.mistake(at, f"its variables are those of {other}; give it another name")
        found[name] = address
    return found


def check_uses(
    file: Document,
    top: Mapping[str, Any],
    stages: Mapping[str, Stage],
    federated: Federation | None,
) -> None:
    """Report clusters that no binding uses, bindings on unknown clusters, and stages that others
    run but that read from another cluster. ``top``: the file's content.

    A participant that runs another's stage does not trust that owner's file, so its node connects
    to none of the clusters that the file names.
    """
    known, bound = top.get("clusters"), top.get("bindings")
    partners = {} if federated is None else federated.partners
    traded = {stage for may_run in partners.values() for stage in may_run}
    names = [*known] if isinstance(known, dict) else []
    of = {
        name: entry["cluster"]
        for name, entry in (bound.items() if isinstance(bound, dict) else ())
        if isinstance(entry, dict) and isinstance(entry.get("cluster"), str)
    }
    for name, cluster in of.items():
        if cluster not in names:
            file.mistake(
                ("bindings", name, "cluster"),
                f"there is no cluster {cluster}; {guess(cluster, names)}",
            )
    for name in names:
        if name not in of.values():
            file.mistake(
                ("clusters", name), f"no binding is on it; leave it out, or write cluster: {name}"
            )
    for stage in stages.values():
        is_away = stage.offered is not None or stage.name in traded
        for index, stream in enumerate(stage.reads if is_away else ()):
            if stream in of:
                file.mistake(
                    ("stages", stage.name, "reads", index),
                    f"{stream} is on the cluster {of[stream]}, and a stage that others run reads"
                    " only this pipeline's own cluster; let a stage of yours read it first",
                )


def check_own(pipeline: Pipeline, kafka: str) -> None:
    """Check that none of the pipeline's clusters is its own one, at the address ``kafka``.

    Raises:
        ConfigurationError: one is. Losing that broker would count as missing input of its bindings
            alone, although the whole process has lost its broker.
    """
    for name, address in pipeline.clusters.items():
        same = brokers(address) & brokers(kafka)
        if same:
            raise ConfigurationError(
                f"{pipeline.path}: clusters.{name}.kafka: {', '.join(sorted(same))} is the"
                f" pipeline's own cluster; leave it out, and cluster: {name} in the bindings"
            )


def brokers(address: str) -> set[str]:
    """Return the brokers that ``address`` lists, in lower case."""
    return {broker.strip().lower() for broker in address.split(",")}
