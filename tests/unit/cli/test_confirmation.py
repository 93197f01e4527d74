"""Tests that commands ask before they do what cannot be undone."""

from __future__ import annotations

import pytest
import typer

from anabranch.cli.confirmation import confirm
from anabranch.protocol.errors import ConfigurationError


def answering(monkeypatch: pytest.MonkeyPatch, answer: bool | None) -> list[str]:
    """Simulate a terminal on which a user gives ``answer``, or none. Return the questions."""
    questions: list[str] = []

    def reply(question: str) -> bool:
        questions.append(question)
        if answer is None:
            raise typer.Abort
        return answer

    monkeypatch.setattr(typer, "confirm", reply)
    return questions


def test_a_yes_continues(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = answering(monkeypatch, True)
    confirm("Forget it?", yes=False)
    assert questions == ["Forget it? This cannot be undone."]


@pytest.mark.parametrize("answer", [False, None])
def test_anything_else_is_an_error_that_names_the_option(
    monkeypatch: pytest.MonkeyPatch, answer: bool | None
) -> None:
    answering(monkeypatch, answer)
    with pytest.raises(ConfigurationError, match="--yes"):
        confirm("Forget it?", yes=False)


def test_with_the_option_yes_nothing_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    questions = answering(monkeypatch, False)
    confirm("Forget it?", yes=True)
    assert questions == []
