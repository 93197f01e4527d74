"""Java starts beside whoever asked for it. Spark does not run."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.spark import starting as adapter
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.adapters.spark.starting import StartingSpark
from anabranch.pipeline.model import Pipeline
from anabranch.protocol.errors import ConfigurationError


def begin(
    folder: Path, settings: SparkSettings, started: Callable[[], object] = lambda: None
) -> StartingSpark:
    pipeline = Pipeline(
        name="p",
        path=folder / "p.yaml",
        bucket_ms=100,
        max_delay_ms=1_000,
        partitions=1,
        sources={},
        stages={},
        outputs={},
    )
    return StartingSpark("p.north.0", pipeline, (), settings, folder / "scratch", started)


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
    told = threading.Event()
    spark = begin(tmp_path, SparkSettings(memory="700m"), told.set)
    may_start.set()
    assert told.wait(20), "though nobody waits for the session yet"
    assert str(spark.session()) == "a session"
    assert str(spark.session()) == "a session"
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


def test_a_secret_that_cannot_be_read_is_told_at_once(tmp_path: Path) -> None:
    settings = SparkSettings(secret_file=tmp_path / "nowhere")
    with pytest.raises(ConfigurationError, match="nowhere"):
        begin(tmp_path, settings)
