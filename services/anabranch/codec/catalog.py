"""The catalog: which records and topics there are, from the data in ``schemas/``, read and checked
once.

A service does not start on a defective catalog: a record that does not parse, is recursive or too
large, a gap between versions, a version that no topic names, a topic that names none, a version
that cannot read what the one before wrote. The same check is the unit test.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, Final

import fastavro
from fastavro.schema import fingerprint, to_parsing_canonical_form
from ruamel.yaml import YAML
from ruamel.yaml.error import YAMLError

from anabranch.codec.avro_reading import WireRead, tuple_reader
from anabranch.codec.record_schema import versions_in
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError

SERVICES: Final = (
    "ingestion",
    "processing",
    "delivery",
    "consistency_manager",
    "contract_broker",
    "agent",
    "auditor",
    "operator",
    "dashboard",
    "user",
)
_TOPIC_KEYS: Final = (
    "description",
    "pattern",
    "producers",
    "consumers",
    "records",
    "partitions",
    "config",
)
_RECORD_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}\Z")
_PATTERN = re.compile(
    r"([a-z.]|\{(pipeline|stream|replica|output|topic|process|federation|participant|contract)\})+\Z"
)


# Replication: the cluster's ``default.replication.factor``.
BROKERS_OWN: Final = -1


@dataclass(frozen=True, slots=True)
class AvroRecord:
    """Version of one of this project's own record schemas."""

    name: str
    version: int
    avro: dict[str, Any]
    parsed: Any
    """Schema in the form that fastavro writes."""
    fingerprint: bytes
    """CRC-64 of the canonical form, 8 bytes as in the single-object header."""
    read: WireRead
    """Function that reads a record's body as a tuple of the fields' values."""


@dataclass(frozen=True, slots=True)
class TopicKind:
    """Properties that all topics of one kind share."""

    kind: str
    description: str
    pattern: str
    producers: tuple[str, ...]
    consumers: tuple[str, ...]
    records: Mapping[str, tuple[int, ...]] | str
    """Names of the project's records that the topics hold, with versions; or "arrow" or "user"."""
    partitions: int | str
    """Number of partitions; or "pipeline" or "user", if the pipeline file or the user decides."""
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TopicSettings:
    """Settings that a topic must have. ``config`` holds broker settings by their Kafka names."""

    name: str
    partitions: int
    replication: int = 1
    config: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Catalog:
    """Catalog of all record schemas and kinds of topics."""

    records: Mapping[tuple[str, int], AvroRecord]
    topics: Mapping[str, TopicKind]
    by_fingerprint: Mapping[bytes, AvroRecord]

    def newest(self, name: str) -> AvroRecord:
        """Return the newest version of the record ``name``, which is the one that is written."""
        return self.records[name, max(version for known, version in self.records if known == name)]


@cache
def schemas_folder() -> Path:
    """Return the folder ``schemas``: shipped inside the package; in a checkout it stands beside
    ``services``.
    """
    package = Path(__file__).resolve().parents[1]
    shipped = package / "schemas"
    return shipped if shipped.is_dir() else package.parents[1] / "schemas"


def records_folder() -> Path:
    """Return the folder of the records' schemas."""
    return schemas_folder() / "records"


@cache
def catalog() -> Catalog:
    """Return the project's own catalog.

    Raises:
        ConfigurationError: the catalog has defects, one per line.
    """
    return load(schemas_folder())


