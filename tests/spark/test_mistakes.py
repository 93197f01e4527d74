"""Mistakes of a new user in SQL and in Python: what ``anabranch check`` prints about each."""

from __future__ import annotations

import subprocess
import sys

import pytest

SQL = {
    "column": "SELECT\n  sensor,\n  max(celcius) AS c\nFROM readings",
    "table": "SELECT * FROM reading",
    "function": "SELECT maxx(celsius) AS m, event_time FROM readings",
    "types": "SELECT sensor FROM readings WHERE celsius AND true",
    "comma": "SELECT sensor max(celsius) FROM readings GROUP BY sensor",
    "ungrouped": (
        "SELECT sensor, max(celsius) AS m, window.end AS event_time FROM readings"
        " GROUP BY window(event_time, '10 seconds')"
    ),
    "endless": "SELECT sensor, max(event_time) AS event_time FROM readings GROUP BY sensor",
    "parameter": "SELECT * FROM readings WHERE celsius > :lowest",
    "untimed": "SELECT sensor FROM readings",
    "chance": "SELECT sensor, rand() AS r, event_time FROM readings",
    "sorted": "SELECT * FROM readings ORDER BY celsius",
    "statement": "CREATE TABLE x (a int)",
}
PYTHON = {
    "py_column": "return readings.select('sensr', 'event_time')",
    "py_attribute": "return readings.where(readings.celcius > 3)",
    "py_name": "return helper(readings)",
    "py_none": "readings.select('sensor')",
    "py_count": "return readings.limit(readings.count())",
    "py_starts": "readings.writeStream.format('noop').start(); return readings",
    "py_java": (
        "readings.writeStream.format('noop').option('checkpointLocation', '/dev/null/x').start()"
    ),
}
SAYS = {
    "column": (
        "sql, line 3, position 7: [UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or"
        " function parameter with name `celcius` cannot be resolved. Did you mean one of the"
        " following? [`celsius`,"
    ),
    "table": (
        "sql, line 1, position 15: [TABLE_OR_VIEW_NOT_FOUND] The table or view `reading` cannot be"
        " found; a query knows the inputs of its stage by name: readings"
    ),
    "function": "sql, line 1, position 8: [UNRESOLVED_ROUTINE] Cannot resolve routine `maxx`.",
    "types": "sql, line 1, position 35: [DATATYPE_MISMATCH.BINARY_OP_DIFF_TYPES]",
    "comma": "sql, line 1, position 18: [PARSE_SYNTAX_ERROR] Syntax error at or near '('.",
    "ungrouped": 'sql: [MISSING_AGGREGATION] The non-aggregating expression "sensor"',
    "endless": "group by window(event_time, '10 seconds') as well",
    "parameter": "unbound parameter: lowest; give it a value in the stage's `parameters`",
    "untimed": "'10 seconds'): SELECT ..., window.end AS event_time",
    "chance": "sql: Rand gives another result at every replica",
    "sorted": "sql: sorts a stream, which has no end",
    "statement": "sql: the statement gives no rows: a stage is one query",
    "py_column": "stages.py line 6: [UNRESOLVED_COLUMN.WITH_SUGGESTION]",
    "py_attribute": "stages.py line 10: [ATTRIBUTE_NOT_SUPPORTED] Attribute `celcius`",
    "py_name": "stages.py line 2: raised NameError: name 'missing' is not defined",
    "py_none": "returned NoneType, not a DataFrame; end it with `return`",
    "py_count": "stages.py line 22: asks for rows, as count()",
    "py_starts": "stages:py_starts: starts a query of its own",
    "py_java": "stages.py line 30: raised ",
}
SHOWS = {
    "column": "\n      max(celcius) AS c\n          ^^^^^^^\n",
    "comma": "\n    SELECT sensor max(celsius) FROM readings GROUP BY sensor\n" + 21 * " " + "^\n",
    "py_name": "\n    return missing\n",
    "py_column": "\n    return readings.select('sensr', 'event_time')\n",
}
HEAD = """\
version: 1
pipeline: mistakes
sources:
  readings: {topics: [readings], record: reading.avsc, event_time: arrival}
stages:
"""
RECORD = (
    '{"type": "record", "name": "reading", "fields": [{"name": "sensor", "type": "string"},'
    ' {"name": "celsius", "type": "double"}]}'
)


@pytest.fixture(scope="module")
def printed(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return what ``check`` prints about one pipeline with all mistakes."""
    folder = tmp_path_factory.mktemp("mistakes")
    text = HEAD
    for name, query in SQL.items():
        indented = query.replace("\n", "\n      ")
        text += f"  {name}:\n    reads: [readings]\n    sql: |\n      {indented}\n"
    for name in PYTHON:
        text += f"  {name}: {{reads: [readings], transform: 'stages:{name}'}}\n"
    text += "outputs:\n"
    for name in (*SQL, *PYTHON):
        text += f"  {name}: {{stage: {name}, corrected: {{topic: {name}.out}}}}\n"
    (folder / "pipeline.yaml").write_text(text)
    (folder / "reading.avsc").write_text(RECORD)
    functions = "".join(f"def {name}(readings):\n    {body}\n\n\n" for name, body in PYTHON.items())
    (folder / "stages.py").write_text(f"def helper(readings):\n    return missing\n\n\n{functions}")
    done = subprocess.run(
        [sys.executable, "-m", "anabranch.operating.check", "pipeline.yaml"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert "Py4J" not in done.stderr, "a stack trace of Java is printed"
    return done.stdout


@pytest.mark.parametrize("stage", [*SQL, *PYTHON])
def test_a_mistake_is_named_with_its_place_and_without_a_plan(printed: str, stage: str) -> None:
    (found,) = (
        each for each in printed.split("error: ") if f": stage {stage}: " in each.splitlines()[0]
    )
    assert SAYS[stage] in found
    assert SHOWS.get(stage, "") in found
    assert found.startswith("pipeline.yaml:"), "it names no line of the file"
    assert len(found) < 600, "it shows the plan"
    assert "SQLSTATE" not in found


def test_the_line_is_that_of_the_stage(printed: str) -> None:
    assert "error: pipeline.yaml:6: stage column: " in printed
    assert "error: pipeline.yaml:13: stage table: " in printed
