"""The command ``acls``: what it prints, three ways."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.protocol.errors import ConfigurationError
from unit.pipeline.test_clusters import loaded

FILE = str(Path(__file__).parents[2] / "security" / "pipeline.yaml")


def run(*words: str) -> str:
    done = CliRunner().invoke(app, ["acls", "-f", FILE, *words], catch_exceptions=False)
    assert done.exit_code == 0
    return done.stdout


def test_a_table_for_people() -> None:
    lines = run().splitlines()
    assert lines[0] == "secure.ingestion.reports"
    assert lines[1].split() == ["topic", "secure-in.reports", "Read", "DescribeConfigs", "input"]
    assert any(line.split()[:2] == ["group", "secure.consumer.out.*"] for line in lines)


def test_json_and_commands_say_the_same() -> None:
    rights = json.loads(run("--json", "--principal-prefix", "p-"))
    commanded = set()
    for line in run("--commands", "--principal-prefix", "p-").splitlines()[2:]:
        words = shlex.split(line)
        assert words[:6] == [
            "kafka-acls.sh",
            "--bootstrap-server",
            "$BROKERS",
            "--command-config",
            "$ADMIN_CONFIG",
            "--add",
        ]
        who = words[words.index("--allow-principal") + 1].removeprefix("User:")
        resource = next(
            kind for kind in ("topic", "group", "transactional-id") if f"--{kind}" in words
        )
        name, pattern = (
            words[words.index(f"--{resource}") + 1],
            words[words.index("--resource-pattern-type") + 1],
        )
        operations = [words[place + 1] for place, word in enumerate(words) if word == "--operation"]
        commanded |= {
            (who, resource, name, pattern == "prefixed", operation) for operation in operations
        }
    assert commanded == {
        (r["principal"], r["resource"], r["name"], r["prefixed"], r["operation"]) for r in rights
    }


@pytest.mark.parametrize(
    "words",
    [["--json", "--commands"], ["--principal-prefix", "a b"], ["--principal-prefix", "$(x)"]],
)
def test_mistakes(words: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        run(*words)


def test_what_another_owner_grants_is_told_apart(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "FILE", str(tmp_path / "billing.yaml"))
    table = run().splitlines()
    at = table.index("billing.processing.billing.0, on cluster north")
    assert not any(", on cluster" in line for line in table[:at])
    assert "billing.operator, on cluster north" in table[at:]
    assert "north.speeds" not in run("--commands")
    theirs = run("--commands", "--cluster", "north")
    assert "--topic north.speeds.boundaries" in theirs
    assert "billing.tolls" not in theirs
    assert {each["cluster"] for each in json.loads(run("--json"))} == {"", "north"}
    with pytest.raises(ConfigurationError, match="--cluster nroth: did you mean 'north'"):
        run("--cluster", "nroth")
