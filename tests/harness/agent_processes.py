"""Agents as processes on a real broker, in a trading world whose other parts run in the test's own
process.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, Self

import pytest

from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.key_files import VARIABLE
from anabranch.adapters.system.clock import SystemClock
from harness.service_processes import ModuleProcess, service
from harness.trading_world import RUSH, TradingWorld
from harness.waiting import wait_until

DEADLINE_S: Final = 120


class AgentProcesses(TradingWorld):
    """Agent processes of north and south."""

    @classmethod
    def on(cls, kafka: str, topic_prefix: str, folder: Path) -> Self:
        """With names of its own on the broker."""
        clock = SystemClock()
        return cls(
            KafkaEventLog(kafka),
            clock,
            folder,
            lambda: clock.sleep_ms(20),
            federation=topic_prefix,
            prefix=f"{topic_prefix}-",
            answer_within="10s",
        )

    @contextmanager
    def in_a_rush(
        self, kafka: str, monkeypatch: pytest.MonkeyPatch, who: str, point: str
    ) -> Iterator[None]:
        """All agents; ``who``, if anybody, is killed at ``point`` and started again."""
        with ExitStack() as running:
            for node in self.nodes.values():
                running.enter_context(node.beating())
            for name in self.participants:
                if name != who:
                    running.enter_context(self._process(name, monkeypatch, kafka))
            self.rate = RUSH
            if who:
                with self._process(who, monkeypatch, kafka, point) as killed:
                    self.wait(lambda: killed.process.poll() is not None, "it is killed")
                    killed.wait_killed()
                running.enter_context(self._process(who, monkeypatch, kafka))
            yield

    def _process(
        self, participant: str, monkeypatch: pytest.MonkeyPatch, kafka: str, crash_point: str = ""
    ) -> ModuleProcess:
        monkeypatch.setenv(f"{VARIABLE}_FILE", str(self.folder / f"{participant}.key"))
        file, state = self.folder / f"{participant}.yaml", self.folder / participant
        return service("agent", participant, file, kafka, state, crash_point=crash_point)

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Run rounds until ``holds`` returns True."""

        def is_seen() -> bool:
            self.round()
            return holds()

        try:
            wait_until(is_seen, DEADLINE_S, what)
        except AssertionError as error:
            logs = [self.folder / name / "agent.log" for name in self.participants]
            texts = [log.read_text()[-2_000:] for log in logs if log.exists()]
            raise AssertionError("\n".join([str(error), self.seen(), *texts])) from error
