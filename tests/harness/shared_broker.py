"""A broker that all processes of a test session share.

A broker takes some three seconds of processor time to start, and more until its Java is warm: six
test processes with one each would spend more on brokers than some folders spend on their tests. The
reporting process chooses the address before the test processes start, and starts the broker while
they collect; a test that needs it waits until it answers.
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from pathlib import Path
from typing import Any, Final

import pytest

from anabranch.adapters.kafka.admin import broker_answers
from anabranch.local.embedded_kafka import START_TIMEOUT_S, EmbeddedKafka
from harness.kafka import ADDRESS_VARIABLE
from harness.waiting import wait_until

FOLDERS: Final = ("conformance", "integration", "spark")
"""Folders below ``tests`` most of whose files use the fixture ``kafka``."""
_INPUT: Final = "kafka"
"""Key of the address in what a test process is given."""
_ANSWER_S: Final = 1.0


class SharedBroker(threading.Thread):
    """The broker, and the plugin that gives its address to the test processes.

    The thread lives as long as the broker: a broker ends with the thread that started it.
    """

    def __init__(self) -> None:
        super().__init__(name="shared broker", daemon=True)
        self._folder = Path(tempfile.mkdtemp(prefix="anabranch-tests-kafka-"))
        self._broker = EmbeddedKafka(self._folder)
        self._address = self._broker.reserve()
        self._stopping = threading.Event()
        self._error: Exception | None = None

    def run(self) -> None:
        """Keep the broker until ``pytest_unconfigure``."""
        try:
            self._broker.start()
            self._stopping.wait()
        except Exception as error:  # noqa: BLE001 - told at the end of the run
            self._error = error
        finally:
            self._broker.stop()

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        """Tell a test process the address. The first one starts the broker."""
        node.workerinput[_INPUT] = self._address
        if self.ident is None:
            self.start()

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Tell why the broker did not start; the tests tell only that it did not answer."""
        if self._error is not None:
            terminalreporter.write_line(f"the shared broker: {self._error}", red=True)

    def pytest_unconfigure(self) -> None:
        """End the broker, and remove its folder."""
        self._stopping.set()
        if self.ident is not None:
            self.join()
        shutil.rmtree(self._folder, ignore_errors=True)


def register(config: pytest.Config) -> None:
    """Share a broker in this session, if several processes run tests that need one."""
    folders = {part for argument in config.args for part in Path(argument.split("::")[0]).parts}
    if (
        config.getoption("tx", None)
        and not hasattr(config, "workerinput")
        and not os.environ.get(ADDRESS_VARIABLE)
        and folders.intersection(FOLDERS)
    ):
        config.pluginmanager.register(SharedBroker(), "shared broker")


def shared_address(config: pytest.Config) -> str | None:
    """Return the address of the session's broker once it answers; None: it has none.

    Raises:
        AssertionError: the broker does not answer in time; the end of the run tells why.
    """
    address: str | None = getattr(config, "workerinput", {}).get(_INPUT)
    if address is not None:
        wait_until(
            lambda: broker_answers(address, _ANSWER_S), START_TIMEOUT_S, f"a broker at {address}"
        )
    return address
