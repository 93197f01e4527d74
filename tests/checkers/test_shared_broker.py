"""One broker for all processes of a session, where they need one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from harness import shared_broker
from harness.kafka import ADDRESS_VARIABLE
from harness.shared_broker import SharedBroker, register, shared_address


class Config:
    """What the plugin asks of a pytest configuration."""

    def __init__(self, *args: str, tx: tuple[str, ...] = ("popen", "popen")) -> None:
        self.args = list(args)
        self.registered: list[SharedBroker] = []
        self.pluginmanager = SimpleNamespace(
            register=lambda plugin, _: self.registered.append(plugin)
        )
        self._tx = tx

    def getoption(self, name: str, _: object) -> object:
        return {"tx": self._tx}[name]


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[SharedBroker]:
    """Brokers that were to be started; none is."""
    found: list[SharedBroker] = []
    monkeypatch.delenv(ADDRESS_VARIABLE, raising=False)

    def start(broker: SharedBroker) -> None:
        found.append(broker)

    monkeypatch.setattr(SharedBroker, "start", start)
    return found


def registered(config: Any) -> list[SharedBroker]:
    register(config)
    for each in config.registered:
        each.pytest_unconfigure()
    found: list[SharedBroker] = config.registered
    return found


def test_several_processes_that_need_a_broker_share_one(
    made: list[SharedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(registered(Config("tests/integration"))) == 1
    assert len(registered(Config("tests/unit", "tests/spark/test_up.py::test_a"))) == 1
    assert registered(Config("tests/unit", "tests/properties")) == []
    assert registered(Config("tests/integration", tx=())) == []
    monkeypatch.setenv(ADDRESS_VARIABLE, "elsewhere:9092")
    assert registered(Config("tests/integration")) == [], "all use the one that is named"


def test_each_process_is_told_the_same_address(
    made: list[SharedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    config: Any = Config("tests/integration")
    register(config)
    (broker,) = config.registered
    nodes = [SimpleNamespace(workerinput={}) for _ in range(2)]
    for node in nodes:
        broker.pytest_configure_node(node)
    broker.pytest_unconfigure()
    assert made[0] is broker
    monkeypatch.setattr(shared_broker, "broker_answers", lambda *_: True)
    address, same = (shared_address(node) for node in nodes)  # type: ignore[arg-type]
    assert address == same is not None
    assert shared_address(config) is None, "without processes each session has its own"
