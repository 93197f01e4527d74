"""Downloads of jars from a fake repository; ``tests/integration`` uses a real one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.adapters.system import maven
from anabranch.adapters.system.progress import ProgressCall
from anabranch.protocol.errors import ConfigurationError


@dataclass
class Dependency:
    """Fake dependency of a requested artefact: itself, and a ``shared`` one of its own version."""

    groupId: str  # noqa: N815 - jgo's names
    artifactId: str  # noqa: N815
    version: str
    scope: str = "compile"
    is_there: bool = True

    @property
    def artifact(self) -> Any:
        return self

    def resolve(self) -> str:
        if not self.is_there:
            raise OSError("no route to host")
        return f"/{self.artifactId}-{self.version}.jar"


class Context:
    """Fake of ``jgo.maven.MavenContext``."""

    is_there = True

    def __init__(self, **_: object) -> None:
        self.remote_repos: dict[str, str] = {}
        self.resolver = SimpleNamespace(resolve=self._resolve)

    def create_dependency(self, coordinate: Any) -> Dependency:
        return Dependency(
            coordinate.groupId, coordinate.artifactId, coordinate.version, is_there=self.is_there
        )

    def _resolve(self, roots: Sequence[Dependency]) -> tuple[list[Dependency], list[Dependency]]:
        version = roots[0].version
        return list(roots), [
            Dependency("o", "shared", version),
            Dependency("o", "tests", version, scope="test"),
        ]


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> type[Context]:
    monkeypatch.setattr("jgo.maven.MavenContext", Context)
    monkeypatch.setattr(Context, "is_there", True)
    return Context


def test_what_the_first_group_brings_stays_and_each_jar_is_counted(
    tmp_path: Path, context: type[Context]
) -> None:
    steps: list[ProgressCall] = []
    jars = maven.fetched(
        [["o:first:1"], ["o:second:2"]], tmp_path, lambda *step: steps.append(ProgressCall(*step))
    )
    assert {name: str(path) for (_, name), path in jars.items()} == {
        "first": "/first-1.jar",
        "shared": "/shared-1.jar",
        "second": "/second-2.jar",
    }
    assert steps == [ProgressCall("jars", done, 3) for done in range(4)]


def test_a_repository_that_does_not_answer_is_named(
    tmp_path: Path, context: type[Context], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "is_there", False)
    with pytest.raises(ConfigurationError, match=r"no route to host.*name a mirror"):
        maven.fetched([["o:first:1"]], tmp_path)
