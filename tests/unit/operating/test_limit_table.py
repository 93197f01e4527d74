"""The table of limits says what is in force."""

from __future__ import annotations

import json

import pytest
from typer.testing import CliRunner

from anabranch.cli import app
from anabranch.operating.limit_table import Limit, limits, limits_in, unit_of
from anabranch.pipeline import durations
from anabranch.protocol import limits as protocol_limits
from anabranch.runtime import service

INSIDE = {"MIB"}
"""Of ``protocol.limits``, no limits."""


def test_every_limit_of_the_protocol_is_there_with_its_value() -> None:
    found = {each.name: each for each in limits() if each.module == "protocol.limits"}
    declared = {name: value for name, value in vars(protocol_limits).items() if name.isupper()}
    assert {name: each.value for name, each in found.items()} == {
        name: value for name, value in declared.items() if name not in INSIDE
    }
    assert all(each.text for each in found.values())


def test_a_limit_beside_what_it_bounds_is_there() -> None:
    found = {(each.module, each.name): each.value for each in limits()}
    assert found["pipeline.durations", "DURATION_MS_MAX"] == durations.DURATION_MS_MAX
    assert found["runtime.service", "STOP_SECONDS_MAX"] == service.STOP_SECONDS_MAX


def test_only_bounds_that_say_why_are_limits() -> None:
    source = '''
A_BYTES_MAX: Final = 4 * KIB + 1
"""More ``bytes``
than fit."""
SILENT_MAX: Final = 3
PAUSE_MS: Final = 5
"""No bound."""
_HALF_MIN: Final = A_BYTES_MAX // 2
"""Of it."""
TEXT_MAX: Final = "x"
"""No number."""
'''
    found, values = limits_in("anabranch.a.b", source, {"KIB": 1024})
    assert found == [
        Limit("A_BYTES_MAX", 4097, "bytes", "a.b", "More `bytes` than fit."),
        Limit("HALF_MIN", 2048, "", "a.b", "Of it."),
    ]
    assert values == {
        "KIB": 1024,
        "A_BYTES_MAX": 4097,
        "SILENT_MAX": 3,
        "PAUSE_MS": 5,
        "_HALF_MIN": 2048,
    }
    assert [each.name for each in limits_in("anabranch.protocol.limits", source)[0]] == ["PAUSE_MS"]


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("RECORD_BYTES_MAX", 2 * 1024**2, "2 MiB"),
        ("RECORD_BYTES_MAX", 3 * 1024, "3 KiB"),
        ("RECORD_BYTES_MAX", 1_025, "1 025 bytes"),
        ("TRIM_READER_MS", 86_400_000, "1 d"),
        ("WAIT_MS", 1_500, "1 500 ms"),
        ("STEP_SECONDS_MAX", 300.0, "5 min"),
        ("STEP_SECONDS_MAX", 0.5, "0.5 s"),
        ("ALARMS_PER_PAIR_MAX", 100, "100 alarms"),
        ("ROWS_PER_S_MAX", 1_000, "1 000 rows/s"),
        ("DEPTH_MAX", 16, "16"),
        ("FLOAT_MAX", 3.5e38, "3.5e+38"),
        ("MICROS_MIN", -62_000, "-62 000"),
    ],
)
def test_people_see_value_and_unit(name: str, value: float, shown: str) -> None:
    assert Limit(name, value, unit_of(name), "m", "t").shown() == shown


def test_the_command_prints_them_whole_and_as_json() -> None:
    lines = CliRunner().invoke(app, ["limits", "LIVE", "rows"]).output.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [
        each.name
        for each in limits()
        if "live" in str(each).lower() and "rows" in str(each).lower()
    ]
    assert any(line.startswith("UNDO_ROWS_MAX") and "1 000 000 rows" in line for line in lines)
    every = json.loads(CliRunner().invoke(app, ["limits", "--json"]).output)
    assert [each["name"] for each in every] == [each.name for each in limits()]
    assert every[0] == {
        "name": "RECORD_BYTES_MAX",
        "value": protocol_limits.RECORD_BYTES_MAX,
        "unit": "bytes",
        "module": "protocol.limits",
        "text": limits()[0].text,
    }
