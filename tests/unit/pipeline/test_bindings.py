"""Bindings between pipelines: the section of the file, and the topics, rights and hops that follow
from it.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.access.federation_acls import federation_rights
from anabranch.access.pipeline_acls import Operation, rights
from anabranch.consistency_manager.control import AUDIT_KEEP_MS, kept_buckets, readers_of
from anabranch.pipeline.control_topics import bound_control_topics, control_topics
from anabranch.pipeline.drawing import boxes
from anabranch.pipeline.file import load
from anabranch.pipeline.internal_topics import internal_topics
from anabranch.pipeline.kept_bindings import Cluster, KeptBinding, kept_path, kept_text
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import depth, has_live, lags, normal_ms
from anabranch.protocol.control.records import Heartbeat
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.lookup import WantedStream

RECORD = '{"type": "record", "name": "speed", "fields": [{"name": "segment", "type": "long"}]}'
BILLING = """\
pipeline: billing
bindings:
  north_speeds: {pipeline: north, stream: speeds, record: speed.avsc, replicas: 2, hops: 3}
  south_speeds: {pipeline: south, stream: speeds, record: speed.avsc, out_of_orderness: 700ms}
stages:
  tolls: {reads: [north_speeds, south_speeds], transform: stages:tolls}
outputs:
  tolls: {stage: tolls, corrected: {topic: tolls}, live: {topic: tolls.live}}
"""
NORTH = """\
pipeline: north
bucket: 250ms
sources:
  sightings: {topics: [sightings], record: speed.avsc, event_time: arrival}
stages:
  speeds: {reads: [sightings], transform: stages:speeds}
publish:
  speeds:
