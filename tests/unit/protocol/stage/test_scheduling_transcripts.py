"""Histories of which replica corrects when, for people to read."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.protocol.stage.scheduling import GateReason
from harness.correcting_stage import TICK_MS, CorrectingStage
from harness.transcripts import check_transcript

FILES = sorted((Path(__file__).parent / "correction_order").glob("*.txt"))


class Theatre:
    """Plays commands and tells what changes: the gate of each replica."""

    def __init__(self) -> None:
        self._stage = CorrectingStage(1)
        self._began_ms = 0
        self._shown: dict[str, GateReason] = {}

    def play(self, commands: list[str]) -> list[str]:
        return [line for command in commands for line in self._play(command)]

    def _play(self, command: str) -> list[str]:
        stage = self._stage
        match command.split():
            case ["stage", replicas]:
                self._stage = CorrectingStage(int(replicas))
                self._began_ms, self._shown = self._stage.now_ms, {}
            case ["pass", duration_ms]:
                return [line for _ in range(int(duration_ms) // TICK_MS) for line in self._tick()]
            case [("want" | "done") as word, name]:
                stage.want(name, word == "want")
            case ["kill", name]:
                stage.kill(name)
            case ["start", name]:
                stage.start(name)
            case [("stop" | "go") as word, name]:
                stage.stop(name, runs=word == "go")
            case ["stick", name]:
                stage.replicas[name].stuck = True
            case ["deafen", name]:
                stage.replicas[name].deaf = True
            case _:
                return [f"unknown command: {command}"]
        return []

    def _tick(self) -> list[str]:
        self._stage.tick()
        at = f"{(self._stage.now_ms - self._began_ms) / 1000:6.1f} s"
        lines = []
        for name, why in self._stage.why().items():
            reason = GateReason.OWN_TURN if why is GateReason.GOES_ON else why
            if self._shown.get(name, GateReason.NOTHING_WANTED) is not reason:
                lines.append(
                    f"{at}  {name}: {'open' if name in self._stage.open() else 'closed'},"
                    f" {reason.name.lower().replace('_', ' ')}"
                )
            self._shown[name] = reason
        return lines


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_transcript(path: Path) -> None:
    check_transcript(path, Theatre().play)


def test_every_row_of_the_gates_table_is_reached() -> None:
    reached = {
        word
        for path in FILES
        for word in GateReason
        if f", {word.name.lower().replace('_', ' ')}" in path.read_text()
    }
    assert reached == set(GateReason) - {GateReason.GOES_ON}, "which goes on in silence"
