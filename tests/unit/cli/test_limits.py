"""``anabranch limits`` prints protocol/limits.py: all of it, with the values in force."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.protocol import limits


def test_every_limit_is_printed_with_its_value_and_a_text() -> None:
    every = json.loads(CliRunner().invoke(app, ["limits", "--json"]).output)
    declared = {name: value for name, value in vars(limits).items() if name.isupper()}
    assert {each["name"]: each["value"] for each in every} | {"MIB": limits.MIB} == declared
    assert all(each["text"] for each in every)


def test_only_limits_with_all_of_the_words_are_listed() -> None:
    lines = CliRunner().invoke(app, ["limits", "replicas", "stage"]).output.splitlines()
    (found,) = [line for line in lines if line.startswith("REPLICAS_MAX")]
    assert found.split()[1] == "16"
    assert all("replica" in line.lower() and "stage" in line.lower() for line in lines[1:])