"""
BEAT = Heartbeat("processing", "speeds", "1", 7, "running", 9, 1)


def loaded(folder: Path, text: str) -> Pipeline:
    (folder / "speed.avsc").write_text(RECORD)
    (folder / "stages.py").write_text(
        "def tolls(north_speeds, south_speeds): ...\ndef speeds(sightings): ...\n"
    )
    (folder / "pipeline.yaml").write_text(text)
    return load(folder / "pipeline.yaml")


@pytest.fixture
def billing(tmp_path: Path) -> Pipeline:
    return loaded(tmp_path, BILLING)


def test_what_is_read_are_topics_of_the_other_pipeline(billing: Pipeline) -> None:
    names = billing.topic_names
    assert names.boundaries("north_speeds") == "north.speeds.boundaries"
    assert names.blocks("south_speeds", "0") == "south.speeds.blocks.0"
    assert names.boundaries("tolls") == "billing.tolls.boundaries"
    assert billing.stream_writers("north_speeds") == ["0", "1"]


def test_its_topics_are_nobody_elses_business(billing: Pipeline) -> None:
    assert billing.streams() == ["tolls"]
    assert all(settings.name.startswith("billing.") for _, settings in internal_topics(billing))
    assert all(topic.startswith("billing.") for topic in control_topics(billing))
    assert list(readers_of(billing)) == ["tolls"]


def test_it_is_as_late_as_its_hops_there_make_it(billing: Pipeline) -> None:
    assert depth(billing, "tolls") == 3
    assert normal_ms(billing, "tolls") > 700 + billing.bucket_ms
    slower = lags(billing, "tolls")
    assert slower is not None


def test_only_its_replicas_are_heard_and_under_the_name_that_it_has_here(
    billing: Pipeline,
) -> None:
    found = bound_control_topics(billing, ["north_speeds"])
    assert list(found) == ["north.control.processing.speeds.0", "north.control.processing.speeds.1"]
    heard = found["north.control.processing.speeds.1"].accept(BEAT)
    assert isinstance(heard, Heartbeat)
    assert heard.name == "north_speeds"
    assert found["north.control.processing.speeds.0"].accept(BEAT) is None


def test_rights_on_topics_of_others_are_to_read_and_of_who_reads_them(billing: Pipeline) -> None:
    found = [right for right in rights(billing) if right.name.startswith(("north.", "south."))]
    assert {(right.principal, right.operation) for right in found} == {
        ("billing.processing.local.0", Operation.READ),
        ("billing.dashboard", Operation.READ),
    }
    assert not [
        right.name
        for right in found
        if right.principal == "billing.dashboard" and ".blocks." in right.name
    ], "it shows what is there, not what it holds"
    assert {right.name for right in found} >= {
        "north.speeds.boundaries",
        "north.speeds.blocks.1",
        "north.control.processing.speeds.0",
    }


SIGNED = BILLING.replace("hops: 3", "hops: 3, participant: north")
FEDERATION = "federation: {name: roads, participant: billing}\n"


def test_who_goes_by_published_keys_reads_them_and_looks_at_who_sets_the_times(
    tmp_path: Path,
) -> None:
    billing = loaded(tmp_path, SIGNED + FEDERATION)
    assert billing.bindings["north_speeds"].participant == "north"
    found = [right for right in rights(billing) if right.name.startswith("roads.")]
    assert {(right.principal, right.name, right.operation, right.prefixed) for right in found} == {
        (f"billing.{who}", "roads.keys.", operation, True)
        for who in ("processing.local.0", "dashboard")
        for operation in (Operation.READ, Operation.DESCRIBE_CONFIGS)
    }
    looked_at = {
        (right.principal, right.name)
        for right in rights(billing)
        if right.operation is Operation.DESCRIBE_CONFIGS and right.name.startswith("north.")
    }
    assert looked_at == {
        (f"billing.{who}", "north.speeds.boundaries") for who in ("processing.local.0", "dashboard")
    }


def test_an_agent_looks_at_who_sets_the_times_too(tmp_path: Path) -> None:
    traded = SIGNED.replace("stages:tolls}", "stages:tolls, participant: billing}")
    agent = FEDERATION.replace("}", ", agent: {capacity: 10, scale: 10}}")
    found = federation_rights(loaded(tmp_path, traded + agent), [])
    assert [
        right.name
        for right in found
        if (right.principal, right.operation) == ("billing.agent", Operation.DESCRIBE_CONFIGS)
    ] == ["roads.keys.", "north.speeds.boundaries"]


def test_whoever_may_run_a_published_stage_is_named_by_its_owner(tmp_path: Path) -> None:
    owned = NORTH.replace(
        "{reads", "{participant: north, ha: upstream_backup, state_horizon: 1s, reads"
    )
    for more, others in (
        ("federation: {name: roads, participant: north}\n", []),
        ("federation: {name: roads, participant: north, partners: {south: [speeds]}}\n", ["south"]),
        ("federation: {name: roads, participant: east}\n", ["north"]),
    ):
        north = loaded(tmp_path, owned + more)
        assert north.other_signers() == {"speeds": others}
        readers = {right.principal for right in rights(north) if right.name == "roads.keys."}
        assert readers == {f"north.processing.{who}.0" for who in {"north", *others}}
    assert loaded(tmp_path, owned).other_signers() == {}


def test_what_is_published_is_kept_and_is_seen_by_somebody(tmp_path: Path) -> None:
    north = loaded(tmp_path, NORTH)
    assert north.publish_ms == {"speeds": 3_600_000}
    assert kept_buckets(north) == {"speeds": 14_400}
    assert has_live(north, "speeds")
    assert not north.outputs


def test_what_an_auditor_reads_is_kept_for_it(tmp_path: Path) -> None:
    text = NORTH.replace(
        "{reads", "{participant: north, ha: upstream_backup, state_horizon: 30s, reads"
    )
    partners = "federation: {name: roads, participant: north, partners: {south: [speeds]}%s}\n"
    north = loaded(tmp_path, text + partners % "")
    assert kept_buckets(north) == {"speeds": 14_400}
    north = loaded(tmp_path, text + partners % ", auditor: audit")
    (read,) = north.inputs("speeds")
    keep_ms = AUDIT_KEEP_MS + 2 * 30_000
    assert kept_buckets(north) == {"speeds": 14_400, read: keep_ms // north.bucket_ms}
    assert north.bucket_ms * 14_400 == 3_600_000 > keep_ms, "what is published is kept for longer"


def test_it_is_drawn(billing: Pipeline) -> None:
    assert [(box.kind, box.name) for box in boxes(billing)][:2] == [
        ("binding", "north_speeds"),
        ("binding", "south_speeds"),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BILLING.replace("stream: speeds, ", "", 1), "bindings.north_speeds.stream: is missing"),
        (BILLING.replace("pipeline: north", "pipeline: No", 1), "bindings.north_speeds.pipeline"),
        (BILLING.replace("hops: 3", "hops: 0"), "bindings.north_speeds.hops"),
        (SIGNED, "bindings.north_speeds.participant: its keys are those that it publishes"),
        (
            SIGNED.replace("participant: north", "participant: North") + FEDERATION,
            "bindings.north_speeds.participant",
        ),
        (
            SIGNED.replace("hops: 3", f"hops: 3, keys: [{'ab' * 32}]") + FEDERATION,
            "bindings.north_speeds.keys: the keys that count are those that north publishes",
        ),
        (BILLING.replace("  north_speeds: {", "  tolls: {", 1), "is the name of a source or stage"),
        (BILLING.replace("[north_speeds,", "[east_speeds,"), "no source or stage east_speeds"),
        (BILLING.replace("replicas: 2", "replica: 2"), "did you mean 'replicas'"),
        (BILLING.replace("stages:\n", "sources: {}\nstages:\n", 1), "sources: is empty"),
        (NORTH.replace("  speeds:\n", "  speed:\n"), "there is no stage speed"),
        (NORTH.replace("  speeds:\n", "  speeds: {keep: 0ms}\n"), "publish.speeds.keep"),
        (NORTH.replace("publish:\n  speeds:\n", ""), "outputs: is missing"),
        (BILLING.split("bindings:", maxsplit=1)[0] + "stages: {}\n", "sources: is missing"),
    ],
)
def test_each_mistake_says_what_to_do(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message.replace("(", r"\(")):
        loaded(tmp_path, text)


def test_public_keys_are_those_that_are_written_there(tmp_path: Path) -> None:
    key = "0f" * 32
    text = BILLING.replace("hops: 3", f"hops: 3, keys: '{key}'")
    assert loaded(tmp_path, text).bindings["north_speeds"].key_bytes() == [bytes.fromhex(key)]
    with pytest.raises(ConfigurationError, match="64 hexadecimal digits"):
        loaded(tmp_path, text.replace("0f", "OF"))


LOOKED_UP = """\
pipeline: billing
bindings:
  theirs: {participant: north, stream: speeds}
