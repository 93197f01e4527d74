"""Which processes a pipeline has, and how each is started."""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from anabranch.local import deployment
from anabranch.local.deployment import (
    COMPILERS,
    _EarlyProcesses,
    selected,
    specs_of,
    start_redis,
)
from anabranch.local.drill_links import Link
from anabranch.local.embedded_redis import EmbeddedRedis
from anabranch.local.processes import MARK, ProcessSpec, mark_of, marked
from anabranch.local.state_file import Lock
from anabranch.local.supervisor import Server
from anabranch.local.topic_creation import Topic
from anabranch.pipeline.file import load
from anabranch.protocol.errors import ConfigurationError, Unavailable

_FILE = Path(__file__).parents[3] / "examples" / "toll_road" / "pipeline.yaml"
_NAMES = [
    ("ingestion", "reports_0"),
    ("ingestion", "reports_1"),
    ("ingestion", "reports_2"),
    ("processing", "north.0"),
    ("delivery", "tolls"),
    ("consistency_manager", "toll-road"),
]


def up(file: Path, folder: Path, say: Callable[[str], None] = print, **options: Any) -> None:
    """Start what nobody stops."""
    never: dict[str, Any] = {"stopping": threading.Event(), "stop_now": threading.Event()}
    deployment.up(file, state_dir=folder, say=say, **never, **options)


def test_one_process_per_source_node_output_and_pipeline() -> None:
    pipeline = load(_FILE)
    assert pipeline.processes() == _NAMES
    stage = pipeline.stages["tolls"].model_copy(update={"replicas": 3})
    more = pipeline.model_copy(update={"stages": {**pipeline.stages, "tolls": stage}})
    assert [name for service, name in more.processes() if service == "processing"] == [
        "north.0",
        "north.1",
        "north.2",
    ]


def test_only_names_a_service_or_one_process() -> None:
    assert selected(_NAMES, []) == _NAMES
    assert selected(_NAMES, ["ingestion"]) == _NAMES[:3]
    assert selected(_NAMES, ["processing/north.0", "delivery"]) == [_NAMES[3], _NAMES[4]]
    with pytest.raises(
        ConfigurationError,
        match=r"--only procesing: no such process; there are .*processing/north\.0",
    ):
        selected(_NAMES, ["procesing"])


@pytest.mark.parametrize(
    "error",
    [Unavailable("the embedded Redis ended with code 1"), ConfigurationError("no redis-server")],
)
def test_everything_works_without_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    stopped: list[float] = []

    def start(_self: EmbeddedRedis, _timeout_s: float = 0.0) -> str:
        raise error

    monkeypatch.setattr(EmbeddedRedis, "start", start)
    monkeypatch.setattr(
        EmbeddedRedis, "stop", lambda _self, timeout_s=5.0: stopped.append(timeout_s)
    )
    servers, lines = dict[str, Server](), list[str]()
    assert start_redis(tmp_path, servers, lines.append) is None
    assert (servers, lines, len(stopped)) == ({}, [f"continuing without Redis: {error}"], 1)


def test_a_process_gets_its_settings_and_the_password_not_by_argument() -> None:
    spec, manager = specs_of(
        [("delivery", "tolls"), ("consistency_manager", "p")],
        Path("/x/p.yaml"),
        Path("/x/state"),
        "b:1",
        "redis://:secret@r:2/0",
    )
    arguments = list(spec.command)[1:]
    assert arguments[:2] == ["-m", "anabranch.delivery"]
    assert dict(zip(arguments[2::2], arguments[3::2], strict=True)) == {
        "--pipeline": "/x/p.yaml",
        "--name": "tolls",
        "--kafka": "b:1",
        "--state-dir": "/x/state",
    }
    assert manager.environment["ANABRANCH_REDIS"] == "redis://:secret@r:2/0"
    assert "ANABRANCH_REDIS" not in spec.environment
    linked = specs_of(
        _NAMES[:2],
        Path("/x/p.yaml"),
        Path("/x/state"),
        "b:1",
        None,
        [Link("ingestion/reports_1", 7, 8)],
    )
    assert [list(spec.command)[list(spec.command).index("--kafka") + 1] for spec in linked] == [
        "b:1",
        "127.0.0.1:7",
    ]
    (without,) = specs_of([("delivery", "tolls")], Path("/x/p.yaml"), Path("/x/state"), "b:1", None)
    assert "ANABRANCH_REDIS" not in without.environment


def test_what_no_result_waits_for_yields_the_cores_to_nodes_and_nodes_to_the_rest() -> None:
    names = [("ingestion", "reports"), ("processing", "north.0")]
    names += [("agent", "north"), ("auditor", "audit"), ("contract_broker", "north")]
    specs = specs_of(names, Path("/x/p.yaml"), Path("/x/state"), "b:1", None)
    assert [spec.niceness for spec in specs] == [0, 5, 10, 10, 10]
    assert [spec.starts_first for spec in specs] == [False, True, False, False, False]