def topic_settings(
    kind: str,
    name: str,
    partitions: int | None = None,
    replication: int = 1,
    config: Mapping[str, str] | None = None,
) -> TopicSettings:
    """Return the settings with which a topic of ``kind`` is created (name of a file in
    ``schemas/topics``).

    Args:
        kind: Kind of topic: ``boundaries``, ``blocks``, ``dead_letters``, ``output`` ...
        name: Name of the topic.
        partitions: Number of partitions, for a kind that leaves it open; else ignored.
        replication: Number of copies. Of three, two must have a record before it counts; of two,
            one.
            ``BROKERS_OWN``: as many as the cluster makes by itself, and as it asks for: a service
            does not know how many brokers there are.
        config: Broker settings that are added to the kind's, or replace them.

    Raises:
        KeyError: there is no such kind.
        ValueError: the kind leaves the number of partitions open and none is given.
    """
    found = catalog().topics[kind]
    count = found.partitions if isinstance(found.partitions, int) else partitions
    if count is None:
        raise ValueError(
            f"topic {name}: the number of partitions of a topic of kind {kind} must be given"
        )
    in_sync = (
        {} if replication == BROKERS_OWN else {"min.insync.replicas": str((replication + 1) // 2)}
    )
    return TopicSettings(name, count, replication, {**found.config, **in_sync, **(config or {})})


def load(folder: Path) -> Catalog:
    """Return the catalog in ``folder``.

    Raises:
        ConfigurationError: all defects, one per line.
    """
    defects: list[str] = []
    records: dict[tuple[str, int], AvroRecord] = {}
    for place in sorted((folder / "records").iterdir()):
        if not place.is_dir() or not _RECORD_NAME.match(place.name):
            defects.append(
                f"{place}: only folders named as records (lower case letters, digits, '_') belong"
                " here"
            )
            continue
        try:
            paths = versions_in(place)
        except ConfigurationError as error:
            defects.append(str(error))
            continue
        for version, path in enumerate(paths, 1):
            try:
                records[place.name, version] = _record(path, place.name, version)
            except (
                ConfigurationError,
                ValueError,
                KeyError,
                TypeError,
                fastavro.schema.SchemaParseException,
            ) as error:
                defects.append(f"{path}: {error}")
        for version in range(2, len(paths) + 1):
            old, new = records.get((place.name, version - 1)), records.get((place.name, version))
            if old is not None and new is not None:
                defects += [
                    f"{paths[version - 1]}: {text}" for text in _incompatible(old.avro, new.avro)
                ]
    topics: dict[str, TopicKind] = {}
    for path in sorted((folder / "topics").iterdir()):
        topic = _topic(path, defects)
        if topic is not None:
            topics[topic.kind] = topic
    _references(folder, records, topics, defects)
    by_fingerprint = {record.fingerprint: record for record in records.values()}
    if len(by_fingerprint) != len(records):
        defects.append(f"{folder}: two records have the same canonical form")
    if defects:
        raise ConfigurationError("\n".join(defects))
    return Catalog(records, topics, by_fingerprint)


def _record(path: Path, name: str, version: int) -> AvroRecord:
    text = path.read_bytes()
    if len(text) > limits.SCHEMA_BYTES_MAX:
        raise ValueError(f"is larger than {limits.SCHEMA_BYTES_MAX} bytes")
    avro = json.loads(text)
    if not isinstance(avro, dict) or avro.get("type") != "record" or avro.get("name") != name:
        raise ValueError(f"is not a record named {name}")
    for entry in avro["fields"]:
        if not _RECORD_NAME.match(entry["name"]):
            raise ValueError(
                f"field {entry['name']!r} is not named in lower case letters, digits and '_'"
            )
    read = tuple_reader(avro)
    mark = bytes.fromhex(fingerprint(to_parsing_canonical_form(avro), "CRC-64-AVRO"))
    return AvroRecord(name, version, avro, fastavro.parse_schema(avro), mark, read)


def _incompatible(old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    """Return why a reader of the schema ``new`` could not read what was written with ``old``; empty
    if it can.
    """
    before = {entry["name"]: entry["type"] for entry in old["fields"]}
    found = []
    for entry in new["fields"]:
        name = entry["name"]
        if name not in before and "default" not in entry:
            found.append(f"field {name} is new and has no default")
        elif name in before and before[name] != entry["type"]:
            found.append(f"field {name} has another type than in the version before")
    return found


def _topic(path: Path, defects: list[str]) -> TopicKind | None:
    before = len(defects)
    try:
        raw = YAML(typ="safe", pure=True).load(path.read_text(encoding="utf-8"))
    except (YAMLError, UnicodeDecodeError) as error:
        defects.append(f"{path}: not YAML: {error}")
        return None
    if path.suffix != ".yaml" or not isinstance(raw, dict) or sorted(raw) != sorted(_TOPIC_KEYS):
        defects.append(
            f"{path}: must be a .yaml file with exactly the keys {', '.join(_TOPIC_KEYS)}"
        )
        return None
    if not isinstance(raw["description"], str) or not raw["description"].strip():
        defects.append(f"{path}: description is missing")
    if not isinstance(raw["pattern"], str) or not _PATTERN.match(raw["pattern"]):
        defects.append(
            f"{path}: pattern {raw['pattern']!r} is not a topic name with {{pipeline}},"
            " {stream} ..."
        )
    for key in ("producers", "consumers"):
        services = raw[key]
        if (
            not isinstance(services, list)
            or not services
            or any(service not in SERVICES for service in services)
        ):
            defects.append(f"{path}: {key} must be a list of {', '.join(SERVICES)}")
    records = raw["records"]
    if not (
        records in ("arrow", "user")
        or (
            isinstance(records, dict)
            and records
            and all(_versions(entry) for entry in records.values())
        )
    ):
        defects.append(f"{path}: records must be arrow, user, or names with lists of versions")
    partitions = raw["partitions"]
    if partitions not in ("pipeline", "user") and (
        isinstance(partitions, bool) or not isinstance(partitions, int) or partitions < 1
    ):
        defects.append(f"{path}: partitions must be a number, pipeline or user")
    config = raw["config"]
    if not isinstance(config, dict) or not all(
        isinstance(key, str) and isinstance(value, str) for key, value in config.items()
    ):
        defects.append(f"{path}: config must be texts by Kafka's names; put numbers in quotes")
    if len(defects) > before:
        return None
    kept = (
        records
        if isinstance(records, str)
        else {str(name): tuple(versions) for name, versions in records.items()}
    )
    return TopicKind(
        kind=path.stem,
        description=" ".join(raw["description"].split()),
        pattern=raw["pattern"],
        producers=tuple(raw["producers"]),
        consumers=tuple(raw["consumers"]),
        records=kept,
        partitions=partitions,
        config=dict(config),
    )


def _versions(value: object) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(version, int) for version in value)
    )


def _references(
    folder: Path,
    records: Mapping[tuple[str, int], AvroRecord],
    topics: Mapping[str, TopicKind],
    defects: list[str],
) -> None:
    named: set[tuple[str, int]] = set()
    for topic in topics.values():
        if isinstance(topic.records, str):
            continue
        for name, versions in topic.records.items():
            for version in versions:
                named.add((name, version))
                if (name, version) not in records:
                    defects.append(
                        f"{folder / 'topics' / topic.kind}.yaml: there is no record {name}"
                        f" v{version}"
                    )
    defects += [
        f"{folder / 'records' / name}: no topic names v{version}"
        for name, version in records
        if (name, version) not in named
    ]
