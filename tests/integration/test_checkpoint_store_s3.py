"""Checkpoints in a store of S3's protocol, on a server of its own."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.adapters.disk.checkpoint_store import stored_replicas
from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.log.timeline import Timeline, timeline_name
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.nightly]

ONE = timeline_name(1, 0)
SERVER = "moto[server]==5.2.5"
"""Needs fifty packages that nothing else here needs: it has an environment of its own."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """HOST:PORT of a server with the bucket ``checkpoints``."""
    folder = tmp_path_factory.mktemp("s3")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    subprocess.run([folder / "venv/bin/pip", "install", "--quiet", SERVER], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    host, _, port = address.partition(":")
    process = subprocess.Popen([folder / "venv/bin/moto_server", "-H", host, "-p", port])
    try:
        wait_until(lambda: _makes_bucket(address), 120, "an answer of the server")
        yield address
    finally:
        process.terminate()
        process.wait()


def _makes_bucket(address: str) -> bool:
    request = urllib.request.Request(
        f"http://{address}/checkpoints",
        method="PUT",
        headers={
            "Authorization": "AWS4-HMAC-SHA256 Credential=k/20260101/us-east-1/s3/aws4_request"
        },
    )
    with contextlib.suppress(OSError), urllib.request.urlopen(request) as answer:
        return bool(answer.status == 200)
    return False


def test_a_replica_goes_on_on_another_machine(
    server: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "k")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "s")
    stored = stored_replicas(
        f"s3://checkpoints/folder?endpoint=http://{server}&region=us-east-1", "p"
    )
    old = ReplicaFolder(tmp_path / "a" / "s.0", stored=stored)
    old.create(ONE)
    old.write(Timeline(name=ONE, start_batch=-1, start_tip=None, floor=-1))
    for batch in range(6):
        for kind, size in (("commits", 10), ("state/0/0", 4_000_000)):
            path = old.directory(ONE) / kind / str(batch)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(bytes([batch]) * size)
        assert old.store(ONE)

    new = ReplicaFolder(tmp_path / "b" / "s.0", stored=stored)
    assert new.newest() == old.newest()
    assert new.last_commit(ONE) == 5
    for path in old.directory(ONE).rglob("*"):
        if path.is_file():
            copied = new.directory(ONE) / path.relative_to(old.directory(ONE))
            assert copied.read_bytes() == path.read_bytes()


@pytest.mark.parametrize(
    ("bucket", "host", "why"),
    [
        ("another", "", "another does not exist"),
        ("checkpoints", "127.0.0.1:1", "NETWORK_CONNECTION"),
    ],
)
def test_a_store_that_is_not_there_says_so(
    server: str, tmp_path: Path, bucket: str, host: str, why: str
) -> None:
    url = f"s3://{bucket}/folder?endpoint=http://{host or server}&region=us-east-1"
    with pytest.raises(Unavailable, match=rf"cannot be read at p/s\.0: .*{why}"):
        ReplicaFolder(tmp_path / "s.0", stored=stored_replicas(url, "p")).newest()
