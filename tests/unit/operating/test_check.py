"""``anabranch check``: what can be said of a pipeline without Spark."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from anabranch.codec.blocks import EVENT_TIME
from anabranch.operating import check
from anabranch.operating.new_pipeline import write
from anabranch.pipeline.file import load
from harness.missing_java import hide_java
from harness.pipeline_files import written

FILE = """
pipeline: p
sources:
  s: {topics: [t], record: car.avsc, event_time: arrival}
stages:
  a: {reads: s, transform: "stages:f"}
outputs:
  o:
    stage: a
    corrected: CORRECTED
    live: LIVE
"""
SCHEMA = pa.schema(
    [("k", pa.string()), ("n", pa.map_(pa.int64(), pa.int64())), (EVENT_TIME, pa.int64())]
)
PLAIN = "{topic: c, key: [k]}"


def with_sinks(folder: Path, corrected: str, live: str) -> Path:
    text = FILE.replace("CORRECTED", corrected).replace("LIVE", live)
    return written(folder, text, "def f(s): return s\n")


@pytest.mark.parametrize(
    ("corrected", "live", "mistakes"),
    [
        (PLAIN, "{topic: l}", []),
        (
            "{topic: c, key: [k, z]}",
            "{topic: l, key: [k]}",
            ["output o.corrected: key column z is not a column of the output; there are k, n"],
        ),
        (
            PLAIN,
            "{topic: l, key: [z]}",
            ["output o.live: key column z is not a column of the output; there are k, n"],
        ),
        (
            "{topic: c, key: [event_time]}",
            "{topic: l, key: [k]}",
            [
                (
                    "output o.corrected: key column event_time is not a column of the output; there"
                    " are k, n"
                )
            ],
        ),
        (
            PLAIN,
            "{topic: l, format: avro}",
            [
                (
                    "output o.live: column n of type map<int64, int64> cannot become Avro; use"
                    " format: json, or make other columns of it in the stage"
                )
            ],
        ),
    ],
)
def test_a_sink_that_delivery_could_not_write_is_found(
    tmp_path: Path, corrected: str, live: str, mistakes: list[str]
) -> None:
    pipeline = load(with_sinks(tmp_path, corrected, live))
    found = check.sink_mistakes(pipeline, {"a": SCHEMA})
    assert found == [f"{pipeline.path}:8: {text}" for text in mistakes]
    assert check.sink_mistakes(pipeline, {}) == [], "a stage that cannot run was told already"


def test_samples_whose_times_are_of_another_unit_are_named(tmp_path: Path) -> None:
    write(tmp_path / "new", "sensors")
    file = tmp_path / "new" / "pipeline.yaml"
    assert check.wrong_units(load(file)) == []
    file.write_text(file.read_text().replace("unit: ms", "unit: us"))
    (found,) = check.wrong_units(load(file))
    assert "source readings: " in found
    assert "readings.jsonl: event times are about 1970-01-" in found
    assert "with unit: ms they would be about" in found
    file.write_text(file.read_text().replace("unit: us", "unit: s"))
    (found,) = check.wrong_units(load(file))
    assert "not between 1 ms after 1970" in found
    assert "with unit: ms they would be about" in found


def test_without_java_it_ends_with_2_and_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    hide_java(monkeypatch)
    assert check.main([str(with_sinks(tmp_path, PLAIN, "{topic: l}"))]) == 2
    assert capsys.readouterr().out.startswith("error: no java on PATH")
