"""The published experiments in virtual time: the rules hold their bounds, and the comparison
with the answer is not blind.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from experiments.dpc.plan import Session, chain
from experiments.dpc.results import SessionResult
from experiments.dpc.sources import Withhold, tuples, window_of
from experiments.dpc.virtual import Costs, VirtualSession
from experiments.dpc.watch import Sum, check_answer

pytestmark = (
    pytest.mark.no_cover
)  # the same lines ten thousand times, each of which a test of its own covers

ONE_NODE = Session("one-node", (1,), 1, 2_000, failures_s=(6,))


def run(
    session: Session,
    folder: Path,
    costs: Costs | None = None,
    withhold: Withhold = Withhold.BOUNDARY,
) -> SessionResult:
    result = VirtualSession(session, folder, costs or Costs(), withhold=withhold).run()
    assert result.error == ""
    assert result.wrong == 0
    assert result.compared > 100
    return result


@pytest.mark.parametrize("withhold", list(Withhold))
def test_one_node_holds_its_bound_and_corrects_everything(
    tmp_path: Path, withhold: Withhold
) -> None:
    (figures,) = run(ONE_NODE, tmp_path, withhold=withhold).failures
    assert 0 < figures.delay_ms <= 2_000
    assert figures.first_ms is not None
    assert figures.first_ms >= 1_000, "the wait is used"
    assert figures.tentative_rows > 0
    assert figures.done_ms is not None


def test_a_run_is_the_same_twice(tmp_path: Path) -> None:
    assert run(ONE_NODE, tmp_path).traces[-1].events == run(ONE_NODE, tmp_path).traces[-1].events


def test_two_nodes_wait_once_with_process_and_at_every_node_with_delay(tmp_path: Path) -> None:
    session = Session("two", (2,), 2, 2_200, failures_s=(10,))
    process, delay = (
        run(replace(session, policy=policy), tmp_path).failures[0]
        for policy in ("process", "delay")
    )
    assert process.longest_ms <= 2_200
    assert delay.longest_ms > process.longest_ms
    assert delay.tentative_rows < process.tentative_rows


def test_a_failure_shorter_than_the_wait_leaves_no_trace_in_a_chain_of_four(tmp_path: Path) -> None:
    result = run(Session("whole-delay", (4,), 4, 8_000, failures_s=(5,)), tmp_path)
    assert [figures.tentative_rows for figures in result.by_node[0]] == [0, 0, 0, 0]
    assert result.failures[0].delay_ms <= 8_000


@pytest.mark.nightly
def test_the_same_bound_holds_for_every_length_of_a_chain(tmp_path: Path) -> None:
    delays = [
        run(chain(nodes, "process", (15.0,)), tmp_path).failures[0].delay_ms
        for nodes in (1, 2, 3, 4)
    ]
    assert max(delays) <= 4_000


def test_one_replica_gives_new_results_in_time_while_it_corrects(tmp_path: Path) -> None:
    session = Session("correction", (5,), 1, 3_000, failures_s=(10,), function="windowed", load=0.3)
    (figures,) = run(session, tmp_path).failures
    assert figures.correcting_ms - figures.normal_ms <= 3_000
    assert figures.done_ms is not None


def test_a_death_is_masked(tmp_path: Path) -> None:
    result = run(Session("death", (6,), 1, 3_000, replicas=2, deaths=2), tmp_path)
    assert [death.tentative_rows for death in result.deaths] == [0, 0]
    assert all(death.after_max_ms - death.before_max_ms <= 200 for death in result.deaths)


def test_a_wrong_answer_is_seen(tmp_path: Path) -> None:
    session = VirtualSession(replace(ONE_NODE, failures_s=()), tmp_path, Costs())
    session.run()
    watch, sums = session._watches[-1], [source.sums for source in session._sources.values()]
    assert check_answer(watch, sums)[1] == 0
    watch.sums[5] = Sum(watch.sums[5].rows, watch.sums[5].digest + 1)
    del watch.sums[6]
    assert check_answer(watch, sums)[1] == 2


def test_the_answer_of_a_window_is_that_of_its_tuples() -> None:
    counts = [(3, 450), (4, 300), (4, 7)]
    rows: dict[int, list[int]] = {}
    for bucket, count in counts:
        for row in tuples(bucket, count, 100).to_pylist():
            assert (row["event_time"] - 1) // 100 + 1 == bucket
            assert 200 < row["event_time"] < 400, (
                "in the window that ends with bucket 4: its lower bound belongs to it, its upper"
                " one does not"
            )
            rows.setdefault(row["key"], []).append(row["value"])
    expected = [
        {"key": key, "value": sum(rows[key]), "time": len(rows[key]), "event_time": 400}
        for key in sorted(rows)
    ]
    assert window_of(4, counts, 100).to_pylist() == expected
