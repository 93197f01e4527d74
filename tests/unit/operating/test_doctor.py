"""The doctor's checks."""

from __future__ import annotations

import socket
import struct
import threading
from pathlib import Path

import pytest

from anabranch.adapters.spark import bare_files, class_archive
from anabranch.operating import doctor
from anabranch.protocol.errors import ConfigurationError
from harness.missing_java import hide_java


def _answer(*keys: tuple[int, int, int]) -> bytes:
    return struct.pack(">ihi", 1, 0, len(keys)) + b"".join(
        struct.pack(">hhh", *key) for key in keys
    )


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        (_answer((0, 0, 12), (26, 0, 5), (18, 0, 4)), 5),
        (_answer((26, 0, 3)), 3),
        (_answer((0, 0, 12)), -1),
        (b"", -1),
        (_answer((26, 0, 5))[:-3], -1),
        (struct.pack(">ihi", 1, 0, 2**30), -1),
    ],
)
def test_end_txn_version(answer: bytes, version: int) -> None:
    assert doctor.end_txn_version(answer) == version


def test_something_that_is_no_broker_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_CONNECT_S", 60.0)
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(OSError, match="does not answer as a Kafka broker"):
            doctor.api_versions(f"127.0.0.1:{port}")
        thread.join(10)


@pytest.mark.parametrize("address", ["", "broker", "broker:", ":9092", "broker:port"])
def test_a_wrong_address(address: str) -> None:
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        doctor.api_versions(address)


def test_memory_available() -> None:
    assert doctor.memory_available_mib("MemTotal:  100 kB\nMemAvailable:    4194304 kB\n") == 4_096
    assert doctor.memory_available_mib("") == 0


def test_every_bad_check_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hide_java(monkeypatch)
    monkeypatch.setattr(doctor, "MEMORY_MIB_MIN", 10**9)
    monkeypatch.setattr(doctor, "DISK_MIB_MIN", 10**9)
    monkeypatch.setattr(doctor, "_broker_version", lambda _: doctor.Check("Broker", True, "4"))
    monkeypatch.setattr(doctor, "_clock_skew", lambda _: doctor.Check("Clock", True, "0"))
    checks = {check.name: check for check in doctor.examine("b:1", tmp_path / "not" / "there")}
    assert {name for name, check in checks.items() if not check.good} == {"Java", "Memory", "Disk"}
    assert "openjdk" in checks["Java"].found
    assert checks["Memory"].remedy
    assert checks["Disk"].remedy


def test_without_an_archive_of_classes_all_is_well_but_slow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path))
    before = next(check for check in doctor.examine("b", tmp_path) if check.name == "Java classes")
    assert before.good
    assert "anabranch classes" in before.remedy
    class_archive.place().folder.mkdir()
    class_archive.place().archive.touch()
    half = next(check for check in doctor.examine("b", tmp_path) if check.name == "Java classes")
    assert half.good
    assert "starts a process for each file" in half.found
    monkeypatch.setattr(bare_files, "jar", lambda: tmp_path / "files.jar")
    class_archive.place().folder.mkdir()
    class_archive.place().archive.touch()
    after = next(check for check in doctor.examine("b", tmp_path) if check.name == "Java classes")
    assert (after.good, after.remedy) == (True, "")


def test_where_no_broker_answers_its_clock_is_not_asked_for(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    found = {check.name: check for check in doctor.examine(address, tmp_path)}
    assert not found["Broker"].good
    assert found["Broker"].found.startswith(f"no Kafka broker answers at {address} within 3 s (")
    assert "Clock" not in found
