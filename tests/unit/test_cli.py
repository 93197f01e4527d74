"""The command line: what it prints and with what code it ends. Nothing is started."""

from __future__ import annotations

import io
import json
import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from anabranch import cli
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.cli import up as up_command
from anabranch.cli.options import file_and_broker
from anabranch.cli.signals import stop_events
from anabranch.cli.work_display import WorkDisplay
from anabranch.local import probe, state_file
from anabranch.local.state_file import Deployment, Lock, ProcessRow
from anabranch.local.tcp_ports import free_port
from anabranch.operating import doctor
from anabranch.protocol.errors import ConfigurationError
from harness.waiting import wait_until

DRILLS = ["kill", "pause", "resume", "cut", "heal"]
_FILE = Path(__file__).parents[2] / "examples" / "toll_road" / "pipeline.yaml"


def _run(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *arguments: str
) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "argv", ["anabranch", *arguments])
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as caught:
        cli.main()
    captured = capsys.readouterr()
    return int(caught.value.code or 0), captured.out, captured.err


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda *arguments: _run(capsys, monkeypatch, *arguments)


@pytest.fixture(autouse=True)
def client_log() -> Iterator[None]:
    """Restore the process's log, which a command silences and other tests read."""
    logger = logging.getLogger("anabranch.adapters.kafka")
    before = logger.level
    yield
    logger.setLevel(before)


@pytest.mark.parametrize(
    "arguments",
    [
        ["uppp"],
        ["up", "p.yaml"],
        ["check", "--what"],
        ["topics", "-f", str(_FILE), "--replication", "0"],
        ["cut", "a/b"],
    ],
)
def test_wrong_usage_is_2(run: Any, arguments: list[str]) -> None:
    assert run(*arguments)[0] == 2


def test_check_names_every_mistake_with_its_line(run: Any, tmp_path: Path) -> None:
    bad = tmp_path / "pipeline.yaml"
    bad.write_text("pipeline: p\nbucket: 250ms\nnonsense: 1\nsources: {}\n")
    code, out, err = run("check", "-f", str(bad), "--no-plan")
    assert code == 2
    assert out == ""
    assert any(line.startswith(f"{bad}:3: ") and "nonsense" in line for line in err.splitlines())
    assert run("check", "-f", str(tmp_path / "missing.yaml"))[0] == 2


def test_topics_as_text_and_json(run: Any) -> None:
    code, out, _ = run("topics", "-f", str(_FILE))
    assert code == 0
    assert any(
        line.startswith("toll-road.tolls.boundaries ") and " 1  " in line
        for line in out.splitlines()
    )
    _, out, _ = run("topics", "-f", str(_FILE), "--json")
    found = {topic["name"]: topic for topic in json.loads(out)}
    assert found["reports.0"]["owner"] == "input"
    assert found["toll-road.manager"]["partitions"] == 1
    assert run("topics", "-f", str(_FILE), "--create")[0] == 2


def test_options_that_do_not_go_together(run: Any) -> None:
    code, _, err = run("up", "-f", str(_FILE), "--kafka", "b:1", "--kafka-port", "9092")
    assert code == 2
    assert "--kafka-port" in err


