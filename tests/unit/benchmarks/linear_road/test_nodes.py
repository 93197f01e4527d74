"""The nodes of a run: the file that places the stages on them, and that each is held."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from benchmarks.held_cores import HoldError, Spent
from benchmarks.linear_road.__main__ import FORMS
from benchmarks.linear_road.nodes import PLACEMENTS, Held, NodeHolder, Nodes
from demo.deployment import DeploymentError, Row, copy_pipeline


@pytest.mark.parametrize("number", PLACEMENTS)
def test_every_replica_has_its_node(tmp_path: Path, number: int) -> None:
    nodes = Nodes(number)
    path = copy_pipeline(FORMS["state"].path, tmp_path, None)
    nodes.prepare(path)
    pipeline = load(path)
    placed = pipeline.nodes()
    assert len(placed) == number
    wanted = nodes.placement.nodes
    assert {node: {*runs} for node, runs in placed.items()} == {
        node: {*runs} for node, runs in wanted.items()
    }
    assert len(pipeline.stages) == sum(map(len, placed.values()))
    assert {each.stage for each in pipeline.outputs.values()} <= set(pipeline.stages)
    # What is not said of nodes stays as the example has it.
    whole = load(FORMS["state"].path)
    assert pipeline.sources.keys() == whole.sources.keys()
    assert pipeline.bucket_ms == whole.bucket_ms


def test_nodes_are_named_with_what_each_has() -> None:
    assert Nodes(1).in_words() == "1 node"
    assert Nodes(4, 0.33).in_words() == "4 nodes of 0.33 cores"
    assert Nodes(4).free_s == 0
    assert Nodes(4, 0.33).free_s > 0


def cgroups(folder: Path) -> Path:
    for name in ("cpu", "cpuacct"):
        (folder / name).mkdir()
    return folder


def spend(root: Path, node: str, cpu_s: float, periods: int, stopped: int) -> None:
    """Write what the kernel would: that a node has spent this since its group was made."""
    name = f"linear-road-{os.getpid()}-{node}"
    (root / "cpu" / name / "cpu.stat").write_text(
        f"nr_periods {periods}\nnr_throttled {stopped}\nthrottled_time 0\n"
    )
    (root / "cpuacct" / name / "cpuacct.usage").write_text(f"{round(cpu_s * 1e9)}\n")


def test_what_nodes_spend_is_counted_from_when_they_are_held(tmp_path: Path) -> None:
    root, me = cgroups(tmp_path), os.getpid()
    holder = NodeHolder(Nodes(2, 0.33), root)
    rows = [
        Row("kafka", "kafka", 1, "running", None),
        Row("ingestion", "local.0", 2, "running", None),
        Row("processing", "local.0", me, "running", None),
        Row("processing", "local.1", me, "running", None),
    ]
    holder.find(lambda: rows)
    holder.measure()
    not_yet = holder.held
    assert not_yet is None
    for node in ("local.0", "local.1"):
        spend(root, node, 1.0, 10, 2)
    holder.hold()
    spend(root, "local.0", 3.0, 40, 17)
    spend(root, "local.1", 1.5, 20, 2)
    holder.hold()
    holder.measure()
    held = holder.held
    assert held is not None
    assert held.nodes == {"local.0": Spent(2.0, 30, 15), "local.1": Spent(0.5, 10, 0)}
    processes = root / "cpu" / f"linear-road-{me}-local.0" / "cgroup.procs"
    assert processes.read_text().splitlines().count(str(me)) == 1
    holder.release()
    quota = root / "cpu" / f"linear-road-{me}-local.1" / "cpu.cfs_quota_us"
    assert quota.read_text().splitlines() == ["33000", "-1"]


def test_a_node_without_process_cannot_be_held(tmp_path: Path) -> None:
    holder = NodeHolder(Nodes(1, 0.33), cgroups(tmp_path))
    with pytest.raises(DeploymentError, match=r"local\.0"):
        holder.find(lambda: [Row("processing", "local.0", None, "restarting", None)])


@pytest.mark.parametrize("nodes", [None, Nodes(2)])
def test_nodes_that_are_not_held_need_neither_cgroups_nor_processes(
    tmp_path: Path, nodes: Nodes | None
) -> None:
    holder = NodeHolder(nodes, tmp_path)
    holder.find(lambda: [Row("processing", "local.0", None, "nobody asks for it", None)])
    holder.hold()
    holder.measure()
    holder.release()
    holder.remove()
    assert holder.held is None
    assert list(tmp_path.iterdir()) == []


def test_a_run_that_cannot_hold_its_nodes_does_not_begin(tmp_path: Path) -> None:
    with pytest.raises(HoldError):
        NodeHolder(Nodes(2, 0.33), tmp_path)


def test_the_facts_are_of_each_second_and_node() -> None:
    held = Held(180.04, {"local.0": Spent(54.0, 1800, 900), "local.1": Spent(9.0, 0, 0)})
    assert held.facts() == {
        "nodes_held_s": 180.0,
        "node_cpu_s_per_s": {"local.0": 0.3, "local.1": 0.05},
        "node_share_of_100_ms_that_ended_without_cpu": {"local.0": 0.5, "local.1": 0.0},
    }
