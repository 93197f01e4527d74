"""Faults of a run by the clock: what is broken, what is judged, and the figures."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

import polars as pl
import pytest

from anabranch.local.drill_links import Cut
from anabranch.pipeline.file import load
from anabranch.protocol.edge.live_delivery import Kind as LiveKind
from anabranch.protocol.edge.views import LiveRecord
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import RecordId
from benchmarks.linear_road import faults
from benchmarks.linear_road.__main__ import Options, Outcome, claim, main
from benchmarks.linear_road.answers import KINDS, of_rows
from benchmarks.linear_road.faults import LASTS_S, Fault, Injection, Kind, prepare, targets
from benchmarks.linear_road.feeder import Fed
from benchmarks.linear_road.generator import Mode, Plan, generate
from benchmarks.linear_road.mutants import MUTANTS, PLAN, Mutant, perfect
from benchmarks.linear_road.receiver import TOPICS, LiveAnswers
from benchmarks.linear_road.recovery import Recovered, Recovery, Window, recoveries, recovery
from benchmarks.linear_road.report import report
from benchmarks.linear_road.stream import Expected, expected
from benchmarks.linear_road.validator import Judging, judge, truth
from demo.deployment import DeploymentError, copy_pipeline

PIPELINE = Path(__file__).parents[4] / "examples/linear_road/pipeline.yaml"
LABELS = [
    "kafka/kafka",
    "ingestion/traffic.1",
    "ingestion/traffic.0",
    "ingestion/history",
    "processing/local.1",
    "processing/local.0",
    "delivery/answers",
]
FROM_S = 100
WINDOW = Window(120_000, 140_000)
NONE = Recovery(0, 0, 0, None, None, None, None, None, 0, 0, 0, 0, 0, None, 0)


def fault_of(*words: str) -> Fault | None:
    """Parse a command line, which is not run."""
    found: list[Options] = []

    def run(options: Options, _: Path) -> int:
        found.append(options)
        return 0

    assert main(words, run) == 0
    return found[0].fault


# What the command line asks for


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        ([], None),
        (["--fault", "kill"], Fault(Kind.KILL, 60, 0)),
        (["--fault", "kill", "--standby"], Fault(Kind.KILL, 60, 0, has_standby=True)),
        (["--fault", "cut", "--at", "30"], Fault(Kind.CUT, 30, 20)),
        (["--fault", "cut-half", "--for", "7"], Fault(Kind.CUT_HALF, 60, 7)),
        (["--fault", "pause", "--at", "0"], Fault(Kind.PAUSE, 0, 10)),
        (["--fault", "cut", "--at", "159"], Fault(Kind.CUT, 159, 20)),
    ],
)
def test_a_fault_is_planned(words: list[str], fault: Fault | None) -> None:
    assert fault_of(*words) == fault


@pytest.mark.parametrize(
    "words",
    [
        ["--fault", "flood"],
        ["--at", "30"],
        ["--for", "3"],
        ["--standby"],
        ["--fault", "kill", "--for", "3"],
        ["--fault", "cut", "--for", "0"],
        ["--fault", "cut", "--for", "-1"],
        ["--fault", "cut", "--at", "-1"],
        ["--fault", "cut", "--at", "160"],
        ["--fault", "pause", "--last", "1"],
    ],
)
def test_other_faults_are_rejected(words: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        fault_of(*words)
    assert ended.value.code == 2


# How the pipeline is prepared, and what is broken


@pytest.mark.parametrize(
    ("kind", "has_standby", "shards", "nodes"),
    [
        (Kind.KILL, False, 1, ["local.0"]),
        (Kind.KILL, True, 1, ["local.0", "local.1"]),
        (Kind.CUT, False, 1, ["local.0"]),
        (Kind.CUT_HALF, False, 2, ["local.0"]),
        (Kind.PAUSE, False, 1, ["local.0"]),
    ],
)
def test_the_pipeline_is_prepared(
    tmp_path: Path, kind: Kind, *, has_standby: bool, shards: int, nodes: list[str]
) -> None:
    copied = copy_pipeline(PIPELINE, tmp_path / "copy", None)
    fault = Fault(kind, 60, LASTS_S[kind], has_standby)
    prepare(copied, fault)
    pipeline = load(copied)
    live = {each.live.topic for each in pipeline.outputs.values() if each.live is not None}
    assert live == {f"{topic}.live" for topic in TOPICS}
    assert pipeline.sources["traffic"].shards == shards
    assert sorted(pipeline.nodes()) == nodes
    assert len(fault.changes()) == 1 + has_standby + (shards == 2) + fault.needs_links


@pytest.mark.parametrize(
    ("kind", "standbys", "found"),
    [
        (Kind.KILL, {}, ["processing/local.0"]),
        (Kind.KILL, {"processing/local.0": 2, "processing/local.1": 0}, ["processing/local.1"]),
        (Kind.KILL, {"processing/local.0": 0, "processing/local.1": 2}, ["processing/local.0"]),
        (Kind.CUT, {}, ["ingestion/traffic.0", "ingestion/traffic.1"]),
        (Kind.CUT_HALF, {}, ["ingestion/traffic.0"]),
        (Kind.PAUSE, {}, ["kafka/kafka"]),
    ],
)
def test_a_fault_strikes_what_it_names(
    kind: Kind, standbys: dict[str, int], found: list[str]
) -> None:
    assert targets(kind, LABELS, standbys) == found


def test_a_process_that_is_not_there_cannot_be_broken() -> None:
    with pytest.raises(DeploymentError, match=r"no process kafka/kafka.*ingestion/history"):
        targets(Kind.PAUSE, ["ingestion/history"], {})


class FakeDrill:
    """Deployment that notes what is done to it."""

    labels = LABELS

    def __init__(self) -> None:
        self.done: list[str] = []
        self.begun = threading.Event()

    def kill(self, label: str) -> None:
        self._note("kill", label)

    def pause(self, label: str) -> None:
        self._note("pause", label)

    def resume(self, label: str) -> None:
        self._note("resume", label)

    def cut(self, label: str, cut: Cut) -> None:
        assert cut == Cut()
        self._note("cut", label)

    def heal(self, label: str) -> None:
        self._note("heal", label)

    def _note(self, what: str, label: str) -> None:
        self.done.append(f"{what} {label}")
        self.begun.set()


@pytest.fixture
def drill(monkeypatch: pytest.MonkeyPatch) -> FakeDrill:
    found = FakeDrill()
    monkeypatch.setattr(faults, "Drill", lambda _: found)
    monkeypatch.setattr("anabranch.local.status.rows_of", lambda _: None)
    monkeypatch.setattr(faults, "_now_ms", count(1_000).__next__)
    return found


@pytest.mark.parametrize(
    ("kind", "done"),
    [
        (Kind.PAUSE, ["pause kafka/kafka", "resume kafka/kafka"]),
        (Kind.CUT_HALF, ["cut ingestion/traffic.0", "heal ingestion/traffic.0"]),
    ],
)
def test_a_fault_is_undone_when_the_run_ends_early(
    drill: FakeDrill, tmp_path: Path, kind: Kind, done: list[str]
) -> None:
    injection = Injection(Fault(kind, 0, 3_600), tmp_path, 0)
    injection.start()
    assert drill.begun.wait(60)
    with pytest.raises(DeploymentError, match="did not happen: it is not over"):
        injection.struck()
    injection.stop()
    assert drill.done == done
    assert injection.struck().ended_ms > injection.struck().begun_ms


def test_a_kill_has_no_length(drill: FakeDrill, tmp_path: Path) -> None:
    injection = Injection(Fault(Kind.KILL, 0, 0), tmp_path, 0)
    injection.run()
    assert drill.done == ["kill processing/local.0"]
    struck = injection.struck()
    assert struck.processes == ("processing/local.0",)
    assert struck.ended_ms == struck.begun_ms


def test_the_node_of_the_primaries_is_killed(
    drill: FakeDrill, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = {"local.0": "standby", "local.1": "running"}
    rows = [
        {"service": "processing", "name": name, "detail": {"stages": [{"state": state}] * 2}}
        for name, state in states.items()
    ]
    monkeypatch.setattr("anabranch.local.status.rows_of", lambda _: rows)
    Injection(Fault(Kind.KILL, 0, 0, has_standby=True), tmp_path, 0).run()
    assert drill.done == ["kill processing/local.1"]


def test_nothing_is_broken_before_its_time(drill: FakeDrill, tmp_path: Path) -> None:
    injection = Injection(Fault(Kind.KILL, 0, 0), tmp_path, 5 * 10**12)
    injection.start()
    injection.stop()
    assert drill.done == []


def test_a_fault_that_fails_says_why(drill: FakeDrill, tmp_path: Path) -> None:
    def fail(label: str) -> None:
        raise Unavailable(f"{label} does not run now")

    drill.kill = fail  # type: ignore[method-assign]
    injection = Injection(Fault(Kind.KILL, 0, 0), tmp_path, 0)
    injection.run()
    with pytest.raises(DeploymentError, match=r"did not happen: processing/local\.0 does not"):
        injection.struck()


# What is judged


@pytest.fixture(scope="module")
def truths() -> Expected:
    world = generate(PLAN)
    return truth(world.stream, world.history)


@pytest.mark.parametrize("mutant", MUTANTS, ids=[each.name for each in MUTANTS])
def test_lateness_alone_is_excused(mutant: Mutant, truths: Expected) -> None:
    judging = replace(mutant.judging, judges_lateness=False)
    verdict = judge(truths, mutant.change(perfect(truths), truths), judging)
    is_right = mutant.counted_as in {None, ("late",)}
    assert verdict.is_right is is_right
    assert not verdict.is_valid, "a run with a fault is never called valid"
    assert verdict.as_dict()["right"] is is_right
    assert verdict.as_dict()["valid"] is False
    assert verdict.as_dict()["judged"] == ["values", "number", "order"]
    begin = "RIGHT, each answer once by" if is_right else "NOT RIGHT by"
    assert verdict.lines()[-1].startswith(begin)
    assert verdict.lines()[-1].endswith("lateness is reported, not judged")


def test_a_verdict_says_whether_lateness_was_judged(truths: Expected) -> None:
    timed = judge(truths, perfect(truths), Judging()).as_dict()
    assert timed["judged"] == ["values", "number", "order", "lateness"]
    untimed = judge(truths, perfect(truths), Judging(None)).as_dict()
    assert untimed["judged"] == ["values", "number", "order"]


# What the live topics had


def shown(bucket: int, row: dict[str, int], *, is_tentative: bool) -> LiveRecord:
    """Make a record of a live topic."""
    return LiveRecord(
        LiveKind.TENTATIVE if is_tentative else LiveKind.INSERTION,
        RecordId(bucket, 0),
        (1, 1) if is_tentative else None,
        value=json.dumps(row).encode(),
    )


def boundary(stable: int) -> LiveRecord:
    """Make the record that ends a transaction."""
    return LiveRecord(LiveKind.BOUNDARY, stable=stable)


def test_a_tentative_answer_is_corrected_with_its_bucket() -> None:
    toll = {"type": 0, "vid": 7, "time": 3, "lav": 30, "toll": 0, "seg": 5}
    live = LiveAnswers()
    one, other = ("t", 0), ("t", 1)
    records: Sequence[tuple[tuple[str, int], LiveRecord, int]] = [
        (one, shown(3, toll, is_tentative=True), 1_000),
        (one, shown(4, {**toll, "time": 4}, is_tentative=True), 1_100),
        (one, shown(4, {**toll, "type": 5}, is_tentative=True), 1_100),
        (one, boundary(2), 1_200),
        (other, boundary(4), 1_300),
        (one, LiveRecord(LiveKind.UNDO, stable=2), 1_350),
        (one, shown(3, {**toll, "toll": 18}, is_tentative=False), 1_400),
        (one, boundary(3), 1_500),
    ]
    were_corrected = [live.is_corrected]
    for place, record, now_ms in records:
        live.take(place, record, now_ms)
        were_corrected.append(live.is_corrected)
    assert were_corrected == [True] + [False] * len(records)
    tables = live.tables(500)
    assert tables["tolls"].rows(named=True) == [
        {**_toll(7, 3, 500, 30, 0), "is_tentative": True, "corrected_ms": 1_000},
        {**_toll(7, 4, 600, 30, 0), "is_tentative": True, "corrected_ms": None},
        {**_toll(7, 3, 900, 30, 18), "is_tentative": False, "corrected_ms": None},
    ]
    assert [tables[kind].height for kind in KINDS] == [3, 0, 0, 0]
    live.take(one, boundary(4), 1_600)
    assert live.is_corrected


def _toll(vid: int, time: int, emit_ms: int, lav: int, toll: int) -> dict[str, int]:
    return {"vid": vid, "time": time, "emit_ms": emit_ms, "lav": lav, "toll": toll}


# The figures


TOLLS = [(car, FROM_S + at, 30, 2) for car, at in [(1, -1), (2, 0), (3, 10), (4, 21), (5, 30)]]
RIGHT = expected(
    tolls=[(*each, 0, 0, 5) for each in TOLLS],
    accidents=[(4, FROM_S + 21, 9)],
    charges=[],
    balances=[(70, 4, FROM_S + 22, 18)],
    expenditures=[(80, 4, FROM_S + 22, 55)],
    crashes=[],
)


def live_of(kind: str, *rows: tuple[object, ...]) -> pl.DataFrame:
    """Make records of a live topic: columns of the answer, then of its correction."""
    names = list(of_rows().table(kind).columns)
    schema = dict.fromkeys(names, pl.Int64()) | {
        "is_tentative": pl.Boolean(),
        "corrected_ms": pl.Int64(),
    }
    return pl.DataFrame(list(rows), schema=schema, orient="row")


def found(kind: str, answers: pl.DataFrame, live: pl.DataFrame) -> Recovery:
    return recovery(kind, RIGHT, answers, live, from_s=FROM_S, window=WINDOW)


def test_late_answers_are_counted_by_their_limit() -> None:
    answers = of_rows(
        tolls=[
            (1, 99, 999_000, 30, 2),  # of the backlog
            (2, 100, 106_500, 30, 2),  # late, and due before the fault
            (3, 110, 115_000, 30, 2),  # at its limit
            (4, 121, 151_000, 30, 2),
            (5, 130, 152_000, 30, 2),
        ]
    ).tolls
    assert found("tolls", answers, live_of("tolls")) == replace(
        NONE,
        received=4,
        late=3,
        late_before=1,
        late_first_s=100,
        late_last_s=130,
        late_by_median_ms=17_000,
        late_by_max_ms=25_000,
        late_until_ms=12_000,
        unanswered=4,
    )


def test_an_answer_due_when_the_fault_begins_is_not_due_before_it() -> None:
    answers = of_rows(tolls=[(2, 115, 120_001, 30, 2), (3, 114, 119_999, 30, 2)]).tolls
    both = found("tolls", answers, live_of("tolls"))
    assert (both.late, both.late_before) == (2, 1)
    assert both.late_until_ms == -19_999


def test_limits_are_those_of_the_kind() -> None:
    answers = of_rows(expenditures=[(80, 122, 132_001, 55)]).expenditures
    late = found("expenditures", answers, live_of("expenditures"))
    assert (late.late, late.late_by_max_ms) == (1, 1)
    in_time = answers.with_columns(pl.lit(132_000, pl.Int64).alias("emit_ms"))
    assert found("expenditures", in_time, live_of("expenditures")).late == 0


def test_the_first_record_says_whether_an_answer_was_tentative() -> None:
    live = live_of(
        "tolls",
        (1, 99, 100_000, 30, 0, True, 150_000),  # of the backlog
        (2, 100, 105_000, 30, 2, False, None),  # stable, at its limit
        (3, 110, 111_000, 30, 2, True, 141_000),  # as it must be
        (4, 121, 126_001, 30, 0, True, 142_500),  # another value, late
        (4, 121, 142_400, 30, 2, False, None),
        (9, 122, 123_000, -1, 0, True, 142_000),  # no such answer
        (3, 110, 140_900, 30, 2, True, 143_000),  # shown again by an undo
        (3, 110, 141_000, 30, 2, False, None),
    )
    assert found("tolls", of_rows().tolls, live) == replace(
        NONE,
        tentative=3,
        tentative_in_time=2,
        tentative_right=1,
        tentative_extra=1,
        unanswered=2,  # cars 4 and 5
        corrected_ms=2_500,
    )


def test_what_stays_tentative_is_counted() -> None:
    live = live_of("tolls", (3, 110, 111_000, 30, 2, True, None))
    figures = found("tolls", of_rows().tolls, live)
    assert (figures.uncorrected, figures.corrected_ms) == (1, None)
    kinds = {**dict.fromkeys(KINDS, NONE), "tolls": figures}
    assert not Recovered("x", ("y",), WINDOW, kinds).is_corrected
    assert Recovered("x", ("y",), WINDOW, dict.fromkeys(KINDS, NONE)).is_corrected


@pytest.mark.parametrize(
    ("kind", "right", "other", "elsewhere"),
    [
        ("tolls", (4, 121, 0, 30, 2), (4, 121, 0, 31, 2), (4, 122, 0, 30, 2)),
        ("accidents", (4, 121, 0, 9), (4, 121, 0, 8), (5, 121, 0, 9)),
        ("balances", (70, 122, 0, 122, 18), (70, 122, 0, 121, 18), (71, 122, 0, 122, 18)),
        ("expenditures", (80, 122, 0, 55), (80, 122, 0, 54), (81, 122, 0, 55)),
    ],
)
def test_each_kind_has_its_key_and_its_value(
    kind: str, right: tuple[int, ...], other: tuple[int, ...], elsewhere: tuple[int, ...]
) -> None:
    for row, is_right, is_extra in ((right, 1, 0), (other, 0, 0), (elsewhere, 0, 1)):
        figures = found(kind, of_rows().table(kind), live_of(kind, (*row, True, 141_000)))
        assert (figures.tentative_right, figures.tentative_extra) == (is_right, is_extra)
    again = live_of(kind, (*other, True, 141_000), (*right, False, None))
    assert found(kind, of_rows().table(kind), again).tentative == 1


# What a run may be called, and its report


def test_a_run_with_a_fault_is_called_neither_valid_nor_a_rating() -> None:
    plan = Plan(1, 6, 1, Mode.HOT)
    world = generate(plan)
    right = truth(world.stream, world.history)
    answers = perfect(right)
    late = answers.with_table("tolls", answers.tolls.with_columns(pl.col("emit_ms") + 9_000))
    fault = Fault(Kind.CUT_HALF, 60, 20)
    options = Options(plan, 3, 2, 60.0, borders=False, folder=None, fault=fault)
    verdict = judge(right, late, Judging(180, judges_lateness=False))
    live = dict.fromkeys(KINDS, NONE)
    window = Window(240_100, 260_250)
    kinds = recoveries(right, late, {kind: live_of(kind) for kind in live}, 180, window)
    recovered = Recovered(fault.in_words(), ("ingestion/traffic.0",), window, kinds)
    outcome = Outcome(verdict, Fed(1_000, 2, 0), 0, 9.0, 30.0, 5.0, 200.0, recovered)
    facts = claim(options, world, outcome)
    assert facts["claim"] == (
        "each answer right and there once, half of the source cut off from the broker for 20 s"
        " (6 hot minutes at L = 0.5, the last 3 of them by the clock): lateness not judged, no"
        " rating"
    )
    assert facts["faults"] == ["half of the source cut off from the broker for 20 s"]
    assert outcome.is_good
    wrong = judge(right, of_rows(), Judging(180, judges_lateness=False))
    assert options.label(wrong).startswith("not right, half of the source")
    assert not replace(outcome, verdict=wrong).is_good
    left = replace(recovered, kinds={**kinds, "tolls": replace(NONE, uncorrected=1)})
    assert not replace(outcome, recovered=left).is_good
    late_verdict = judge(right, late, Judging(180))
    assert not Outcome(late_verdict, outcome.fed, 0, 9.0, 30.0, 5.0, 200.0).is_good
    json.dumps({**facts, "fault": recovered.as_dict()})
    assert recovered.as_dict()["lateness"] == "reported, not judged"
    lines = report(facts, verdict, recovered).splitlines()
    assert "valid" not in " ".join(lines).lower()
    section = lines[lines.index("## The fault") :]
    assert section[2] == (
        "half of the source cut off from the broker for 20 s: ingestion/traffic.0, 240.1 to"
        " 260.2 s of the run."
    )
    late_row, live_row = (line for line in section if line.startswith("| tolls |"))
    tolls = kinds["tolls"]
    assert tolls.late_until_ms is not None
    assert late_row == (
        f"| tolls | {tolls.received} | {tolls.late} | {tolls.late_before} |"
        f" {tolls.late_first_s} to {tolls.late_last_s} | 4.9 s, 4.9 s |"
        f" {tolls.late_until_ms / 1_000:.1f} s |"
    )
    assert live_row == f"| tolls | 0 | 0 | 0 | 0 | {tolls.received} | - | 0 |"
    tables = [line.count("|") for line in section if line.startswith("|")]
    assert tables == [late_row.count("|")] * 6 + [live_row.count("|")] * 6


def test_without_a_fault_the_report_has_no_section_of_it() -> None:
    world = generate(Plan(1, 6, 1, Mode.HOT))
    right = truth(world.stream, world.history)
    verdict = judge(right, perfect(right), Judging())
    assert "The fault" not in report({"claim": "x"}, verdict)
