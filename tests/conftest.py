"""Servers that many tests share, and names that keep the tests apart on them."""

from __future__ import annotations

import gc
import uuid
from collections.abc import Generator, Iterator

import pytest
import structlog

from harness import order, shared_broker
from harness.examples import unhurried
from harness.kafka import broker
from harness.redis import redis_server


def pytest_configure(config: pytest.Config) -> None:
    shared_broker.register(config)
    unhurried()
    _plain_tracebacks()


def _plain_tracebacks() -> None:
    """Configure plain log lines: with colours and all local variables an error of a test costs half
    a second.
    """
    *others, _ = structlog.get_config()["processors"]
    plain = structlog.dev.ConsoleRenderer(exception_formatter=structlog.dev.plain_traceback)
    structlog.configure(processors=[*others, plain])


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep the garbage collector from what stays to the end: modules and thousands of tests. It
    would walk all of them again and again, first while they are collected and then in each test.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """Return the scheduler of tests that are dealt out by files; None: xdist's own."""
    return order.scheduler(config, log) if config.getvalue("dist") == "loadfile" else None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Sort the tests, and mark the properties as not traced: what the unit tests leave
    uncovered shall show, whatever chance finds.
    """
    order.sort(items)
    for item in items:
        if item.path.stem.endswith("_properties"):
            item.add_marker(pytest.mark.no_cover)


@pytest.fixture(scope="session")
def kafka(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the address of a real broker, one for the whole session, all of its processes
    included. Tests that stop a broker start their own.
    """
    address = shared_broker.shared_address(pytestconfig)
    if address is not None:
        yield address
        return
    with broker(tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="session")
def redis_url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Yield the URL of a real Redis, one for the whole session."""
    with redis_server(tmp_path_factory.mktemp("redis")) as url:
        yield url


@pytest.fixture
def topic_prefix() -> str:
    """Return a name that no other test uses, also on a broker that outlives the session. Put it
    before names of topics and pipelines.
    """
    return f"t{uuid.uuid4().hex[:12]}"
