"""Java starts beside whoever asked for it. Spark does not run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.memory.clock import SeededEntropy, VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.spark import starting as adapter
from anabranch.adapters.spark.engine_start import start_engine
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.adapters.spark.starting import StartingSpark
from anabranch.adapters.system.scratch import Scratch
from anabranch.pipeline.model import Pipeline, Resources
from anabranch.process.frame import ServiceContext
from anabranch.protocol.errors import ConfigurationError
from harness import outputs
from harness.plain_pipelines import pipeline


def pipeline_in(folder: Path) -> Pipeline:
    return pipeline(path=folder / "p.yaml", resources={"north.0": Resources(memory="700m")})


class NoPlanners:
    """In place of a process."""

    def __init__(self, scratch: Scratch) -> None:
        self.python = scratch.path / "python"


@pytest.fixture(autouse=True)
def no_planners(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(adapter, "PlannerFork", NoPlanners)


def begin(
    folder: Path, settings: SparkSettings, started: Callable[[], object] = lambda: None
) -> StartingSpark:
    return StartingSpark(
        "p.north.0", pipeline_in(folder), (), settings, folder / "scratch", started
    )


def context_in(folder: Path, monkeypatch: pytest.MonkeyPatch) -> ServiceContext:
    monkeypatch.chdir(folder)
    clock = VirtualClock()
    return outputs.context(
        LocalEventLog(clock), pipeline_in(folder), clock, SeededEntropy(1), "processing", "north.0"
    )


def test_a_node_gets_what_the_pipeline_file_says_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}

    def start(name: str, **arguments: Any) -> str:
        given.update(arguments, name=name)
        return "a session"

    monkeypatch.setattr(adapter, "start_session", start)
    monkeypatch.setattr("anabranch.adapters.spark.engine.SparkEngine", lambda *given: given[2])
    spark = start_engine(context_in(tmp_path, monkeypatch), "north.0", ()).wait()
    assert isinstance(spark, StartingSpark)
    assert str(spark.session()) == "a session"
    assert (given["name"], given["memory"]) == ("p.north.0", "700m")
    assert given["python"] == str(spark.scratch.path / "python")


def test_on_a_cluster_python_is_what_every_machine_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(adapter, "start_session", lambda *_, **arguments: given.update(arguments))
    spark = begin(tmp_path, SparkSettings(master="spark://127.0.0.1:7077"))
    spark.session()
    assert spark.planners is None
    assert "python" not in given


def test_nothing_starts_in_a_state_directory_of_another_version(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "state" / "processing").mkdir(parents=True)
    with pytest.raises(ConfigurationError, match="another version of anabranch"):
        start_engine(context_in(tmp_path, monkeypatch), "north.0", ())
    assert [path.name for path in (tmp_path / "state").iterdir()] == ["processing"]


def test_the_caller_waits_only_where_it_needs_the_session(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    may_start = threading.Event()
    given: dict[str, Any] = {}

    def start(name: str, **arguments: Any) -> str:
        assert may_start.wait(20)
        given.update(arguments, name=name)
        return "a session"

    monkeypatch.setattr(adapter, "start_session", start)
    started = threading.Event()
    spark = begin(tmp_path, SparkSettings(memory="700m"), started.set)
    assert not spark.has_failed()
    may_start.set()
    assert started.wait(20), "though nobody waits for the session yet"
    assert str(spark.session()) == "a session"
    assert str(spark.session()) == "a session"
    assert not spark.has_failed()
    assert (given["name"], given["memory"], given["scratch"]) == (
        "p.north.0",
        "700m",
        spark.scratch,
    )


def test_what_went_wrong_is_raised_where_somebody_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def start(_: str, **__: object) -> str:
        raise ConfigurationError("no Java")

    monkeypatch.setattr(adapter, "start_session", start)
    spark = begin(tmp_path, SparkSettings())
    with pytest.raises(ConfigurationError, match="no Java"):
        spark.session()
    assert spark.has_failed()


def test_a_secret_that_cannot_be_read_is_reported_at_once(tmp_path: Path) -> None:
    settings = SparkSettings(secret_file=tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="nowhere"):
        begin(tmp_path, settings)
