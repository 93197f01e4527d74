"""The catalog as it is, and each defect that stops a service from starting."""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
from pathlib import Path
from typing import Any

import fastavro
import pytest

from anabranch.codec import (
    boundary_records,
    catalog,
    control_records,
    federation_records,
    live_records,
)
from anabranch.pipeline.topic_names import FederationTopics, TopicNames
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.published_keys import PublishedKey

SCHEMAS = catalog.schemas_folder()
EXAMPLES = {
    (path.parent.name, path.stem, name): example
    for path in sorted((SCHEMAS / "examples").glob("*/v*.json"))
    for name, example in json.loads(path.read_text()).items()
}


def test_the_projects_own_catalog_has_no_defects() -> None:
    found = catalog.catalog()
    assert {name for name, _ in found.records} >= {
        "boundary_record",
        "epoch_started",
        "log_snapshot",
        "heartbeat",
        "delivery_progress",
        "alarm",
    }
    assert found is catalog.catalog()
    assert catalog.records_folder() == SCHEMAS / "records"


def test_released_schemas_never_change() -> None:
    """Every version has its line in released.txt; a change to a released file needs a new
    version instead.
    """
    lines = (SCHEMAS / "released.txt").read_text().splitlines()
    listed = {
        name: digest
        for digest, _, name in (line.partition("  ") for line in lines if not line.startswith("#"))
    }
    found = {
        str(path.relative_to(SCHEMAS)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in (SCHEMAS / "records").glob("*/*.avsc")
    }
    assert found == listed


def jsonable(value: Any) -> Any:
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {key: jsonable(item) for key, item in value.items()}
    return [jsonable(item) for item in value] if isinstance(value, list) else value


@pytest.mark.parametrize("at", EXAMPLES, ids="/".join)
def test_each_example_decodes_to_its_content(at: tuple[str, str, str]) -> None:
    """With a foreign reader and with ours; and ours writes the same bytes."""
    value = bytes.fromhex(EXAMPLES[at]["bytes"])
    record = catalog.catalog().by_fingerprint[value[2:10]]
    assert (record.name, f"v{record.version}") == at[:2]
    found = fastavro.schemaless_reader(io.BytesIO(value[10:]), record.parsed, None)
    assert jsonable(found) == EXAMPLES[at]["content"]
    if record.name in catalog.catalog().topics["boundaries"].records:
        assert boundary_records.encode(boundary_records.decode(value))[0] == value
    elif record.name == "published_key":
        word = federation_records.decode_key_log(value)
        assert isinstance(word, PublishedKey)
        assert federation_records.encode_key(word) == value
    elif record.name == "catalog_entry":
        assert federation_records.encode(*federation_records.decode_catalog(value)) == value
    elif any(field["name"] == "signed" for field in record.avro["fields"]):
        assert federation_records.encode(*federation_records.decode(value)) == value
    elif record.name == "live_progress":
        assert live_records.encode_progress(live_records.decode_progress(value)) == value
    else:
        assert control_records.encode(control_records.decode(value)) == value


def test_each_version_of_each_record_has_an_example_and_no_file_is_left_over() -> None:
    versions = {(record, int(version[1:])) for record, version, _ in EXAMPLES}
    assert versions == set(catalog.catalog().records)
    files = {path for path in (SCHEMAS / "examples").rglob("*") if path.is_file()}
    assert files == {SCHEMAS / "examples" / name / f"v{version}.json" for name, version in versions}


def test_each_internal_topic_has_its_kind() -> None:
    names = TopicNames("p")
    made = {
        "boundaries": names.boundaries("s"),
        "blocks": names.blocks("s", "0"),
        "control": names.control("delivery", "o"),
        "manager": names.manager(),
        "fences": names.fences(),
        "alarms": names.alarms(),
        "placement": names.placement(),
        "progress": names.progress("o"),
    }
    words = {"pipeline": "p", "stream": "s", "replica": "0", "output": "o", "process": "delivery.o"}
    topics = catalog.catalog().topics
    assert {kind: topics[kind].pattern.format(**words) for kind in made} == made


def test_fences_are_kept_however_long_a_fenced_process_is_away() -> None:
    config = catalog.topic_settings("fences", "p.fences").config
    assert config["cleanup.policy"] == "delete"
    assert config["retention.ms"] == config["retention.bytes"] == "-1"


def test_each_topic_of_a_federation_has_its_kind() -> None:
    names, topics = FederationTopics("f"), catalog.catalog().topics
    for kind, made, owner in (
        ("keys", names.keys("p"), "p"),
        ("catalog", names.catalog("p"), "p"),
        ("contract", names.contract("c"), "c"),
        ("offers", names.offers("c"), "c"),
    ):
        assert topics[kind].pattern.format(federation="f", participant="p", contract="c") == made
        assert names.owner_of(made) == (kind, owner)
    for other in ("f.keys", "f.keys.", "f.keys.A", "f.other.p", "g.keys.p", "f.contract.a.b"):
        assert names.owner_of(other) == ("", "")


def test_dead_letters_hold_whatever_came_in_and_stay_longer() -> None:
    topics = catalog.catalog().topics
    letters = topics["dead_letters"].config
    for kind in ("input", "arrivals"):
        assert int(letters["max.message.bytes"]) > int(topics[kind].config["max.message.bytes"])
        assert int(letters["retention.ms"]) > int(topics[kind].config["retention.ms"])


def test_topics_of_the_truth_are_never_cut_by_age_or_by_an_unclean_leader() -> None:
    for kind in ("boundaries", "blocks", "placement", "keys", "contract"):
        config = catalog.catalog().topics[kind].config
        assert (config["retention.ms"], config["retention.bytes"], config["cleanup.policy"]) == (
            "-1",
            "-1",
            "delete",
        )
        assert config["unclean.leader.election.enable"] == "false"


def test_settings_of_a_topic() -> None:
    found = catalog.topic_settings("boundaries", "p.s.boundaries", 8, 3)
    assert (found.name, found.partitions, found.replication) == ("p.s.boundaries", 1, 3)
    assert found.config["min.insync.replicas"] == "2"
    blocks = catalog.topic_settings("blocks", "p.s.blocks.0", 8, config={"segment.bytes": "1"})
    assert (
        blocks.partitions,
        blocks.config["min.insync.replicas"],
        blocks.config["segment.bytes"],
    ) == (8, "1", "1")
    with pytest.raises(ValueError, match="number of partitions"):
        catalog.topic_settings("blocks", "p.s.blocks.0")
    with pytest.raises(KeyError):
        catalog.topic_settings("nothing", "x", 1)


def test_where_the_cluster_says_how_many_copies_it_says_how_many_must_have_a_record() -> None:
    found = catalog.topic_settings("control", "p.control", replication=catalog.BROKERS_OWN)
    assert (found.replication, "min.insync.replicas" in found.config) == (-1, False)


@pytest.mark.parametrize(
    ("replication", "in_sync"), [(1, "1"), (2, "1"), (3, "2"), (4, "2"), (5, "3")]
)
def test_one_broker_may_always_be_missing_if_there_are_two(replication: int, in_sync: str) -> None:
    assert (
        catalog.topic_settings("control", "p.control", replication=replication).config[
            "min.insync.replicas"
        ]
        == in_sync
    )


# -- defects
# --------------------------------------------------------------------------------------------------

ALARM = '{"type": "record", "name": "alarm", "fields": [{"name": "kind", "type": "string"}]}'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "records" / "alarm").mkdir(parents=True)
    (tmp_path / "records" / "alarm" / "v1.avsc").write_text(ALARM)
    (tmp_path / "topics").mkdir()
    shutil.copy(SCHEMAS / "topics" / "alarms.yaml", tmp_path / "topics")
    return tmp_path


