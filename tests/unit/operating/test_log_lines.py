"""Tests of the output of ``anabranch logs``."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from anabranch.operating import log_lines
from anabranch.protocol.errors import ConfigurationError
from harness.waiting import wait_until


def line(second: int, event: str, **more: object) -> str:
    return json.dumps(
        {
            "service": "ingestion",
            "name": "a",
            "at": f"2026-01-01T00:00:{second:02}.123456Z",
            "level": "info",
            "event": event,
            **more,
        }
    )


def write(state: Path, name: str, *lines: str) -> Path:
    path = state / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{each}\n" for each in lines))
    return path


def test_logs_are_named_as_status_names_their_processes(tmp_path: Path) -> None:
    for name in (
        "logs/ingestion-re-ports.log",
        "logs/consistency_manager-p.log",
        "logs/up.log",
        "kafka/kafka.log",
        "logs/ingestion-b.log",
    ):
        write(tmp_path, name)
    assert sorted(log_lines.files_of(tmp_path, [])) == [
        "consistency_manager/p",
        "ingestion/b",
        "ingestion/re-ports",
        "kafka/kafka",
        "up",
    ]
    assert sorted(log_lines.files_of(tmp_path, ["ingestion", "up"])) == [
        "ingestion/b",
        "ingestion/re-ports",
        "up",
    ]
    with pytest.raises(ConfigurationError, match="no log of ingestion/c; there are "):
        log_lines.files_of(tmp_path, ["ingestion/c"])
    with pytest.raises(ConfigurationError, match="there are no logs in "):
        log_lines.files_of(tmp_path / "elsewhere", [])


def test_the_last_lines_of_all_are_in_the_order_of_their_times(tmp_path: Path) -> None:
    a = write(tmp_path, "a.log", line(1, "first"), line(3, "third"), "Traceback", "  more")
    b = write(tmp_path, "b.log", line(0, "gone"), line(2, "second"), line(4, "last"))
    shown = [log_lines.in_words(text) for _, text in log_lines.last_lines({"a": a, "b": b}, 4)]
    assert [text.split()[-1] for text in shown] == [
        "gone",
        "first",
        "second",
        "third",
        "Traceback",
        "more",
        "last",
    ]
    assert len(log_lines.last_lines({"a": a, "b": b}, 1)) == 2
    assert log_lines.last_lines({"a": a, "b": b}, 0) == []


def test_a_line_is_shown_as_a_person_reads_it() -> None:
    assert log_lines.in_words(line(7, "stopped", code=2)) == "00:00:07.123 info    stopped  code=2"
    assert log_lines.in_words("{not json") == "{not json"
    assert log_lines.in_words("a\x1b[31mb\tc") == "a [31mb\tc", "no control characters"


def test_new_lines_are_followed_across_a_rotation(tmp_path: Path) -> None:
    path = write(tmp_path, "a.log", "old")
    stopping = threading.Event()
    seen: list[tuple[str, str]] = []
    follower = threading.Thread(
        target=lambda: seen.extend(log_lines.follow({"a": path}, stopping)), daemon=True
    )
    follower.start()
    with path.open("a", buffering=1) as file:

        def begun() -> bool:
            file.write("is it read?\n")
            return bool(seen)

        wait_until(begun, 20, "it is followed", every_s=0.1)
        file.write("ha")
        file.flush()
        stopping.wait(0.5)
        file.write("lf\nnext\n")
    wait_until(lambda: ("a", "next") in seen, 20, "the appended lines")
    path.rename(tmp_path / "a.log.1")
    path.write_text("of the next run\n")
    wait_until(lambda: seen[-1] == ("a", "of the next run"), 20, "the line of the new file")
    stopping.set()
    follower.join(20)
    assert [text for _, text in seen if text != "is it read?"] == [
        "half",
        "next",
        "of the next run",
    ]
