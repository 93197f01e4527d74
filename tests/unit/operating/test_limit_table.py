"""The table of limits says what is in force."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import anabranch
from anabranch.cli import app
from anabranch.operating.limit_table import Limit, limits, limits_in, unit_of
from anabranch.pipeline import durations
from anabranch.protocol import limits as protocol_limits
from anabranch.runtime import service

PACKAGE = Path(anabranch.__file__).parent
DOCUMENTED = re.compile(
    r'^_?([A-Z][A-Z0-9_]*)(?:: \w+)? = (?:0x[\da-f_]+|\d+e-?\d+|[-+*/<()\d._ ]|[A-Z]+)+\n"""',
    re.MULTILINE,
)
"""A number, or a calculation with numbers, that is given a name and a text."""


def documented(module: str, source: str) -> set[tuple[str, str]]:
    return {(module, name) for name in DOCUMENTED.findall(source)}


def test_every_documented_number_of_the_package_is_there() -> None:
    found = [(each.module, each.name) for each in limits()]
    assert len(found) > 250
    assert len(set(found)) == len(found)
    assert set(found) == {
        of_module
        for path in PACKAGE.rglob("*.py")
        for of_module in documented(
            ".".join(path.relative_to(PACKAGE).with_suffix("").parts), path.read_text()
        )
    }


def test_a_limit_that_the_table_could_not_read_is_found() -> None:
    source = '''
APART_LEAST_MS: Final = 400
"""Without a bound in its name."""
_KEPT = 2 * SOME_BYTES_MAX
"""Neither annotated nor of a number that is known."""
MISSING: Final = object()
"""No number."""
SILENT_MAX: Final = 3
'''
    assert documented("a", source) == {("a", "APART_LEAST_MS"), ("a", "KEPT")}
    assert [each.name for each in limits_in("a", source)[0]] == ["APART_LEAST_MS"]


def test_every_limit_of_the_protocol_has_its_value() -> None:
    found = {each.name: each.value for each in limits() if each.module == "protocol.limits"}
    declared = {name: value for name, value in vars(protocol_limits).items() if name.isupper()}
    assert found | {"MIB": protocol_limits.MIB} == declared


def test_a_limit_beside_what_it_bounds_is_there() -> None:
    found = {(each.module, each.name): each.value for each in limits()}
    assert found["pipeline.durations", "DURATION_MS_MAX"] == durations.DURATION_MS_MAX
    assert found["runtime.service", "STOP_SECONDS_MAX"] == service.STOP_SECONDS_MAX


def test_only_numbers_that_say_why_are_limits() -> None:
    source = '''
from anabranch.c import KIB, MIB as LARGE, other
from elsewhere import MIB
A_BYTES_MAX: Final = 4 * KIB + 1
"""More ``bytes``
than fit."""
SILENT_MAX: Final = 3
PAUSE_MS: Final = LARGE // 2
"""Until the next."""
_HALF_MIN: Final = A_BYTES_MAX // 2
"""Of it."""
TEXT_MAX: Final = "x"
"""No number."""
FAR: Final = MIB
"""Of another package."""
'''
    others = {"anabranch.c": {"KIB": 1024, "MIB": 10}}
    found, values = limits_in("anabranch.a.b", source, lambda module: others[module])
    assert found == [
        Limit("A_BYTES_MAX", 4097, "bytes", "a.b", "More `bytes` than fit."),
        Limit("PAUSE_MS", 5, "ms", "a.b", "Until the next."),
        Limit("HALF_MIN", 2048, "", "a.b", "Of it."),
    ]
    assert values == {
        "KIB": 1024,
        "LARGE": 10,
        "A_BYTES_MAX": 4097,
        "SILENT_MAX": 3,
        "PAUSE_MS": 5,
        "_HALF_MIN": 2048,
    }


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
        "name": "RECORD_DEPTH_MAX",
        "value": protocol_limits.RECORD_DEPTH_MAX,
        "unit": "",
        "module": "protocol.limits",
        "text": limits()[0].text,
    }