stages:
  tolls: {reads: [theirs], transform: stages:one}
outputs:
  tolls: {stage: tolls, corrected: {topic: tolls}}
"""
KEPT = KeptBinding(
    participant="north",
    pipeline="roads",
    stream="speeds",
    record=json.loads(RECORD),
    bucket_ms=250,
    replicas=2,
    hops=3,
    out_of_orderness_ms=700,
)
KEY = "0f" * 32


def looked_up(folder: Path, text: str, kept: KeptBinding | None = KEPT) -> Pipeline:
    (folder / "stages.py").write_text("def one(theirs): ...\n")
    path = folder / "billing.yaml"
    path.write_text(text)
    if kept is not None:
        kept_path(path).write_text(kept_text({"theirs": kept}))
    return load(path)


def test_a_stream_that_was_looked_up_is_as_if_it_were_written_out(tmp_path: Path) -> None:
    (tmp_path / "speed.avsc").write_text(RECORD)
    written = LOOKED_UP.replace(
        "stream: speeds",
        "stream: speeds, pipeline: roads, record: speed.avsc, replicas: 2, hops: 3,"
        " out_of_orderness: 700ms",
    )
    expected = looked_up(tmp_path, written + FEDERATION, None).bindings["theirs"]
    found = looked_up(tmp_path, LOOKED_UP + FEDERATION).bindings["theirs"]
    assert found.record.fields == expected.record.fields
    same = {"record": expected.record}
    assert found.model_copy(update=same) == expected


def test_who_pins_keys_believes_these_alone(tmp_path: Path) -> None:
    pinned = LOOKED_UP.replace("stream: speeds", f"stream: speeds, keys: [{KEY}]") + FEDERATION
    found = looked_up(tmp_path, pinned).bindings["theirs"]
    assert (found.participant, found.keys) == ("", [KEY])


def test_what_is_asked_for_is_what_the_file_names(tmp_path: Path) -> None:
    lookups = []

    def look_up(
        federation: str, name: str, wanted: WantedStream, cluster: Cluster
    ) -> KeptBinding | str:
        lookups.append((federation, name, wanted, cluster))
        return "nobody lists it"

    text = LOOKED_UP.replace(
        "stream: speeds", f"stream: speeds, pipeline: a, keys: [{KEY}], cluster: east"
    ).replace("bindings:", "clusters: {east: {kafka: 'e:1'}}\nbindings:")
    (tmp_path / "billing.yaml").write_text(text + FEDERATION + "bucket: 1s\n")
    with pytest.raises(ConfigurationError, match=r"billing.yaml:4: bindings.theirs: nobody lists"):
        load(tmp_path / "billing.yaml", look_up=look_up)
    wanted = WantedStream("north", "speeds", 1_000, "a", (bytes.fromhex(KEY),))
    assert lookups == [("roads", "theirs", wanted, Cluster("east", "e:1"))]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "participant: north, ",
            "",
            "theirs.record: is missing; write record: FILE.avsc, or name the participant",
        ),
        ("participant: north", "participant: No", "bindings.theirs.participant"),
        ("stream: speeds", "stream: A", "bindings.theirs.stream"),
        ("stream: speeds", "stream: speeds, pipeline: A", "bindings.theirs.pipeline"),
        ("stream: speeds", "stream: speeds, hops: 2", "theirs.hops: is looked up with"),
        ("stream: speeds", "stream: speeds, keys: [a]", "64 hexadecimal digits"),
        ("stream: speeds", "stream: tolls", "its columns are not known; look up tolls of north"),
        ("stream: speeds", "stream: speeds, pipeline: other", "its columns are not known"),
        ("pipeline: billing", "pipeline: billing\nbucket: 1s", "250 ms wide, and 1000 ms here"),
        (FEDERATION, "", "that of a federation, and this file names none"),
        ("roads", "Roads", "that of a federation, and this file names none"),
        (FEDERATION, "federation: roads\n", "federation: a mapping"),
    ],
)
def test_a_binding_that_cannot_be_looked_up_says_why(
    tmp_path: Path, old: str, new: str, message: str
) -> None:
    text = (LOOKED_UP + FEDERATION).replace(old, new, 1)
    with pytest.raises(ConfigurationError, match=message):
        looked_up(tmp_path, text)


def test_columns_that_cannot_be_carried_are_a_mistake_of_the_binding(tmp_path: Path) -> None:
    kept = KEPT.model_copy(update={"record": {"type": "record", "name": "r", "fields": []}})
    with pytest.raises(ConfigurationError, match=r"billing.yaml:3: .*it has no fields"):
        looked_up(tmp_path, LOOKED_UP + FEDERATION, kept)


def test_published_columns_are_those_that_the_file_states(tmp_path: Path) -> None:
    stated = NORTH.replace("  speeds:\n", "  speeds: {record: speed.avsc}\n")
    north = loaded(tmp_path, stated)
    assert [field.name for field in north.listed_records()["speeds"].fields] == ["segment"]
    assert loaded(tmp_path, NORTH).listed_records() == {}
    with pytest.raises(ConfigurationError, match=r"publish.speeds.record: .*there is no file"):
        loaded(tmp_path, stated.replace("{record: speed.avsc}", "{record: none.avsc}"))