def test_the_variable_of_the_address_counts_where_no_option_is_given(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from anabranch.local import deployment as up
    from anabranch.local import topic_creation

    addresses: list[str | None] = []

    def seen(address: str | None) -> list[str]:
        addresses.append(address)
        return []

    monkeypatch.setenv("ANABRANCH_KAFKA", "of-environment:1")
    monkeypatch.setattr(up, "up", lambda *_, kafka, **__: seen(kafka))
    monkeypatch.setattr(
        topic_creation, "prepare", lambda log, *_, **__: seen(log.settings().address)
    )
    monkeypatch.setattr(doctor, "examine", lambda kafka, *_: seen(kafka))
    at = ("--state-dir", str(tmp_path))
    code, out, _ = run("up", "-f", str(_FILE), *at)
    assert (code, out) == (0, "Kafka: the cluster at of-environment:1, as ANABRANCH_KAFKA says\n")
    code, out, _ = run("up", "-f", str(_FILE), *at, "--kafka", "given:1")
    assert (code, out) == (0, "Kafka: the cluster at given:1\n")
    assert run("topics", "-f", str(_FILE), "--create")[0] == 0
    assert run("doctor")[0] == 0
    assert addresses == ["of-environment:1", "given:1", "of-environment:1", "of-environment:1"]
    code, _, err = run("up", "-f", str(_FILE), *at, "--kafka-port", "9092")
    assert (code, "unset ANABRANCH_KAFKA" in err) == (2, True)
    monkeypatch.setenv("ANABRANCH_KAFKA", "")
    assert run("up", "-f", str(_FILE), *at)[1] == ""
    assert addresses[-1] is None


def test_a_broker_that_is_away_is_reported_by_its_address_and_nothing_else(
    run: Any,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    log = partial(KafkaEventLog, request_timeout_ms=1_500)
    monkeypatch.setattr("anabranch.adapters.kafka.log.KafkaEventLog", log)
    address = f"127.0.0.1:{free_port()}"
    code, out, err = run("tail", "tolls", "-f", str(_FILE), "--kafka", address)
    assert (code, out) == (1, "")
    assert err.startswith(
        f"Unavailable: no Kafka broker answers at {address} within 1.5 s: check the address and"
        " that it runs; with TLS "
    )
    assert len(err.splitlines()) == 1
    assert caplog.messages == [], "the client's own log is not shown"


def test_where_nothing_runs(run: Any, tmp_path: Path) -> None:
    at = ("--state-dir", str(tmp_path))
    code, out, _ = run("status", "--json", *at)
    assert (code, json.loads(out)) == (1, [])
    code, _, err = run("status", *at)
    assert code == 1
    assert "nothing runs" in err
    missing = tmp_path / "pipelin.yaml"
    code, _, err = run("status", "-f", str(missing))
    assert code == 1
    assert err.endswith(f", and there is no file {missing}\n")
    code, out, _ = run("down", *at)
    assert code == 0
    assert "nothing runs" in out
    for arguments in (
        ("tail", "tolls"),
        *(("drill", command, "ingestion/reports_0") for command in DRILLS),
    ):
        code, _, err = run(*arguments, *at)
        assert code == 2
        assert err.startswith(
            f"nothing runs in {tmp_path}: name the deployment with -f FILE or --state-dir DIR, or"
            " start it with `anabr"
        )


def test_the_directory_that_was_looked_at_is_named_in_full(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for command, place in (("status", 2), ("down", 1)):
        assert run(command)[place].startswith(f"nothing runs in {tmp_path / '.anabranch'}: ")
        for file in (["--file", "elsewhere/pipeline.yaml"], ["-f", "elsewhere/pipeline.yaml"]):
            assert run(command, *file)[place].startswith(
                f"nothing runs in {tmp_path / 'elsewhere' / '.anabranch'}, and there is no file "
            )


def test_status_shows_servers_errors_and_what_is_waited_for(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows = (
        ProcessRow("kafka", "kafka", 11, None, 0, "running", None, "127.0.0.1:29092"),
        ProcessRow("ingestion", "reports_0", 12, 8001, 0, "running"),
        ProcessRow("processing", "tolls.0", None, None, 3, "failed", "f raised [boom]\nmore"),
        ProcessRow("delivery", "tolls", 13, 8002, 0, "running"),
    )
    state_file.write(tmp_path, Deployment(1, str(_FILE), "127.0.0.1:29092", None, False, rows))
    answers: dict[int, dict[str, object] | None] = {
        8001: {
            "pid": 12,
            "state": "waiting",
            "last_bucket_ms": 1_800_000_000_250,
            "lag_ms": 1_250,
            "waiting_for": "reports.0 partition 1",
            "detail": {"live": "running", "live_failure": True},
        },
        8002: None,
    }
    monkeypatch.setattr(probe, "status", lambda port: answers[port])
    lock = Lock(tmp_path)
    lock.acquire()
    try:
        code, out, _ = run("status", "--json", "--state-dir", str(tmp_path))
        assert code == 0
        kafka, ingestion, stage, delivery = json.loads(out)
        assert (kafka["service"], kafka["pid"], kafka["address"], kafka["state"]) == (
            "kafka",
            11,
            "127.0.0.1:29092",
            "running",
        )
        assert (ingestion["state"], ingestion["lag_ms"], ingestion["waiting_for"]) == (
            "waiting",
            1_250,
            "reports.0 partition 1",
        )
        assert (stage["state"], stage["restarts"], stage["error"], stage["pid"]) == (
            "failed",
            3,
            "f raised [boom]\nmore",
            None,
        )
        assert ingestion["detail"] == {"live": "running", "live_failure": True}
        assert (delivery["state"], delivery["detail"], stage["detail"]) == ("silent", {}, {})
        wanted = {
            "service",
            "name",
            "pid",
            "state",
            "last_bucket_ms",
            "lag_ms",
            "metrics_port",
            "restarts",
            "error",
            "address",
            "detail",
        }
        assert all(wanted <= set(row) for row in (kafka, ingestion, stage, delivery))
        _, out, _ = run("status", "--state-dir", str(tmp_path))
        assert "live topic tentative; waits for reports.0 partition 1" in out
        assert "2027-01-15 08:00:00.250" in out
        assert "1.2 s" in out
        assert "f raised [boom]" in out
        assert "127.0.0.1:29092" in out
    finally:
        lock.release()


def test_down_ends_the_supervisor_and_waits_for_its_end(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = (
        "import signal, sys, threading, time; from pathlib import Path; from"
        " anabranch.local.state_file import Lock\nstop = threading.Event();"
        " signal.signal(signal.SIGTERM, lambda *_: stop.set())\nfolder = Path(sys.argv[1]);"
        " lock = Lock(folder); lock.acquire(); stop.wait(60)\n"
        "while not (folder / 'seen').exists(): time.sleep(0.01)\n"
        "(folder / 'ended').touch(); lock.release()"
    )
    supervisor = subprocess.Popen([sys.executable, "-c", program, str(tmp_path)])
    wait_until(lambda: Lock(tmp_path).holder() == supervisor.pid, 60, "it has the lock")
    gone = subprocess.Popen(["true"])
    gone.wait(60)
    rows = tuple(ProcessRow("ingestion", str(pid), pid) for pid in (supervisor.pid, gone.pid, None))
    state_file.write(tmp_path, Deployment(supervisor.pid, "p", "k", None, processes=rows))
    steps: list[tuple[str, int, int]] = []

    def count(_self: WorkDisplay, *step: Any) -> None:
        steps.append(step)
        (tmp_path / "seen").touch()  # before that the supervisor does not end

    monkeypatch.setattr(WorkDisplay, "count", count)
    code, out, _ = run("down", "--state-dir", str(tmp_path))
    assert (code, out) == (0, "stopped\n")
    assert steps[0] == ("processes stopped", 1, 2)
    assert (tmp_path / "ended").exists()
    assert supervisor.wait(60) == 0


def test_doctor_ends_with_1_when_anything_is_bad(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    checks = [doctor.Check("Java", True, "17"), doctor.Check("Memory", False, "1 MiB", "buy more")]
    monkeypatch.setattr(doctor, "examine", lambda *_: checks)
    code, out, _ = run("doctor")
    assert code == 1
    assert "ok  Java" in out
    assert "bad Memory" in out
    assert "buy more" in out
    checks.pop()
    assert run("doctor")[0] == 0


def test_first_signal_stops_second_stops_now() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with stop_events() as (stopping, stop_now):
        os.kill(os.getpid(), signal.SIGTERM)
        assert stopping.wait(5)
        assert not stop_now.is_set()
        os.kill(os.getpid(), signal.SIGINT)
        assert stop_now.wait(5)
    assert signal.getsignal(signal.SIGTERM) is before
    assert threading.active_count() >= 1


def test_version(run: Any) -> None:
    code, out, _ = run("version")
    assert code == 0
    assert out.strip()
    assert run("--version") == (0, out, "")


def test_without_a_file_it_is_that_of_the_folder(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for command in (
        ["check", "--no-plan"],
        ["topics"],
        ["acls"],
        ["up"],
        ["graph"],
        ["compose"],
        ["reset"],
        ["test"],
    ):
        code, out, err = run(*command)
        assert (code, out) == (2, "")
        assert (
            err
            == f"there is no pipeline.yaml in {tmp_path}: go to its folder, or name the file with"
            " -f FILE\n"
        )
    monkeypatch.chdir(_FILE.parent)
    assert run("check", "--no-plan")[1].startswith("pipeline.yaml: pipeline toll-road: 3 sources")


def test_a_command_on_a_deployment_takes_its_file_and_broker_from_it(tmp_path: Path) -> None:
    state_file.write(
        tmp_path, Deployment(1, "/some/where.yaml", "127.0.0.1:29092", None, False, ())
    )
    assert file_and_broker(None, tmp_path, None) == (Path("/some/where.yaml"), "127.0.0.1:29092")
    assert file_and_broker(Path("p.yaml"), tmp_path, "k:1") == (Path("p.yaml"), "k:1")
    assert file_and_broker(Path("p.yaml"), tmp_path / "other", "k:1") == (Path("p.yaml"), "k:1")
    with pytest.raises(ConfigurationError, match=r"nothing runs in .*give --kafka"):
        file_and_broker(Path("p.yaml"), tmp_path / "other", None)


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["init", "."], "is not an empty folder"),
        (
            ["init", "new", "--name", "Big Name"],
            "--name: pipeline name 'Big Name': use lower case letters",
        ),
        (
            ["produce", "readings"],
            "give a file of JSON lines, or - for standard input, or --generate",
        ),
        (["produce", "readings", "x.jsonl", "--generate"], "one of them"),
        (
            ["produce", "readings", "x.jsonl", "--count", "3"],
            "--count and --every are for --generate",
        ),
        (
            ["produce", "nothing", "--generate", "--kafka", "k:1"],
            "no source 'nothing'; there are: reports_0",
        ),
        (
            ["produce", "reports_0", "--generate", "--every", "often", "--kafka", "k:1"],
            "--every often: ",
        ),
        (
            ["produce", "reports_0", "missing.jsonl", "--kafka", "k:1"],
            "missing.jsonl: cannot be read: No such file",
        ),
        (
            ["produce", "reports_0", "bad.jsonl", "--kafka", "k:1"],
            "bad.jsonl:2: not a record position_report: ",
        ),
        (["produce", "reports_0", "--generate"], "nothing runs in "),
        (["restart", "ingestion/reports_0"], "nothing runs in "),
        (["logs"], "there are no logs in "),
        (["status", "--watch", "--json"], "give one of them"),
        (["tail", "tolls", "--live", "--rejected"], "give one of them"),
        (["compose", "-o", "there.yml"], "there.yml exists already"),
        (["graph", "--svg", "no/such/folder.svg"], "cannot be written: No such file"),
    ],
)
def test_bad_input_is_one_message_and_2(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    why: str,
) -> None:
    for name in ("pipeline.yaml", "stages.py", "schemas"):
        (tmp_path / name).symlink_to(_FILE.parent / name)
    (tmp_path / "there.yml").write_text("mine")
    (tmp_path / "bad.jsonl").write_text("\n{}\n")
    monkeypatch.chdir(tmp_path)
    code, _, err = run(*arguments)
    assert code == 2
    assert why in err
    assert "Traceback" not in err
    assert (tmp_path / "there.yml").read_text() == "mine"


def test_init_makes_a_name_of_the_folders(run: Any, tmp_path: Path) -> None:
    code, out, _ = run("init", str(tmp_path / "7 Sensors!"))
    assert code == 0
    assert f"next: cd '{tmp_path / '7 Sensors!'}' && " in out, "as a shell takes it"
    assert "pipeline: p-7-sensors\n" in (tmp_path / "7 Sensors!" / "pipeline.yaml").read_text()


def test_compose_says_where_the_pipeline_lies_as_seen_from_its_file(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run("init", str(tmp_path / "sensors"))
    monkeypatch.chdir(tmp_path)
    assert run("compose", "-f", "sensors/pipeline.yaml")[:2] == (0, "wrote docker-compose.yml\n")
    assert (
        '"${ANABRANCH_PIPELINE_DIR:-./sensors}:/pipeline:ro"'
        in (tmp_path / "docker-compose.yml").read_text()
    )
    monkeypatch.chdir(tmp_path / "sensors")
    assert '"${ANABRANCH_PIPELINE_DIR:-.}:/pipeline:ro"' in run("compose", "-o", "-")[1]


@pytest.mark.parametrize("answer", ["n\n", ""], ids=["no", "nobody there"])
def test_reset_without_confirmation_deletes_nothing(
    run: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    answer: str,
) -> None:
    (tmp_path / "kafka").mkdir()
    monkeypatch.setattr("sys.stdin", io.StringIO(answer))
    code, _, err = run("reset", "-f", str(_FILE), "--state-dir", str(tmp_path))
    assert (code, err) == (
        2,
        "not confirmed: nothing was changed; with --yes the command does not ask\n",
    )
    assert (tmp_path / "kafka").exists()


def test_reset_deletes_the_embedded_broker(run: Any, tmp_path: Path) -> None:
    (tmp_path / "kafka").mkdir()
    code, out, _ = run("reset", "-f", str(_FILE), "--state-dir", str(tmp_path), "--yes")
    assert (code, (tmp_path / "kafka").exists()) == (0, False)
    assert "with all its topics, inputs too" in out
    assert (
        run("reset", "-f", str(_FILE), "--state-dir", str(tmp_path), "--yes")[1]
        == "there is nothing to delete\n"
    )


def test_a_pipeline_is_drawn(run: Any, tmp_path: Path) -> None:
    assert run("graph", "-f", str(_FILE))[1].startswith(
        "pipeline toll-road\nsource reports_0  topic reports.0"
    )
    assert run("graph", "-f", str(_FILE), "--svg", "-")[1].startswith("<svg ")
    run("graph", "-f", str(_FILE), "--svg", str(tmp_path / "p.svg"))
    assert (tmp_path / "p.svg").read_text().endswith("</svg>\n")


def test_up_in_the_background_gets_the_same_options() -> None:
    again = up_command._background_options(
        Path("p.yaml"), Path("s"), "k:1", None, ["ingestion"], 0, 3, True
    )
    assert (
        " ".join(again)
        == "--file p.yaml --state-dir s --kafka k:1 --replication 3 --only ingestion --drills"
    )
    assert up_command._background_options(
        Path("p.yaml"), Path("s"), None, None, None, 9092, None, False
    )[4:] == ["--kafka-port", "9092"]
    own = up_command._background_options(
        Path("p.yaml"), Path("s"), "k:1", None, None, 0, None, False, Path("own.yaml")
    )
    assert own[-2:] == ["--offers", "own.yaml"]


_OFFERS = Path(__file__).parents[2] / "examples" / "remote_definition"


def test_offers_are_shown_and_their_terms_are_those_that_the_example_has(run: Any) -> None:
    south, north = str(_OFFERS / "south" / "south.yaml"), _OFFERS / "north" / "north.yaml"
    code, out, _ = run("offers", "-f", south)
    assert code == 0
    assert "window_s: an integer from 1 to 60, 5 if left out" in " ".join(out.split())
    code, out, _ = run("offers", "-f", south, "--to", "north")
    assert (code, out) == (0, (north.parent / "south.offers.json").read_text())
    for words, says in (
        (["offers", "-f", south, "--to", "west"], "south offers nothing to west"),
        (["offers", "-f", str(north)], "north.yaml offers nothing"),
    ):
        code, _, errors = run(*words)
        assert (code, says in " ".join(errors.split())) == (2, True)
    for own in ([], ["--offers", south]):
        code, out, _ = run("check", "-f", str(north), "--no-plan", *own)
        assert (code, "pipeline north: 1 source, 1 binding, 2 stages" in out) == (0, True)
