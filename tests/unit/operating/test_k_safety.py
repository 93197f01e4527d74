"""The proof of ``k_safety: 1``, with the store and the topics of a deployment."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.cli import app
from anabranch.codec.catalog import TopicSettings
from anabranch.local.topic_creation import topics_of
from anabranch.operating.k_safety import SafetyReport, examine, on_one_disk
from anabranch.pipeline.file import load
from anabranch.pipeline.model import Pipeline
from harness.pipeline_files import written

FILE = """\
pipeline: p
k_safety: 1
sources: {a: {topics: [a], record: car.avsc, event_time: arrival}}
stages:
  s: {reads: [a], sql: SELECT * FROM a, replicas: 2}
outputs:
  o: {stage: s, corrected: {topic: o}}
"""
STORE = "s3://checkpoints/p?region=eu-central-1"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return written(tmp_path, FILE)


def cluster(pipeline: Pipeline, *spoilt: TopicSettings) -> LocalEventLog:
    """Return a cluster with the topics of the pipeline. ``spoilt``: settings of some instead."""
    log = LocalEventLog()
    log.admin().create([*spoilt, *(each.settings for each in topics_of(pipeline, replication=3))])
    return log


def proof(path: Path, store: str | None = STORE, log: LocalEventLog | None = None) -> SafetyReport:
    return examine(load(path), store=store, state_dir=path.parent / ".anabranch", log=log)


def test_a_pipeline_that_survives_each_loss_is_proven(path: Path) -> None:
    pipeline = load(path)
    found = proof(path, log=cluster(pipeline))
    assert not found.short
    assert [line.partition(" may be lost")[0] for line in found.proven] == [
        "k_safety: any one of 2 nodes",
        "k_safety: the disk of the state directory",
        "k_safety: any one broker",
    ]
    assert f"each of {len(topics_of(pipeline))} topics" in found.proven[-1]


def test_a_disk_needs_a_store_on_another_one(path: Path, tmp_path: Path) -> None:
    (short,) = proof(path, None).short
    assert "stages wait for input that is deleted: s; set ANABRANCH_CHECKPOINT_STORE" in short
    (tmp_path / "store").mkdir()
    (short,) = proof(path, f"file://{tmp_path}/store").short
    assert short.endswith(f"(that at file://{tmp_path}/store is on the same disk)")
    assert not proof(path).short


def test_a_stage_that_reads_its_input_again_needs_no_store(path: Path) -> None:
    path.write_text(
        FILE.replace("replicas: 2", "ha: upstream_backup, state_horizon: 0ms")
        + "scaling: {nodes: [local.7]}\n"
    )
    found = proof(path, None)
    assert not found.short
    assert any("makes its state again from its input" in line for line in found.proven)


def test_a_store_elsewhere_is_on_no_disk_of_this_machine(tmp_path: Path) -> None:
    assert not on_one_disk(STORE, tmp_path)
    assert not on_one_disk(f"file://{tmp_path}/nowhere", tmp_path)
    assert not on_one_disk("file:///proc", tmp_path)
    assert on_one_disk(f"file://{tmp_path}", tmp_path / "not" / "yet" / "there")


@pytest.mark.parametrize("kind", ["input", "internal", "output"])
def test_each_topic_counts(path: Path, kind: str) -> None:
    pipeline = load(path)
    weak = next(
        topic.settings for topic in topics_of(pipeline, replication=3) if topic.owner == kind
    )
    log = cluster(pipeline, replace(weak, replication=2))
    (short,) = proof(path, log=log).short
    assert f"topic {weak.name} loses what one broker" in short
    config = {**weak.config, "min.insync.replicas": "1"}
    log = cluster(pipeline, replace(weak, config=config))
    (short,) = proof(path, log=log).short
    assert f"topic {weak.name} may lose what one broker acknowledged alone" in short


def test_the_topic_of_transactions_counts_too(path: Path) -> None:
    log = cluster(load(path))
    log.admin().create([TopicSettings("__transaction_state", 1)])
    (short,) = proof(path, log=log).short
    assert "topic __transaction_state is lost" in short


def test_topics_that_are_not_there_are_not_proven(path: Path) -> None:
    (short,) = proof(path, log=LocalEventLog()).short
    assert f"{len(topics_of(load(path)))} topics are not there yet" in short


def test_the_command_shows_the_proof_and_fails_where_it_falls_short(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("ANABRANCH_KAFKA", raising=False)
    monkeypatch.setenv("ANABRANCH_CHECKPOINT_STORE", STORE)
    given = CliRunner().invoke(app, ["check", "-f", str(path), "--no-plan"])
    assert given.exit_code == 0, given.output
    assert "any one of 2 nodes may be lost" in given.output
    assert "brokers were not looked at" in given.output
    monkeypatch.delenv("ANABRANCH_CHECKPOINT_STORE")
    given = CliRunner().invoke(app, ["check", "-f", str(path), "--no-plan"])
    assert given.exit_code == 2
    assert "error: k_safety: without the disk of the state directory" in given.output
