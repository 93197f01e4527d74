"""Kafka clusters of other owners, on which streams are that are read here.

The file says where they are, and never who reads there: files are shown to others, and who that is,
and the secret, differ from process to process. The environment says it
(``adapters.kafka.security``).
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
    """The section ``clusters``: addresses by name."""
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
                "it holds a password; who reads there, and the secret, say"
                f" {variables_of(name)}... in the environment",
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
    """Every cluster is used, and every one that is used is there. ``top``: the file as it stands.

    Whoever runs a stage of somebody else's reads that file as a stranger's, so its node goes
    nowhere that the file names.
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
                    f"{stream} is on the cluster {of[stream]}, and what others run reads this"
                    " pipeline's own alone; let a stage of yours read it first",
                )


def check_own(pipeline: Pipeline, kafka: str) -> None:
    """That none of the clusters is the own one, whose address is ``kafka``.

    Raises:
        ConfigurationError: one is; its bindings would count as missing where the whole process has
            lost its broker.
    """
    for name, address in pipeline.clusters.items():
        same = brokers(address) & brokers(kafka)
        if same:
            raise ConfigurationError(
                f"{pipeline.path}: clusters.{name}.kafka: {', '.join(sorted(same))} is the"
                f" pipeline's own cluster; leave it out, and cluster: {name} in the bindings"
            )


def brokers(address: str) -> set[str]:
    """The brokers that an address names."""
    return {broker.strip().lower() for broker in address.split(",")}
