from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.yaml_text import PIPELINE_FILE_BYTES_MAX
from anabranch.protocol import limits
from anabranch.protocol.errors import ConfigurationError

RECORD = (
    '{"type": "record", "name": "position_report", "fields": [{"name": "time", "type": "long"},'
    ' {"name": "vid", "type": "int"}, {"name": "speed", "type": "double"}]}'
)
STAGES = (
    "def tolls(reports, window=None): return reports\ndef join(reports, others): return"
    " reports\ndef chain(df): return df\n"
)
GOOD = """\
pipeline: toll-road
bucket: 250ms
max_delay: 3s
partitions: 4
sources:
  reports:
    topics: [reports]
    record: position_report
    format: json
    event_time: {field: time, unit: ms}
    out_of_orderness: 200ms
    idle_timeout: {partition: 5s, source: never}
    max_ahead: 1m
    late: dead_letter
    dead_letter: reports.rejected
stages:
  tolls:
    participant: north
    reads: [reports]
    transform: stages:tolls
    replicas: 2
    on_missing_input: process
    parameters: {window: 1 minute}
outputs:
  tolls:
    stage: tolls
    corrected: {topic: tolls, format: json, key: [xway, dir]}
    live: {topic: tolls.live, format: json}
"""
SMALL = """\
pipeline: p
sources:
  reports:
    topics: reports
    record: records/other.avsc
    event_time: arrival
    idle_timeout: {partition: never, source: 1s}
    bounded: true
    max_ahead: unlimited
stages:
  a: {reads: reports, transform: [stages:chain, stages:chain]}
outputs:
  out: {stage: a, corrected: {topic: t}}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    records = tmp_path / "schemas" / "records" / "position_report"
    records.mkdir(parents=True)
    (records / "v1.avsc").write_text(RECORD)
    (records / "v2.avsc").write_text(RECORD)
    (records / "v2.avsc").write_text(
        RECORD.replace("]}", ', {"name": "lane", "type": ["null", "int"], "default": null}]}')
    )
    (tmp_path / "records").mkdir()
    (tmp_path / "records" / "other.avsc").write_text(RECORD)
    (tmp_path / "stages.py").write_text(STAGES)
    return tmp_path


def loaded(folder: Path, text: str) -> Pipeline:
    path = folder / "pipeline.yaml"
    path.write_text(text)
    return load(path)


def mistakes(folder: Path, text: str) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        loaded(folder, text)
    prefix = f"{folder / 'pipeline.yaml'}:"
    lines = str(caught.value).splitlines()
    assert all(line.startswith(prefix) for line in lines)
    return [line.removeprefix(prefix) for line in lines]


def test_everything_that_the_file_says_is_in_the_pipeline(folder: Path) -> None:
    found = loaded(folder, GOOD)
    assert (found.name, found.bucket_ms, found.max_delay_ms, found.partitions) == (
        "toll-road",
        250,
        3_000,
        4,
    )
    source = found.sources["reports"]
    assert (source.topics, source.format, source.out_of_orderness_ms, source.max_ahead_ms) == (
        ["reports"],
        "json",
        200,
        60_000,
    )
    assert (
        source.idle_timeout.partition_ms,
        source.idle_timeout.source_ms,
        source.bounded,
        source.late,
    ) == (
        5_000,
        None,
        False,
        "dead_letter",
    )
    assert (source.event_time.field, source.event_time.unit, source.dead_letter) == (
        "time",
        "ms",
        "reports.rejected",
    )
    assert (source.record.name, source.record.version, len(source.record.older)) == (
        "position_report",
        2,
        1,
    )
    stage = found.stages["tolls"]
    assert (stage.participant, stage.reads, stage.transform, stage.replicas) == (
        "north",
        ["reports"],
        ["stages:tolls"],
        2,
    )
    assert stage.parameters == {"window": "1 minute"}
    output = found.outputs["tolls"]
    assert (output.stage, output.corrected.topic, output.corrected.key) == (
        "tolls",
        "tolls",
        ["xway", "dir"],
    )
    assert output.live is not None
    assert (output.live.topic, output.live.key, output.live.upsert) == (
        "tolls.live",
        ["xway", "dir"],
        False,
    )
    assert found.stream_writers("reports") == ["0"]
    assert found.streams() == ["reports", "tolls"]


def test_what_is_left_out_has_defaults(folder: Path) -> None:
    found = loaded(folder, SMALL)
    assert (found.bucket_ms, found.max_delay_ms, found.partitions) == (250, 3_000, 4)
    source = found.sources["reports"]
    assert (
        source.event_time.field,
        source.idle_timeout.partition_ms,
        source.idle_timeout.source_ms,
    ) == (None, None, 1_000)
    assert (source.bounded, source.max_ahead_ms, source.dead_letter) == (
        True,
        None,
        "reports.rejected",
    )
    assert found.stages["a"].transform == ["stages:chain", "stages:chain"]
    assert found.stages["a"].participant == "local"
    assert (found.outputs["out"].live, found.outputs["out"].corrected.key) == (None, [])


def test_a_live_topic_has_options_of_its_own(folder: Path) -> None:
    live = loaded(
        folder,
        GOOD.replace(
            "tolls.live, format: json}",
            "tolls.live, format: avro, key: [dir], upsert: true, partitions: 3}",
        ),
    )
    sink = live.outputs["tolls"].live
    assert sink is not None
    assert (sink.format, sink.key, sink.upsert, sink.partitions) == ("avro", ["dir"], True, 3)


def test_a_version_of_the_record_can_be_named(folder: Path) -> None:
    found = loaded(folder, GOOD.replace("record: position_report", "record: position_report/v1"))
    assert found.sources["reports"].record.version == 1


def test_the_pipelines_of_the_examples_are_right(request: pytest.FixtureRequest) -> None:
    files = sorted((request.config.rootpath / "examples").glob("*/*.yaml"))
    assert files
    for file in files:
        assert load(file).stages


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("late: dead_letter", "earliest"),
        ("start: latest", "latest"),
        ("start: 2026-05-01T14:00:00Z", 1_777_644_000_000),
        ("start: '2026-05-01T16:00:00+02:00'", 1_777_644_000_000),
        ("start: 2026-05-01T14:00:00", 1_777_644_000_000),
    ],
)
def test_a_source_may_begin_elsewhere(folder: Path, text: str, start: object) -> None:
    found = loaded(
        folder, SMALL.replace("    topics: reports\n", f"    topics: reports\n    {text}\n")
    )
    assert found.sources["reports"].start == start


def test_a_stage_may_be_a_query(folder: Path) -> None:
    found = loaded(
        folder,
        SMALL.replace("transform: [stages:chain, stages:chain]", 'sql: "SELECT * FROM reports"'),
    )
    assert (found.stages["a"].sql, found.stages["a"].transform, found.stages["a"].functions) == (
        "SELECT * FROM reports",
        [],
        ["sql"],
    )


def test_a_version_of_the_file_may_be_stated(folder: Path) -> None:
    assert loaded(folder, f"version: 1\n{GOOD}").version == loaded(folder, GOOD).version == 1


def test_variables_of_the_environment_are_filled_in(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOPIC", "reports.eu")
    found = loaded(
        folder,
        GOOD.replace("topics: [reports]", "topics: ['${TOPIC}']").replace(
            "replicas: 2", "replicas: ${REPLICAS:-3}"
        ),
    )
    assert (found.sources["reports"].topics, found.stages["tolls"].replicas) == (["reports.eu"], 3)
    assert mistakes(folder, GOOD.replace("topics: [reports]", "topics: ['${TOPICS}']"))[0].endswith(
        "7: sources.reports.topics[0]: the environment variable TOPICS is not set; set it, or write"
        " ${TOPICS:-DEFAULT}"
    )


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "pipeline: toll-road",
            "version: 2\npipeline: toll-road",
            "1: version: 2 is no version of the pipeline file that this anabranch reads",
        ),
        (
            "format: json\n",
            "start: yesterday\n",
            "9: sources.reports.start: 'yesterday' is not known; use earliest, latest, or a time",
        ),
        (
            "replicas: 2",
            "sql: SELECT 1",
            "21: stages.tolls.sql: a stage has either transform or sql",
        ),
        ("transform: stages:tolls", "sql: ''", "20: stages.tolls.sql: is empty"),
        (
            "pipeline: toll-road",
            "pipeline: Toll Road",
            "1: pipeline: pipeline name 'Toll Road': use lower case",
        ),
        ("pipeline: toll-road\n", "", "1: pipeline: is missing"),
        ("bucket: 250ms", "bucket: 1ms", "2: bucket: '1ms' is out of range; use from 10ms to 1d"),
        (
            "    live: {topic: tolls.live, format: json}\n",
            "    max_delay: 10s\n",
            "outputs.tolls.max_delay: this output has no live topic",
        ),
        ("max_delay: 3s", "maxdelay: 3s", "3: maxdelay: unknown key; did you mean 'max_delay'?"),
        (
            "partitions: 4",
            "partitions: many",
            "4: partitions: an integer from 1 to 1024 is wanted, not 'many'",
        ),
        ("topics: [reports]", "topics: ['a b']", "is not a topic name"),
        (
            "topics: [reports]",
            "topics: [reports.rejected]",
            "15: sources.reports.dead_letter: topic reports.rejected is used by",
        ),
        (
            "topics: [reports]",
            "topics: [toll-road.tolls.boundaries]",
            "is an internal topic of this pipeline",
        ),
        (
            "record: position_report",
            "record: position_reprt",
            "8: sources.reports.record: there is no record position_reprt; did you mean",
        ),
        ("record: position_report", "record: zzzz", "put it into schemas/records/NAME/v1.avsc"),
        ("record: position_report", "record: Zzzz", "is neither a record"),
        ("record: position_report", "record: position_report/v9", "there is no version 9"),
        ("record: position_report", "record: nowhere.avsc", "nowhere.avsc; there are none"),
        (
            "format: json",
            "format: jsn",
            "9: sources.reports.format: 'jsn' is not known; did you mean 'json'?",
        ),
        (
            "event_time: {field: time, unit: ms}",
            "event_time: arival",
            "10: sources.reports.event_time: 'arival' is not known; use arrival",
        ),
        (
            "    event_time: {field: time, unit: ms}\n",
            "",
            "6: sources.reports: event_time is missing",
        ),
        (
            "event_time: {field: time, unit: ms}",
            "event_time: [time]",
            "a mapping is wanted with keys field, unit, zone",
        ),
        (
            "event_time: {field: time, unit: ms}",
            "event_time: {unit: s}",
            "10: sources.reports.event_time.field: is missing",
        ),
        (
            "{field: time, unit: ms}",
            "{field: tim}",
            "record position_report has no field tim; did you mean 'time'?",
        ),
        (
            "idle_timeout: {partition: 5s, source: never}",
            "idle_timeout: {partitions: 5s}",
            "12: sources.reports.idle_timeout.partitions: unknown key",
        ),
        (
            "    reads: [reports]\n",
            "",
            "17: stages.tolls.reads: is missing; name at least one stream",
        ),
        (
            "reads: [reports]",
            "reads: [tolls]",
            "stages read each other in a circle: tolls reads tolls",
        ),
        (
            "transform: stages:tolls",
            "transform: stages:tols",
            "20: stages.tolls.transform: module stages has no function tols; did you mean tolls?",
        ),
        ("transform: stages:tolls", "transform: []", "module:function is wanted"),
        ("    transform: stages:tolls\n", "", "is missing; write module:function"),
        (
            "transform: stages:tolls",
            "transform: [stages:chain, stages:zzz]",
            "20: stages.tolls.transform[1]: module stages has no function zzz",
        ),
        (
            "transform: stages:tolls",
            "transform: stages:join",
            "join has no argument window for the parameter window",
        ),
        ("replicas: 2", "replicas: 99", "21: stages.tolls.replicas: an integer from 1 to 16"),
        (
            "replicas: 2",
            "replicas: 1\n    ha: passive",
            "22: stages.tolls.ha: passive needs replicas: 2 or more",
        ),
        (
            "replicas: 2",
            "ha: upstream_backup\n    state_horizon: 1s\n    replicas: 2",
            "21: stages.tolls.ha: upstream_backup is one process",
        ),
        (
            "replicas: 2",
            "ha: amnesia",
            "21: stages.tolls.ha: amnesia needs the time after which a record",
        ),
        (
            "replicas: 2",
            "transfer: checkpoint",
            "21: stages.tolls.transfer: checkpoint is for stages with ha: upstream_backup",
        ),
        (
            "replicas: 2",
            "ha: pasive",
            "21: stages.tolls.ha: 'pasive' is not known; did you mean 'passive'?",
        ),
        ("on_missing_input: process", "version: 0", "22: stages.tolls.version: "),
        (
            "on_missing_input: process",
            "on_missing_input: wait",
            "22: stages.tolls.on_missing_input: 'wait' is not known",
        ),
        (
            "{window: 1 minute}",
            "{reports: 1}",
            "23: stages.tolls.parameters.reports: reports is an input of the stage already",
        ),
        ("{window: 1 minute}", "{a-b: 1}", "a parameter is an argument of a function"),
        ("{window: 1 minute}", "{window: .nan}", "is not a plain value"),
        (
            "    stage: tolls\n",
            "    stage: reports\n",
            "26: outputs.tolls.stage: there is no stage reports; it is a source",
        ),
        (
            "    stage: tolls\n",
            "    stage: toll\n",
            "26: outputs.tolls.stage: there is no stage toll; did you mean 'tolls'?",
        ),
        ("    corrected:", "    correct:", "27: outputs.tolls.correct: unknown key; did you mean"),
        ("{topic: tolls, ", "{", "27: outputs.tolls.corrected.topic: is missing"),
        (
            "key: [xway, dir]",
            "partitions: 0",
            "27: outputs.tolls.corrected.partitions: an integer from 1",
        ),
        (
            "topic: tolls.live",
            "topic: tolls",
            (
                "28: outputs.tolls.live.topic: topic tolls is used by outputs.tolls.corrected.topic"
                " already"
            ),
        ),
        (
            "topic: tolls.live",
            "topic: reports",
            "topic reports is used by sources.reports.topics[0] already",
        ),
        (
            "tolls.live, format: json}",
            "tolls.live, upsert: maybe}",
            "28: outputs.tolls.live.upsert: true or false is wanted, not 'maybe'",
        ),
        (
            "tolls.live, format: json}",
            "tolls.live, upsert: true, key: []}",
            "28: outputs.tolls.live.upsert: an upsert view holds one value per",
        ),
        (
            "topic: tolls.live",
            "topic: toll-road.tolls.live.progress",
            "is an internal topic of this pipeline",
        ),
        (
            "  tolls:\n    participant",
            "  reports:\n    participant",
            "17: stages.reports: reports is the name of a source already",
        ),
        ("  tolls:\n    stage", "  Tolls:\n    stage", "25: outputs.Tolls: output name 'Tolls'"),
    ],
)
def test_each_mistake_names_file_line_and_key(folder: Path, old: str, new: str, says: str) -> None:
    assert GOOD.count(old) >= 1
    found = mistakes(folder, GOOD.replace(old, new, 1))
    assert any(says in line for line in found), found


@pytest.mark.parametrize("section", ["sources", "stages", "outputs"])
@pytest.mark.parametrize("value", ["7", "{}", "{x: 7}"])
def test_a_section_that_is_not_one_is_a_mistake(folder: Path, section: str, value: str) -> None:
    start = GOOD.index(f"{section}:")
    end = {
        "sources": GOOD.index("stages:"),
        "stages": GOOD.index("outputs:"),
        "outputs": len(GOOD),
    }[section]
    assert any(
        f": {section}" in line
        for line in mistakes(folder, f"{GOOD[:start]}{section}: {value}\n{GOOD[end:]}")
    )
    assert any(
        f"{section}: is missing" in line for line in mistakes(folder, GOOD[:start] + GOOD[end:])
    )


def test_all_mistakes_are_reported_at_once_in_the_order_of_the_file(folder: Path) -> None:
    text = (
        GOOD.replace("250ms", "250")
        .replace("format: json\n", "format: xml\n", 1)
        .replace("reads: [reports]", "reads: [nothing]")
    )
    found = mistakes(folder, text.replace("stage: tolls", "stage: nothing"))
    assert [int(line.split(":")[0]) for line in found] == [2, 9, 19, 26]


@pytest.mark.parametrize(
    ("keys", "state_horizon_ms", "writers", "processes"),
    [
        ("ha: active", None, ["0", "1"], ["0", "1"]),
        ("ha: passive", None, ["0"], ["0", "1"]),
        ("ha: upstream_backup\n    state_horizon: 10s", 10_000, ["0"], ["0"]),
        ("ha: amnesia\n    state_horizon: 0ms", 0, ["0"], ["0"]),
    ],
)
def test_each_mode_of_ha(
    folder: Path, keys: str, state_horizon_ms: int | None, writers: list[str], processes: list[str]
) -> None:
    stage = loaded(
        folder, GOOD.replace("replicas: 2", f"replicas: {len(processes)}\n    {keys}")
    ).stages["tolls"]
    assert stage.ha == keys.split()[1]
    assert stage.state_horizon_ms == state_horizon_ms
    assert (stage.replica_ids(), stage.process_ids()) == (writers, processes)


def test_how_state_travels(folder: Path) -> None:
    backup = "ha: upstream_backup\n    state_horizon: 10s"
    pipeline = loaded(folder, GOOD.replace("replicas: 2", f"{backup}\n    transfer: checkpoint"))
    assert pipeline.by_checkpoint() == ["tolls"]
    assert loaded(folder, GOOD.replace("replicas: 2", backup)).by_checkpoint() == []


def test_a_circle_is_reported_once(folder: Path) -> None:
    text = SMALL.replace(
        "  a: {reads: reports, transform: [stages:chain, stages:chain]}\n",
        "".join(
            f"  {a}: {{reads: {b}, transform: [stages:chain, stages:chain]}}\n"
            for a, b in [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]
        ),
    )
    entered_first = text.replace(
        "stages:\n", "stages:\n  z: {reads: b, transform: [stages:chain, stages:chain]}\n"
    )
    assert mistakes(folder, entered_first) == [
        "12: stages.a.reads: stages read each other in a circle: a reads b reads c reads a"
    ]
    assert mistakes(folder, text) == [
        "11: stages.a.reads: stages read each other in a circle: a reads b reads c reads a"
    ]


def test_dead_letters_of_two_sources_may_share_a_topic(folder: Path) -> None:
    second = GOOD[GOOD.index("  reports:\n    topics") : GOOD.index("stages:")].replace(
        "  reports:\n    topics: [reports]", "  more:\n    topics: [more]"
    )
    assert (
        loaded(folder, GOOD.replace("stages:\n", f"{second}stages:\n", 1))
        .sources["more"]
        .dead_letter
        == "reports.rejected"
    )


def test_a_schema_that_does_not_fit_is_reported_line_by_line(folder: Path) -> None:
    (folder / "records" / "other.avsc").write_text(
        RECORD.replace('"time"', '"event_time"')
        .replace('"vid"', '"EVENT_TIME"')
        .replace('"double"', '"date"')
    )
    found = mistakes(folder, SMALL)
    assert len(found) == 3
    assert all(line.startswith("5: sources.reports.record: ") for line in found)


def test_a_file_with_too_many_inputs_is_rejected(folder: Path) -> None:
    many = ", ".join(f"s{number}" for number in range(limits.INPUTS_MAX + 1))
    assert any(
        "inputs are possible" in line
        for line in mistakes(folder, SMALL.replace("reads: reports", f"reads: [{many}]"))
    )


def test_parameters_keep_their_values(folder: Path) -> None:
    text = SMALL.replace(
        "stages:chain]}", "stages:chain], parameters: {a: [1, 2.5, x, true, null, {b: 0x10}]}}"
    )
    assert loaded(folder, text).stages["a"].parameters == {
        "a": [1, 2.5, "x", True, None, {"b": 16}]
    }


def test_aliases_cannot_make_a_small_file_huge(folder: Path) -> None:
    """Ten levels of ten aliases each would be ten thousand million values."""
    levels = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
        f"      a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 10)
    )
    found = mistakes(
        folder, GOOD.replace("parameters: {window: 1 minute}", f"parameters:\n      {levels}")
    )
    assert any("parameters hold more than" in line for line in found)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (b"a: [1", ":1: not YAML: '[' is not closed by ']' before the end"),
        (b"x: 1\na: [1, 2\nb: 3\n", ":2: not YAML: '[' is not closed by ']' before line 3"),
        (b"a: {b: 1\nc: 2\n", ":1: not YAML: '{' is not closed by '}' before line 2"),
        (b'a: "b\nc: 2\nd: 3\n', ":1: not YAML: the quotation mark is not closed"),
        (b"a: {b: ${C}}\n", ":1: not YAML: expected ',' or '}', but got '{'; put texts"),
        (b"a: [b]]\n", ":1: not YAML: a ']' closes nothing"),
        (b"a:\n  b: 1\n\tc: 2\n", ":3: not YAML: there is a tab; indent with spaces"),
        (b"a:\n  b: 1\n   c: 2\n", ":3: not YAML: a colon is out of place"),
        (b"a:\n  b: 1\n c: 2\n", ":3: not YAML: the line is not indented like"),
        (b"x: 1\na:1\nb: 2\n", ":2: not YAML: a key needs a colon and a space after it"),
        (b"a\nb: 2\n", ":2: not YAML: a colon is out of place: either the line before"),
        (b"a: @b\n", "cannot start any token; put texts with special characters in quotes"),
        (b"a: 1\n---\nb: 2\n", ":2: not YAML: a second document begins; leave '---' out"),
        (b"\x00\x01", "not YAML"),
        (b"x: 1\na: \xff", ":2: not YAML: byte 0xff is not UTF-8; save the file as UTF-8"),
        (b"x: 1\nx: 2\n", ':2: found duplicate key "x"'),
        (b"a: *nothing", "not YAML"),
        (b"", ":1: the file is empty; it needs pipeline, sources, stages and outputs"),
        (b"# nothing\n", ":1: the file is empty; it needs pipeline, sources, stages and outputs"),
        (
            b"[]",
            ":1: a mapping is wanted, not a list; it needs pipeline, sources, stages and outputs",
        ),
        (b"7", ":1: a mapping is wanted, not 7; it needs"),
        (b"[" * 200, "not YAML"),
        (b"!!python/object/apply:os.system [ls]", "a mapping is wanted"),
        (b"a: 1\n" * 1 + b"#" * PIPELINE_FILE_BYTES_MAX, "is larger than"),
    ],
)
def test_what_is_no_pipeline_file_at_all_is_one_clear_line(
    tmp_path: Path, text: bytes, says: str
) -> None:
    path = tmp_path / "p.yaml"
    path.write_bytes(text)
    with pytest.raises(ConfigurationError) as caught:
        load(path)
    assert says in str(caught.value)
    assert str(caught.value).startswith(str(path))
    assert len(str(caught.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        (
            "    topics:",
            "    topic:",
            "7: sources.reports.topic: unknown key; did you mean 'topics'?",
        ),
        ("stages:\n", "stage:\n", "16: stage: unknown key; did you mean 'stages'?"),
        (
            "    reads: [reports]",
            "    reads: [report]",
            (
                "19: stages.tolls.reads[0]: there is no source or stage report; did you mean"
                " 'reports'?"
            ),
        ),
        (
            "transform: stages:tolls",
            "transform: stages.py:tolls",
            "20: stages.tolls.transform: name the module without .py: stages:tolls",
        ),
        (
            "topics: [reports]",
            "topics: ['a b']",
            (
                "7: sources.reports.topics[0]: 'a b' is not a topic name; use at most 249"
                " letters, digits, '.', '_' and '-'"
            ),
        ),
        (
            "topics: [reports]",
            "topics: [toll-road.control.reports]",
            (
                "7: sources.reports.topics[0]: topic toll-road.control.reports is an internal topic"
                " of this pipeline; give it another name"
            ),
        ),
        (
            "{topic: tolls, ",
            "{topic: reports, ",
            (
                "27: outputs.tolls.corrected.topic: topic reports is used by"
                " sources.reports.topics[0] already; a topic has one use"
            ),
        ),
        (
            "{topic: tolls, ",
            "{topic: a/b, ",
            (
                "27: outputs.tolls.corrected.topic: 'a/b' is not a topic name; use at most 249"
                " letters, digits, '.', '_' and '-'"
            ),
        ),
    ],
)
def test_one_mistake_is_one_line_without_what_follows_from_it(
    folder: Path, old: str, new: str, says: str
) -> None:
    assert mistakes(folder, GOOD.replace(old, new, 1)) == [says]


def test_a_key_of_an_entry_that_is_not_indented_is_named(folder: Path) -> None:
    line = "    transform: stages:tolls\n"
    text = GOOD.replace(line, "").replace("outputs:\n", f"{line[2:]}outputs:\n")
    assert any(
        line.endswith("transform is a key of an entry of stages; indent it below its entry")
        for line in mistakes(folder, text)
    )


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read: No such file"):
        load(tmp_path / "nothing.yaml")
