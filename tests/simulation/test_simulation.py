"""Seeds in every test run. More: ``make simulation SEEDS=3000 FIRST=1000``; a failing seed
prints what is needed to see it again.
"""

from __future__ import annotations

import inspect
import json
import os
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.protocol.log import boundary_log, tentative, writer_state
from anabranch.protocol.stage import replica
from simulation import drawing, explore, happenings, mutants, probes, scenarios
from simulation.planted_bugs import MUTANTS
from simulation.planting import (
    Mutant,
    MutantDoesNotRunError,
    StaleMutantError,
    changed,
    planted,
    unknown_names,
)
from simulation.regressions import REGRESSIONS, Regression
from simulation.scheduler import STEPS_MAX, Killed, Process, RunawayError, Scheduler

SEEDS = 300
SLICES = 15
"""Parts of the seeds, each a test: as many seeds in each as one of which is run twice. Few, so that
no process is left alone with many at the end.
"""
FURTHER = 1_200
"""A place that the seeds did not reach is looked for in the scenarios of so many more: which
ones they are hangs on the text of the services.
"""
FIRST = explore.first_seed()


@pytest.mark.parametrize("piece", range(SLICES))
def test_seeds(piece: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Whichever piece ends last says whether all together have reached what so many seeds
    must reach.
    """
    seeds = range(FIRST + piece * SEEDS // SLICES, FIRST + (piece + 1) * SEEDS // SLICES)
    print(
        f"seeds {seeds.start} to {seeds.stop - 1}: make simulation FIRST={seeds.start}"
        f" SEEDS={len(seeds)}"
    )
    total = explore.explore(seeds)
    assert total.failed == [], f"again: make simulation SEED={total.failed[0]}"
    assert total.seeds == SEEDS // SLICES
    assert total.twice == sum(seed % explore.TWICE_EVERY == 0 for seed in seeds) > 0
    mine = tmp_path_factory.getbasetemp()
    shared = mine.parent if os.environ.get("PYTEST_XDIST_WORKER") else mine
    (shared / f"{piece}.writing").write_text(json.dumps(total.probes))
    (shared / f"{piece}.writing").rename(shared / f"{piece}.reached")
    pieces = list(shared.glob("*.reached"))
    if len(pieces) == SLICES:
        reached = sum((Counter(json.loads(path.read_text())) for path in pieces), Counter[str]())
        more = (
            seed for seed in range(FIRST + SEEDS, FIRST + SEEDS + FURTHER) if scenarios.of(seed)
        )
        while probes.unreached(reached, SEEDS) and (seed := next(more, None)) is not None:
            further = explore.explore([seed], twice_every=0)
            assert further.failed == [], f"again: make simulation SEED={seed}"
            reached += further.probes
        assert probes.unreached(reached, SEEDS) == []


def test_other_services_get_other_seeds_and_the_same_ones_the_same(tmp_path: Path) -> None:
    assert explore.first_seed() == FIRST
    (tmp_path / "one.py").write_text("1")
    first = explore.first_seed(tmp_path)
    (tmp_path / "one.pyc").write_text("compiled")
    assert explore.first_seed(tmp_path) == first
    (tmp_path / "two.py").write_text("")
    second = explore.first_seed(tmp_path)
    (tmp_path / "one.py").write_text("2")
    third = explore.first_seed(tmp_path)
    assert len({first, second, third}) == 3
    assert all(seed % explore.SEEDS_APART == 0 for seed in (FIRST, first, second, third))


def test_what_is_not_reached_is_reported_once_there_are_seeds_enough() -> None:
    everything = dict.fromkeys(probes.EXPECTED, 1)
    assert probes.unreached({}, probes.SEEDS_FOR_ROWS - 1) == []
    assert probes.unreached({}, SEEDS) == list(probes.ROWS)
    assert probes.unreached(everything | {"live row 4": 0}, SEEDS) == ["live row 4"]
    assert probes.unreached(everything | {"fault twins": 0}, SEEDS) == []
    assert probes.unreached(everything | {"fault twins": 0}, probes.SEEDS_FOR_ALL) == [
        "fault twins"
    ]


def test_of_every_scenario_it_is_known_when_it_has_happened() -> None:
    assert happenings.HAPPENED.keys() == scenarios.CHANCES.keys()


def test_a_row_is_either_looked_for_or_listed_as_out_of_reach() -> None:
    """Rows of the log state are its possible answers, rows of a replica the lines of the table in
    its text.
    """
    text = inspect.getsource(boundary_log)
    listed = text[text.index("Codes of accepted entries: epoch") : text.index("    replica: str\n")]
    given = "".join(map(inspect.getsource, (boundary_log, tentative, writer_state)))
    reasons = set(re.findall(r"[a-z]+(?:_[a-z]+)*", listed)) & {*re.findall(r'"([a-z_]+)"', given)}
    assert {f"log state {reason}" for reason in reasons} == {
        name for name in (*probes.ROWS, *probes.UNREACHABLE) if name.startswith("log state ")
    }
    table = re.split(r"^=+  =+  =+$", str(replica.__doc__), flags=re.MULTILINE)[2]
    assert len(re.findall(r"^[A-Za-z]", table, re.MULTILINE)) == len(probes.REPLICA_ROWS)
    assert not {*probes.EXPECTED} & {*probes.UNREACHABLE}


@pytest.mark.parametrize("regression", REGRESSIONS, ids=lambda each: f"{each.options.seed}")
def test_what_failed_once(regression: Regression) -> None:
    assert (
        explore.once(regression.options.seed, regression.faults, chosen=regression.options).wrong
        == []
    )


def test_a_seed_gives_the_same_history_in_another_interpreter() -> None:
    """With another seed for hashes of strings, so that no order of a set may matter: this process
    has one of its own in each run. Small ones, of few services: six large ones took four times as
    long.
    """
    seeds = (4_001, 4_003, 4_004, 4_005)
    here = [explore.once(seed).digest for seed in seeds]
    code = f"from simulation.explore import once\nfor seed in {seeds}: print(once(seed).digest)"
    environment = {**os.environ, "PYTHONHASHSEED": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    there = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        check=True,
        capture_output=True,
        text=True,
        cwd=Path.cwd(),
    )
    assert there.stdout.split() == here


def test_every_mutant_can_be_planted() -> None:
    for mutant in MUTANTS:
        assert changed(mutant)
    assert [mutant.name for mutant in MUTANTS if not mutant.by] == []
    names = [mutant.name for mutant in MUTANTS]
    assert len(set(names)) == len(names) >= 30


CANARIES = (
    "ack_is_enough",
    "closes_one_more",
    "skips_a_bucket",
    "undo_names_the_new",
    "waits_too_long",
    "delete_all_others",
    "dropped_at_a_hole",
    "branch_directory_stays",
    "shown_twice",
)


@pytest.mark.parametrize("name", CANARIES)
def test_a_planted_bug_is_found_and_gone_afterwards(name: str) -> None:
    """The simulation must be seen to fail, in every run."""
    mutant = next(each for each in MUTANTS if each.name == name)
    seed, wrong = mutants.hunt(mutant, 100)
    assert seed is not None, "in no seed is anything wrong with it, and nothing without it"
    assert wrong


def test_a_stale_mutant_is_reported() -> None:
    mutant = Mutant("stale", "protocol.log.buckets:closed_by", "no such text", "", "")
    with pytest.raises(StaleMutantError), planted(mutant):
        pass


def test_no_mutant_needs_names_that_are_not_there() -> None:
    assert {mutant.name: unknown_names(mutant) for mutant in MUTANTS if unknown_names(mutant)} == {}


WITHOUT_NAMES = Mutant(
    "without_names",
    "protocol.log.writer:OwnRecords.seen",
    "entry == self._started",
    "entry == self._not_there or not_there",
    "",
)


def test_a_mutant_that_does_not_run_is_reported() -> None:
    assert unknown_names(WITHOUT_NAMES) == {"self._not_there", "not_there"}
    with pytest.raises(MutantDoesNotRunError, match="_not_there"):
        mutants.hunt(WITHOUT_NAMES, 1)


def test_options_differ_between_seeds() -> None:
    drawn = [drawing.draw(seed) for seed in range(200)]
    assert {len(each.stages) for each in drawn} == {0, 1, 2, 3, 4, 5}
    assert {stage.replicas for each in drawn if len(each.stages) == 3 for stage in each.stages} == {
        1,
        2,
        3,
    }
    assert {each.scenario for each in drawn} - {""} <= scenarios.CHANCES.keys()
    assert {each.is_live for each in drawn} == {True, False}
    assert {stage.replicas for each in drawn for stage in each.stages} == {1, 2, 3}


# ---------------------------------------------------------------- the scheduler


def scheduler_with(
    bodies: dict[str, Callable[[Scheduler], None]],
) -> tuple[Scheduler, dict[str, Process]]:
    scheduler = Scheduler(random.Random(1))
    processes = {name: Process(name, 0) for name in bodies}
    for name, body in bodies.items():
        scheduler.spawn(processes[name], lambda body=body: body(scheduler))  # type: ignore[misc]
    return scheduler, processes


def test_a_killed_process_stays_dead() -> None:
    seen: list[str] = []

    def body(scheduler: Scheduler) -> None:
        try:
            scheduler.wait(100)
        finally:
            try:
                scheduler.wait(200)
            except Killed:
                seen.append("dead")
        seen.append("alive")

    scheduler, processes = scheduler_with({"p": body})
    scheduler.run_until(50)
    scheduler.kill(processes["p"])
    scheduler.run_until(300)
    scheduler.close()
    assert seen == ["dead"]


def test_a_paused_process_goes_on_later_and_a_change_wakes_early() -> None:
    seen: list[int] = []

    def body(scheduler: Scheduler) -> None:
        for _ in range(2):
            scheduler.wait(scheduler.now_ms + 500, ["topic"])
            seen.append(scheduler.now_ms)

    scheduler, processes = scheduler_with({"p": body})
    scheduler.run_until(10)
    scheduler.changed("topic", 5)
    scheduler.run_until(20)
    scheduler.pause(processes["p"], 900)
    scheduler.run_until(1_000)
    scheduler.close()
    assert seen == [15, 900]


def test_a_run_in_circles_is_ended() -> None:
    def body(scheduler: Scheduler) -> None:
        while True:
            scheduler.wait(scheduler.now_ms)

    scheduler, _ = scheduler_with({"p": body})
    with pytest.raises(RunawayError, match=str(STEPS_MAX)):
        scheduler.run_until(10)
    scheduler.close()


def test_an_error_of_a_process_ends_the_run() -> None:
    def body(_scheduler: Scheduler) -> None:
        raise ValueError("planted")

    scheduler, _ = scheduler_with({"p": body})
    with pytest.raises(ValueError, match="planted"):
        scheduler.run_until(10)
    scheduler.close()