def defects(folder: Path) -> str:
    with pytest.raises(ConfigurationError) as caught:
        catalog.load(folder)
    return str(caught.value)


def test_a_catalog_without_defects_loads(folder: Path) -> None:
    found = catalog.load(folder)
    assert list(found.records) == [("alarm", 1)]
    assert found.newest("alarm").version == 1
    assert found.topics["alarms"].records == {"alarm": (1,)}
    assert found.by_fingerprint[found.newest("alarm").fingerprint] is found.newest("alarm")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "v1.avsc: "),
        ("7", "is not a record named alarm"),
        (ALARM.replace("alarm", "other"), "is not a record named alarm"),
        (ALARM + " " * 70_000, "is larger than"),
        (ALARM.replace('"string"', '"strong"'), "'strong' is not a type"),
        (ALARM.replace('"string"', '["null", "alarm"]'), "part of itself"),
        (ALARM.replace('"string"', '{"type": "array", "items": "null"}'), "take no bytes"),
        (ALARM.replace('"string"', '{"type": "enum", "name": "e"}'), "symbols"),
        (ALARM.replace('"kind"', '"a b"'), "field 'a b' is not named"),
    ],
)
def test_a_record_that_is_not_right_is_a_defect(folder: Path, text: str, says: str) -> None:
    (folder / "records" / "alarm" / "v1.avsc").write_text(text)
    assert says in defects(folder)


