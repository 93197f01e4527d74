"""From an empty folder to a first result, as a person does it: the commands only, on a broker
and a Spark of their own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

_COMMAND_S = 240


class Shell:
    """Runs ``anabranch`` in the folder of a new pipeline."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, *words: str, code: int = 0, stdin: str = "") -> str:
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith("ANABRANCH_KAFKA")
        }
        command = [sys.executable, "-m", "anabranch.cli", *words]
        done = subprocess.run(
            command,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=_COMMAND_S,
            check=False,
            env=environment,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return done.stdout if code == 0 else done.stdout + done.stderr


@pytest.fixture
def anabranch(tmp_path: Path) -> Shell:
    made = Shell(tmp_path)
    made("init", "sensors")
    return Shell(tmp_path / "sensors")


def expected(folder: Path) -> list[dict[str, object]]:
    return [
        json.loads(line)
        for line in (folder / "tests/sample/hottest.expected.jsonl").read_text().splitlines()
    ]


@pytest.mark.integration
@pytest.mark.nightly
def test_the_stage_of_a_new_pipeline_passes_its_test_and_a_wrong_one_does_not(
    anabranch: Shell,
) -> None:
    assert anabranch("test") == "sample: hottest: 6 rows, as expected\n"
    stages = anabranch.folder / "stages.py"
    text = stages.read_text()
    stages.write_text(text.replace("F.max", "F.min"))
    lines = anabranch("test", code=1).splitlines()
    assert lines[0] == "sample: hottest: 6 rows, 3 rows are missing (-), 3 are not expected (+)"
    assert '  - {"celsius": 23.25, "sensor": "roof", "until": "10:00:10"}' in lines
    assert '  + {"celsius": 21.5, "sensor": "roof", "until": "10:00:10"}' in lines
    stages.write_text(
        text.replace('F.max("celsius")', 'F.udf(lambda c: 1 / 0, "double")(F.max("celsius"))')
    )
    raised = anabranch("test", code=1)
    assert "stage hottest, function stages:hottest: " in raised
    assert "ZeroDivisionError" in raised


SQL = """sql: |
      SELECT sensor, date_format(window.end, 'HH:mm:ss') AS until, max(celsius) AS celsius,
        window.end AS event_time
      FROM readings WHERE sensor != :without GROUP BY window(event_time, '10 seconds'), sensor
    parameters: {without: none}"""


@pytest.mark.integration
@pytest.mark.nightly
def test_a_query_gives_what_the_function_gives_and_is_judged_as_it(anabranch: Shell) -> None:
    file = anabranch.folder / "pipeline.yaml"
    file.write_text(file.read_text().replace("transform: stages:hottest", SQL))
    assert anabranch("test") == "sample: hottest: 6 rows, as expected\n"
    output = anabranch("check")
    assert "stage hottest: stateful; " in output
    assert "gives sensor string, until string, celsius double" in output
    file.write_text(file.read_text().replace("window.end AS event_time", "window.end AS ended"))
    assert ": stage hottest: sql: the result has no column event_time" in anabranch("check", code=2)


@pytest.mark.integration
def test_from_an_empty_folder_to_results(anabranch: Shell) -> None:
    file = anabranch.folder / "pipeline.yaml"
    kept = file.read_text().replace("    topics: ", "    history: 1h\n    topics: ")
    file.write_text(kept.replace("    transform: ", "    history: 1h\n    transform: "))
    output = anabranch("up", "--detach")
    assert "\nready  kafka 127.0.0.1:" in output
    try:
        assert (
            anabranch("produce", "readings", "tests/sample/readings.jsonl")
            == "sent 10 records to topic readings\n"
        )
        bad = "tests/sample/hottest.expected.jsonl"
        assert f"{bad}:1: not a record reading: " in anabranch("produce", "readings", bad, code=2)
        rows = [
            json.loads(line)
            for line in anabranch(
                "tail", "hottest", "--from-beginning", "--count", "6"
            ).splitlines()
        ]
        assert sorted(rows, key=json.dumps) == sorted(expected(anabranch.folder), key=json.dumps)
        assert json.loads(anabranch("status", "--json"))
        tapped = [json.loads(line) for line in anabranch("tap", "readings").splitlines()]
        sent = (anabranch.folder / "tests/sample/readings.jsonl").read_text().splitlines()
        assert Counter(row["celsius"] for row in tapped) <= Counter(
            json.loads(line)["celsius"] for line in sent
        )
        assert len(tapped) >= len(sent) - 3, "the newest ones may still be open"
        warmest = "SELECT max(celsius) AS celsius FROM hottest"
        assert json.loads(anabranch("tap", "hottest", "--sql", warmest)) == {
            "celsius": max(row["celsius"] for row in rows)
        }
        assert "is running (pid " in anabranch("restart", "ingestion/readings")
        line = '{"at":0,"sensor":"cellar","celsius":9.5}\n'
        assert (
            anabranch("produce", "readings", "-", "--now", stdin=line)
            == "sent 1 records to topic readings\n"
        )
        last = json.loads(
            anabranch("tail", "hottest", "--from-beginning", "--count", "7").splitlines()[-1]
        )
        assert (last["sensor"], last["celsius"]) == ("cellar", 9.5)
        anabranch("down")
        assert "\nready  kafka 127.0.0.1:" in anabranch("up", "--detach")
        line = '{"at":0,"sensor":"attic","celsius":31.5}\n'
        anabranch("produce", "readings", "-", "--now", stdin=line)
        again = [
            json.loads(each)
            for each in anabranch(
                "tail", "hottest", "--from-beginning", "--count", "8"
            ).splitlines()
        ]
        assert sorted(again[:6], key=json.dumps) == sorted(rows, key=json.dumps)
        assert [row["celsius"] for row in again[6:]] == [9.5, 31.5], "it goes on where it stopped"
        assert "processing/local.0 | " in anabranch("logs", "processing")
        assert "runs" in anabranch("reset", "--yes", code=2)
    finally:
        anabranch("down")
    assert "embedded broker" in anabranch("reset", "--yes")
    assert sorted(path.name for path in (anabranch.folder / ".anabranch").iterdir()) == [
        "supervisor.lock"
    ]
