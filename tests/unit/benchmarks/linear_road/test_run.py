"""The command, and what it claims of a run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.local.deployment import PACE
from anabranch.pipeline.file import load
from benchmarks.held_cores import Spent
from benchmarks.linear_road.__main__ import FORMS, Options, Outcome, _last_answer_ms, claim, main
from benchmarks.linear_road.answers import of_rows, parse
from benchmarks.linear_road.feeder import HISTORY_TOPIC, TRAFFIC_TOPIC, Fed
from benchmarks.linear_road.generator import generate
from benchmarks.linear_road.mutants import perfect
from benchmarks.linear_road.nodes import Held
from benchmarks.linear_road.receiver import TOPICS, Received, line_of
from benchmarks.linear_road.report import report
from benchmarks.linear_road.validator import Judging, Verdict, judge, truth
from demo.deployment import copy_pipeline

BY_BACKLOG = (
    "valid for the last 15 of 180 minutes at L = 2, the first of which were drained as a backlog:"
    " not an L-rating"
)


def options_of(*words: str) -> Options:
    """Parse a command line, which is not run."""
    found: list[Options] = []

    def run(options: Options, _: Path) -> int:
        found.append(options)
        return 0

    assert main(words, run) == 0
    return found[0]


@pytest.mark.parametrize(
    ("words", "label"),
    [
        (
            [],
            "valid for 15 hot minutes at L = 0.5, the last 3 of them by the clock: not an L-rating",
        ),
        (["--last", "15"], "valid for 15 hot minutes at L = 0.5: not an L-rating"),
        (
            ["--xways", "2", "--minutes", "180", "--last", "15"],
            BY_BACKLOG,
        ),
        (["--xways", "1.5", "--minutes", "180"], "L-rating: at least 1.5"),
        (
            ["--minutes", "180", "--mode", "hot"],
            "valid for 180 hot minutes at L = 0.5: not an L-rating",
        ),
        (
            ["--nodes", "2", "--minutes", "6"],
            "valid for 6 hot minutes at L = 0.5 on 2 nodes: not an L-rating",
        ),
        (
            ["--nodes", "1", "--node-core", "0.33", "--minutes", "6", "--last", "4"],
            (
                "valid for 6 hot minutes at L = 0.5, the last 3 of them by the clock on 1 node of"
                " 0.33 cores: not an L-rating"
            ),
        ),
        (
            ["--nodes", "4", "--node-core", "0.33", "--minutes", "180", "--last", "4"],
            (
                "valid for the last 3 of 180 minutes at L = 0.5 on 4 nodes of 0.33 cores, the"
                " first of which were drained as a backlog: not an L-rating"
            ),
        ),
    ],
)
def test_a_run_is_called_what_it_is(words: list[str], label: str) -> None:
    options = options_of(*words)
    assert options.label(Verdict({}, ())) == label
    assert options.label(Verdict({}, ("x",))) == "not valid: no rating"


@pytest.mark.parametrize(
    "words",
    [
        ["--last", "16"],
        ["--last", "0"],
        ["--mode", "border"],
        ["--form", "x"],
        ["--node-core", "0.33"],
        ["--nodes", "5"],
        ["--nodes", "2", "--node-core", "0"],
        ["--nodes", "2", "--node-core", "0.33", "--last", "1"],
        ["--nodes", "2", "--form", "relational"],
        ["--nodes", "2", "--fault", "kill"],
    ],
)
def test_other_options_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        options_of(*words)
    assert ended.value.code == 2


def test_a_claim_names_the_nodes_and_what_each_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PACE, "2000")
    options = options_of("--nodes", "2", "--node-core", "0.33", "--minutes", "6", "--last", "4")
    assert (options.backlog_s, options.judged_s) == (120, 180)
    world = generate(options.plan)
    held = Held(180.0, {"local.0": Spent(54.0, 1800, 900), "local.1": Spent(9.0, 1800, 0)})
    fed = Fed(world.stream.height, 12, 0)
    outcome = Outcome(Verdict({}, ()), fed, None, 21.26, 30.0, 5.0, 400.0, held=held)
    facts = claim(options, world, outcome)
    assert facts["nodes"] == 2
    assert facts["node_cores"] == 0.33
    assert facts["replicas_of_nodes"] == {"local.0": "roads.0", "local.1": "accounts.0"}
    assert facts["ms_between_batches"] == 2000
    assert facts["node_cpu_s_per_s"] == {"local.0": 0.3, "local.1": 0.05}
    by_second = [
        int((world.stream["time"] == second).sum())
        for second in range(180, options.plan.minutes * 60)
    ]
    assert facts["lines_per_s_judged"] == {
        "mean": round(sum(by_second) / 180, 1),
        "most": max(by_second),
    }
    assert "| node cpu s per s | local.0 0.3, local.1 0.05 |" in report(facts, outcome.verdict)
    json.dumps(facts)


def test_a_claim_names_what_it_rests_on() -> None:
    options = options_of("--minutes", "6")
    world = generate(options.plan)
    expected = truth(world.stream, world.history)
    verdict = judge(expected, perfect(expected), Judging())
    fed = Fed(world.stream.height, 12, 0)
    facts = claim(options, world, Outcome(verdict, fed, None, 21.26, 30.0, 5.0, 400.0))
    assert facts["claim"] == "valid for 6 hot minutes at L = 0.5: not an L-rating"
    assert facts["generator"] == {
        "version": 1,
        "seed": 1,
        "mode": "hot",
        "sha256": world.digest(),
    }
    assert facts["pipeline"] == "examples/linear_road/pipeline.yaml"
    assert facts["cpu_s_per_million_lines"] == round(30e6 / world.stream.height, 1)
    assert facts["backlog_drained_s"] == 21.3
    assert not {"nodes", "node_cpu_s_per_s"} & facts.keys()
    json.dumps(facts)
    lines = report(facts, verdict).splitlines()
    assert lines[0] == "# Linear Road: valid for 6 hot minutes at L = 0.5: not an L-rating"
    assert "| types | 0, 1, 2, 3 |" in lines
    assert "| faults | none |" in lines
    assert "| backlog drained s | 21.3 |" in lines
    tolls = expected.tolls.height
    (row,) = (line for line in lines if line.startswith("| tolls |"))
    assert row.startswith(f"| tolls | {tolls} | {tolls} | 0 | 0 | 0 | 0 | 0 | 0 | 0 | {tolls} | ")
    assert row.endswith(" | 5 s |")
    assert (
        len({line.count("|") for line in lines if line.startswith(("| tolls", "|---|---|---"))})
        == 1
    )


@pytest.mark.parametrize("name", FORMS)
def test_each_form_of_the_pipeline_is_one_that_the_feeder_and_the_receiver_fit(
    tmp_path: Path, name: str
) -> None:
    form = options_of("--form", name).form
    assert form is FORMS[name]
    # A run has a copy of the folder: nothing in it may point out of it.
    pipeline = load(copy_pipeline(form.path, tmp_path, None))
    topics = {topic for source in pipeline.sources.values() for topic in source.topics}
    assert topics == {TRAFFIC_TOPIC, HISTORY_TOPIC}
    assert {each.corrected.topic for each in pipeline.outputs.values()} == {*TOPICS}


def test_the_last_answer_to_a_backlog_says_when_it_was_drained() -> None:
    answers = of_rows(
        tolls=[(1, 5, 70_000, 30, 0), (1, 9, 90_000, 30, 0)], balances=[(1, 4, 80_000, 4, 0)]
    )
    assert _last_answer_ms(answers, 9) == 80_000
    assert _last_answer_ms(answers, 0) is None


def test_received_records_are_kept_in_a_file_until_they_are_read(tmp_path: Path) -> None:
    received = Received(tmp_path / "received")
    values = [{"type": 0, "text": "a b\n\u2028"}, {"type": 3, "qid": 4}]
    for at, value in enumerate(values):
        received.add(10 + at, json.dumps(value, ensure_ascii=False).encode())
    assert list(received.rows()) == [(10, values[0]), (11, values[1])]
    assert list(tmp_path.iterdir()) == []


def test_rows_become_output_lines() -> None:
    toll = {"type": 0, "vid": 7, "time": 61, "lav": 30, "toll": 2, "seg": 5}
    balance = {"type": 2, "vid": 7, "time": 70, "result_time": 70, "qid": 3, "amount": 18}
    rows = [toll, {**toll, "type": 1}, balance, {**balance, "type": 3}]
    lines = [line_of(row, 62_345) for row in rows]
    assert lines == [
        "0,7,61,62.345,30,2",
        "1,61,62.345,7,5",
        "2,70,62.345,70,3,18",
        "3,70,62.345,3,18",
    ]
    assert parse([line for line in lines if line]).unreadable == ()
    assert line_of({**toll, "type": 5}, 0) is None
