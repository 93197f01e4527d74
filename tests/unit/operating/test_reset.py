"""Tests of what ``anabranch reset`` deletes, on a log in memory."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.system.progress import ProgressCall
from anabranch.codec.catalog import TopicSettings
from anabranch.local.state_file import Lock
from anabranch.local.topic_creation import topics_of
from anabranch.operating import reset
from anabranch.pipeline.file import load
from anabranch.protocol.errors import ConfigurationError, Unavailable

PIPELINE = load(Path(__file__).parents[3] / "examples" / "toll_road" / "pipeline.yaml")


def state_in(folder: Path) -> Path:
    for name in ("processing/tolls", "kafka/data", "redis", "logs", "auditor", "mine"):
        (folder / name).mkdir(parents=True)
    for name in ("supervisor.json", "format.json"):
        (folder / name).touch()
    (folder / "pipeline.yaml").touch()
    return folder


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_on_a_cluster_everything_but_the_inputs_is_deleted(tmp_path: Path) -> None:
    log, state = LocalEventLog(), state_in(tmp_path)
    topics = topics_of(PIPELINE)
    log.admin().create(
        [*(TopicSettings(topic.settings.name, 1) for topic in topics), TopicSettings("others", 1)]
    )
    index = LocalIndex()
    index.put("anabranch:toll-road:x", {"a": "b"})
    index.put("anabranch:other:x", {"a": "b"})
    lines: list[str] = []
    plan = reset.plan(PIPELINE, state, log)
    assert set(log.topics) == {*(topic.settings.name for topic in topics), "others"}, (
        "a plan deletes nothing"
    )
    steps: list[ProgressCall] = []
    reset.carry_out(
        plan,
        state,
        log,
        index,
        "anabranch:toll-road:",
        lines.append,
        lambda *step: steps.append(ProgressCall(*step)),
    )
    assert [step.what for step in steps if step.done == 0] == ["keys of Redis", "folders and files"]
    assert all(step.done < step.total for step in steps)
    assert set(log.topics) == {
        *(topic.settings.name for topic in topics if topic.owner == "input"),
        "others",
    }
    assert index.keys("anabranch:") == ["anabranch:other:x"]
    kept = ["auditor", "kafka", "mine", "pipeline.yaml", "redis", "supervisor.lock"]
    assert names(state) == kept, "contracts are kept, and so are the numbers that they ask for"
    assert reset.plan(PIPELINE, state, log).in_words() == []


def test_the_checkpoints_in_the_store_are_deleted(tmp_path: Path) -> None:
    log = LocalEventLog()
    state, store = tmp_path / "state", tmp_path / "store"
    for folder in (state, store / PIPELINE.name / "tolls.0" / "life-1", store / "other"):
        folder.mkdir(parents=True)
    (store / PIPELINE.name / "tolls.0" / "life-1" / "x.json").touch()
    url = f"file://{store}"
    plan = reset.plan(PIPELINE, state, log, url)
    assert plan.in_words() == [f"delete the checkpoints of {PIPELINE.name} in {url}"]
    lines: list[str] = []
    reset.carry_out(plan, state, log, None, "", lines.append)
    assert lines == [f"deleted the checkpoints of {PIPELINE.name} in {url}"]
    assert names(store) == ["other"]
    reset.carry_out(plan, state, log, None, "", lines.append)
    assert reset.plan(PIPELINE, state, log, url).in_words() == []


def test_a_store_that_does_not_answer_is_not_taken_for_an_empty_one(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="checkpoint store cannot be read at toll-road"):
        reset.plan(PIPELINE, tmp_path, LocalEventLog(), f"file://{tmp_path}/none")


def test_an_embedded_broker_is_deleted_whole_and_nothing_of_others(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    plan = reset.plan(PIPELINE, state, None)
    assert any(
        "the embedded broker with all its topics, inputs too" in line for line in plan.in_words()
    )
    reset.carry_out(plan, state, None, None, "", lambda _: None)
    assert names(state) == ["mine", "pipeline.yaml", "supervisor.lock"]


def test_a_running_deployment_is_not_deleted(tmp_path: Path) -> None:
    state = state_in(tmp_path)
    plan = reset.plan(PIPELINE, state, None)
    lock = Lock(state)
    lock.acquire()
    try:
        with pytest.raises(ConfigurationError, match=r"runs .*: stop it first, `anabranch down`"):
            reset.plan(PIPELINE, state, None)
        with pytest.raises(ConfigurationError, match="already in use"):
            reset.carry_out(plan, state, None, None, "", lambda _: None)
    finally:
        lock.release()
    assert "kafka" in names(state)
