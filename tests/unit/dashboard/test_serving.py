"""When a token is needed, and which broker is meant."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path
from urllib.request import urlopen

import pytest

from anabranch.dashboard.serving import address_of, connection, serve, token_for
from anabranch.local import state_file
from anabranch.local.state_file import Deployment
from anabranch.pipeline.file import load
from anabranch.protocol.errors import ConfigurationError
from harness.page_scenes import TOLL_ROAD
from harness.waiting import wait_until


@pytest.mark.parametrize("host", ["127.0.0.1", "127.8.9.1", "::1", "localhost"])
def test_on_loopback_no_token_is_needed_but_one_may_be_given(host: str) -> None:
    assert token_for(host, None) is None
    assert token_for(host, "") is None
    assert token_for(host, "mine") == "mine"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.1", "pipelines.example"])
def test_beyond_loopback_there_is_a_token_that_nobody_guesses(host: str) -> None:
    first, second = token_for(host, None), token_for(host, "")
    assert first is not None
    assert second is not None
    assert len(first) >= 32
    assert first != second
    assert token_for(host, "mine") == "mine"


def test_the_broker_is_the_one_given_or_that_of_the_deployment_of_now(tmp_path: Path) -> None:
    assert address_of(tmp_path, "broker:9092")() == "broker:9092"
    current = address_of(tmp_path, None)
    with pytest.raises(ConfigurationError, match="nothing runs yet"):
        connection(current)()
    for address in ("127.0.0.1:1", "127.0.0.1:2"):
        state_file.write(tmp_path, Deployment(1, "p", address, None))
        assert connection(current)()[0] == address


def test_the_page_is_served_until_it_is_told_to_end_and_closes_its_port(tmp_path: Path) -> None:
    lines: list[str] = []
    stopping = threading.Event()

    def run() -> None:
        serve(
            load(TOLL_ROAD),
            connection(address_of(tmp_path, None)),
            state_dir=tmp_path,
            processes={},
            host="127.0.0.1",
            port=0,
            token=None,
            say=lines.append,
            stopping=stopping,
        )

    thread = threading.Thread(target=run)
    thread.start()
    wait_until(lambda: lines, 30, "its address")
    address = lines[0].split()[-1]
    wait_until(
        lambda: json.loads(urlopen(f"{address}api/page").read())["contact"].startswith(
            "nothing runs"
        ),
        30,
        "why nothing is shown",
    )
    stopping.set()
    thread.join(60)
    assert not thread.is_alive()
    with pytest.raises(OSError, match="refused"):
        urlopen(address)


def test_an_address_that_is_taken_is_a_mistake_of_the_caller(tmp_path: Path) -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as taken,
        pytest.raises(ConfigurationError, match="--port"),
    ):
        serve(
            load(TOLL_ROAD),
            connection(address_of(tmp_path, None)),
            state_dir=tmp_path,
            processes={},
            host="127.0.0.1",
            port=taken.getsockname()[1],
            token=None,
            say=print,
            stopping=threading.Event(),
        )
