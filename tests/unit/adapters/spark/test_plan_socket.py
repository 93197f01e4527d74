"""Questions and answers between the planner and Spark's readers, over a real socket."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from anabranch.adapters.spark.plan_socket import PlanClient, PlanServer
from anabranch.adapters.system.scratch import Scratch


class Answers:
    """Planner that notes its requests and answers with a count, or raises."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        self.error: Exception | None = None
        self.answer: dict[str, Any] | None = {"sequence": 1, "bucket": 4}
        self.connections: list[object] = []
        self.looked_up: list[str] = []
        self.watermarks: list[tuple[str, int]] = []

    def __call__(
        self, query: str, name: str, start: dict[str, Any], connection: object
    ) -> dict[str, Any] | None:
        self.requests.append((query, name, start))
        self.connections.append(connection)
        if self.error is not None:
            raise self.error
        return self.answer

    def watermark_of(self, query: str) -> Callable[[int], None]:
        self.looked_up.append(query)
        return lambda bucket: self.watermarks.append((query, bucket))


@pytest.fixture
def answers() -> Answers:
    return Answers()


@pytest.fixture
def server(answers: Answers, tmp_path: Path) -> Iterator[PlanServer]:
    scratch = Scratch(tmp_path)
    server = PlanServer(answers, answers.watermark_of, scratch.socket_path("plans"))
    yield server
    server.close()
    scratch.close()


def test_a_question_gets_the_planners_answer(server: PlanServer, answers: Answers) -> None:
    client = PlanClient(server.path)
    assert client.ask("1-0", "a", {"bucket": 3}) == {"sequence": 1, "bucket": 4}
    answers.answer = None
    assert client.ask("1-1", "b", {"bucket": 4}) is None
    assert answers.requests == [("1-0", "a", {"bucket": 3}), ("1-1", "b", {"bucket": 4})]


def test_each_client_is_told_apart_by_its_connection(server: PlanServer, answers: Answers) -> None:
    """An input that a function uses twice has two readers, and both give the same names."""
    one, other = PlanClient(server.path), PlanClient(server.path)
    for client in (one, other, one, other):
        client.ask("1-0", "a", {"bucket": 3})
    first, second, *again = answers.connections
    assert first is not second
    assert again == [first, second]


def test_the_watermark_is_set_before_a_plan_goes_out(server: PlanServer, answers: Answers) -> None:
    client = PlanClient(server.path)
    for bucket in (None, 4, None, 4, 9):
        answers.answer = None if bucket is None else {"bucket": bucket}
        client.ask("1-0", "a", {})
        assert answers.watermarks[-1:] in ([], [("1-0", bucket or 4)])
    assert answers.watermarks == [("1-0", 4), ("1-0", 4), ("1-0", 9)]
    assert answers.looked_up == ["1-0"], "once in a run of the query"


def test_a_query_that_runs_again_has_another_watermark(
    server: PlanServer, answers: Answers
) -> None:
    for _ in range(2):
        PlanClient(server.path).ask("1-0", "a", {})
    assert answers.looked_up == ["1-0", "1-0"]


def test_a_plan_whose_watermark_cannot_be_set_does_not_go_out(
    server: PlanServer, answers: Answers, monkeypatch: pytest.MonkeyPatch
) -> None:
    running: dict[str, Callable[[int], None]] = {}
    monkeypatch.setattr(server._server, "watermark_of", running.__getitem__)
    with pytest.raises(OSError, match="closed"):
        PlanClient(server.path).ask("1-0", "a", {})
    assert isinstance(server.errors["1-0"], KeyError)


def test_answers_may_be_long(server: PlanServer, answers: Answers) -> None:
    answers.answer = {
        "bucket": 1,
        "taken": [[bucket, "0", [["x" * 100]]] for bucket in range(20_000)],
    }
    assert PlanClient(server.path).ask("q", "a", {}) == answers.answer


def test_readers_ask_side_by_side(server: PlanServer) -> None:
    clients = [PlanClient(server.path) for _ in range(4)]
    found: list[object] = []
    threads = [
        threading.Thread(target=lambda c=c: found.extend(c.ask("q", "a", {}) for _ in range(20)))
        for c in clients
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert found == [{"sequence": 1, "bucket": 4}] * 80


def test_an_error_of_the_planner_closes_the_connection_and_is_kept(
    server: PlanServer, answers: Answers
) -> None:
    """The reader's query dies of a closed connection: the stage must be able to say why."""
    assert not server.errors
    answers.error = KeyError("plan")
    with pytest.raises(OSError, match="closed"):
        PlanClient(server.path).ask("q", "a", {})
    answers.error = None
    assert PlanClient(server.path).ask("q", "a", {}) == {"sequence": 1, "bucket": 4}


def test_a_client_of_a_stage_that_is_gone_fails(server: PlanServer) -> None:
    client = PlanClient(server.path)
    assert client.ask("q", "a", {}) is not None
    server.close()
    server.close()
    assert not Path(server.path).exists()
    with pytest.raises(OSError, match=r"."):
        PlanClient(server.path).ask("q", "a", {})