def test_a_gap_between_versions_is_a_defect(folder: Path) -> None:
    (folder / "records" / "alarm" / "v3.avsc").write_text(ALARM)
    assert "without a gap" in defects(folder)


def test_a_folder_that_is_no_record_is_a_defect(folder: Path) -> None:
    (folder / "records" / "Alarm 2").mkdir()
    (folder / "records" / "notes.txt").write_text("")
    assert len(re.findall("only folders named as records", defects(folder))) == 2


def test_a_version_that_no_topic_names_is_a_defect(folder: Path) -> None:
    (folder / "records" / "alarm" / "v2.avsc").write_text(
        ALARM.replace("]", ', {"name": "x", "type": "int", "default": 0}]')
    )
    assert "no topic names v2" in defects(folder)


def test_a_topic_that_names_a_version_that_is_not_there_is_a_defect(folder: Path) -> None:
    path = folder / "topics" / "alarms.yaml"
    path.write_text(path.read_text().replace("alarm: [1]", "alarm: [1, 2]"))
    assert "there is no record alarm v2" in defects(folder)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ('{"name": "kind", "type": "int"}', "field kind has another type"),
        (
            '{"name": "kind", "type": "string"}, {"name": "x", "type": "int"}',
            "field x is new and has no default",
        ),
        ('{"name": "kind", "type": "string"}', "two records have the same canonical form"),
    ],
)
def test_a_version_that_cannot_follow_the_one_before_is_a_defect(
    folder: Path, fields: str, says: str
) -> None:
    path = folder / "topics" / "alarms.yaml"
    path.write_text(path.read_text().replace("alarm: [1]", "alarm: [1, 2]"))
    (folder / "records" / "alarm" / "v2.avsc").write_text(
        ALARM.replace('{"name": "kind", "type": "string"}', fields)
    )
    assert says in defects(folder)


def test_a_version_after_a_broken_one_is_not_compared_with_it(folder: Path) -> None:
    (folder / "records" / "alarm" / "v2.avsc").write_text("{")
    assert "another type" not in defects(folder)


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("description: >", "text: >", "exactly the keys"),
        ("partitions: 1", "partitions: 0", "partitions must be"),
        ("partitions: 1", "partitions: true", "partitions must be"),
        ("partitions: 1", "partitions: some", "partitions must be"),
        ("producers: [consistency_manager", "producers: [nobody", "producers must be a list"),
        (
            "consumers: [consistency_manager, dashboard]",
            "consumers: []",
            "consumers must be a list",
        ),
        ("alarm: [1]", "alarm: []", "records must be"),
        ("alarm: [1]", "alarm: 1", "records must be"),
        ("records:\n  alarm: [1]", "records: {}", "records must be"),
        ("records:\n  alarm: [1]", "records: other", "records must be"),
        ("config:\n", "config:\n  segment.bytes: 5\n", "put numbers in quotes"),
        ('pattern: "{pipeline}', 'pattern: "{nothing}', "is not a topic name"),
        ("description: >", "description: [", "not YAML"),
    ],
)
def test_a_topic_that_is_not_right_is_a_defect(folder: Path, old: str, new: str, says: str) -> None:
    path = folder / "topics" / "alarms.yaml"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new))
    assert says in defects(folder)


def test_a_topic_without_a_description_or_with_another_suffix_is_a_defect(folder: Path) -> None:
    path = folder / "topics" / "alarms.yaml"
    text = re.sub(r"description: >\n.*\n", 'description: ""\n', path.read_text())
    path.write_text(text)
    assert "description is missing" in defects(folder)
    path.rename(folder / "topics" / "alarms.yml")
    assert "must be a .yaml file" in defects(folder)
