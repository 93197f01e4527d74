"""Questions and answers between the planner and Spark's readers, over a real socket."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.spark.plan_socket import PlanClient, PlanServer
from anabranch.adapters.system.scratch import Scratch


class Answers:
    """What the server was asked; answers with a count, or raises."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.answer: dict[str, Any] | None = {"sequence": 1}

    def __call__(self, query: str, name: str, start: dict[str, Any]) -> dict[str, Any] | None:
        self.asked.append((query, name, start))
        if self.error is not None:
            raise self.error
        return self.answer


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def server(answers: Answers, tmp_path: Path) -> Iterator[PlanServer]:
    scratch = Scratch(tmp_path)
    server = PlanServer(answers, scratch.socket_path("plans"))
    yield server
    server.close()
    scratch.close()


def test_a_question_gets_the_planners_answer(server: PlanServer, answers: Answers) -> None:
    client = PlanClient(server.path)
    assert client.ask("1-0", "a", {"bucket": 3}) == {"sequence": 1}
    answers.answer = None
    assert client.ask("1-1", "b", {"bucket": 4}) is None
    assert answers.asked == [("1-0", "a", {"bucket": 3}), ("1-1", "b", {"bucket": 4})]


def test_answers_may_be_long(server: PlanServer, answers: Answers) -> None:
    answers.answer = {"taken": [[bucket, "0", [["x" * 100]]] for bucket in range(20_000)]}
    assert PlanClient(server.path).ask("q", "a", {}) == answers.answer


def test_readers_ask_side_by_side(server: PlanServer) -> None:
    clients = [PlanClient(server.path) for _ in range(4)]
    found: list[object] = []
    threads = [threading.Thread(target=lambda c=c: found.extend(c.ask("q", "a", {}) for _ in range(20))) for c in clients]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [{"sequence": 1}] * 80


def test_an_error_of_the_planner_reaches_the_reader_and_is_kept(server: PlanServer, answers: Answers) -> None:
    """The reader's query dies of a closed connection: the stage must be able to say why."""
    assert not server.error
    answers.error = KeyError("plan")
    with pytest.raises(OSError, match="closed"):
        PlanClient(server.path).ask("q", "a", {})
    assert isinstance(server.error, KeyError)
    answers.error = None
    assert PlanClient(server.path).ask("q", "a", {}) == {"sequence": 1}


def test_a_client_of_a_stage_that_is_gone_fails(server: PlanServer) -> None:
    client = PlanClient(server.path)
    assert client.ask("q", "a", {}) is not None
    server.close()
    server.close()
    assert not Path(server.path).exists()
    with pytest.raises(OSError, match=r"."):
        PlanClient(server.path).ask("q", "a", {})