def test_who_runs_what_it_offers_says_so_to_its_node_and_names_the_broker(tmp_path: Path) -> None:
    (spec,) = specs_of(
        [("processing", "south.0")],
        Path("/x/north.yaml"),
        Path("/x/state"),
        "b:1",
        None,
        offers=tmp_path / "south.yaml",
    )
    assert list(spec.command)[-2:] == ["--name", "south.0"]
    at = list(spec.command).index("--offers")
    assert list(spec.command)[at + 1] == str(tmp_path.resolve() / "south.yaml")
    with pytest.raises(ConfigurationError, match="--offers: name the broker of the pipeline"):
        up(_FILE, tmp_path, offers=tmp_path / "south.yaml")


def test_nodes_that_were_started_early_are_kept_unless_they_were_started_otherwise(
    tmp_path: Path,
) -> None:
    early = _EarlyProcesses(tmp_path)
    sleeps = ["sleep", "60"]
    specs = [
        ProcessSpec("processing", "a.0", sleeps),
        ProcessSpec("processing", "b.0", sleeps),
        ProcessSpec("ingestion", "x", sleeps),
    ]
    early.start(specs)
    kept = early.kept([specs[0], ProcessSpec("processing", "b.0", ["sleep", "61"]), specs[2]])
    try:
        assert list(kept) == ["processing/a.0"]
        assert kept["processing/a.0"].exit_code() is None
        assert marked(MARK, mark_of(tmp_path)) == [kept["processing/a.0"].pid], (
            "the other one was ended"
        )
    finally:
        kept["processing/a.0"].kill()
    early.end()


def test_drills_need_the_embedded_broker(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="--drills is for the embedded broker"):
        up(_FILE, tmp_path, kafka="b:1", drills=True)


_REMOTE = _FILE.parents[1] / "remote_definition"


@pytest.mark.parametrize("is_guest", [False, True])
def test_who_runs_what_it_offers_makes_no_topics_and_needs_no_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_guest: bool
) -> None:
    begun: list[str] = []

    def prepare(_: object, topics: list[Topic], **_options: object) -> list[str]:
        begun.extend(topic.settings.name for topic in topics)
        raise Unavailable("that is enough")

    monkeypatch.setattr(deployment, "prepare", prepare)
    monkeypatch.setattr(deployment, "start_redis", lambda *_: begun.append("redis"))
    monkeypatch.setattr(
        _EarlyProcesses, "start", lambda _self, specs: begun.extend(s.label for s in specs)
    )
    with pytest.raises(Unavailable, match="that is enough"):
        up(
            _REMOTE / "north" / "north.yaml",
            tmp_path,
            kafka="127.0.0.1:9",
            offers=_REMOTE / "south" / "south.yaml" if is_guest else None,
        )
    if is_guest:
        assert begun == ["processing/south.0"]
    else:
        assert {"redis", "north.speeds.boundaries", "delivery/speeds"} <= {*begun}
        assert "processing/south.0" not in begun


def test_an_auditor_makes_no_topics_and_needs_no_redis(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[object] = []
    monkeypatch.setattr(deployment, "start_redis", lambda *_: begun.append("redis"))
    monkeypatch.setattr(_EarlyProcesses, "start", lambda *_: None)

    def prepare(_: object, topics: list[Topic], **_options: object) -> list[str]:
        begun.append(topics)
        raise Unavailable("that is enough")

    monkeypatch.setattr(deployment, "prepare", prepare)
    for name in ("market", "federation"):
        shutil.copytree(_FILE.parents[1] / name, tmp_path / name)
    market = tmp_path / "market" / "north.yaml"
    named = "participant: north\n  auditor: audit\n  partners"
    market.write_text(market.read_text().replace("participant: north\n  partners", named))
    with pytest.raises(Unavailable, match="that is enough"):
        up(market, tmp_path / "state", kafka="127.0.0.1:9", only=["auditor/audit"])
    assert begun == [[]]
    names = [("auditor", "audit")]
    (spec,) = specs_of(names, market, tmp_path, "b:1", "redis://r:1")
    assert spec.environment == {COMPILERS: "quick"}


def test_a_state_directory_of_an_older_version_is_rejected_before_anything_starts(
    tmp_path: Path,
) -> None:
    (tmp_path / "processing").mkdir()
    lines: list[str] = []
    with pytest.raises(ConfigurationError, match="another version of anabranch"):
        up(_FILE, tmp_path, lines.append)
    assert lines == []
    assert Lock(tmp_path).holder() is None


def test_a_state_directory_in_use_is_rejected_before_anything_starts(tmp_path: Path) -> None:
    lock = Lock(tmp_path)
    lock.acquire()
    lines: list[str] = []
    with pytest.raises(ConfigurationError, match="already in use"):
        up(_FILE, tmp_path, lines.append)
    assert lines == []
    lock.release()


@pytest.mark.parametrize("has_live", [False, True])
def test_light_services_get_a_spare_process_where_results_are_live(
    tmp_path: Path, *, has_live: bool
) -> None:
    names = [("ingestion", "a"), ("processing", "n.0"), ("delivery", "o"), ("agent", "n")]
    specs = deployment.specs_of(names, tmp_path / "p", tmp_path, "k:1", None, has_live=has_live)
    assert [spec.service for spec in specs if spec.takes_spare] == (
        ["ingestion", "delivery"] if has_live else []
    )
