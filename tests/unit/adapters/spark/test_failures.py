"""Tests of the text by which the author of a function learns why the query failed."""

from __future__ import annotations

import pytest

from anabranch.adapters.spark.failures import cause_of
from anabranch.process.logging_setup import short
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    Fenced,
    StageFunctionError,
    Unavailable,
)

TASK = "org.apache.spark.SparkException: Task failed: anabranch.protocol.errors."


def test_what_the_process_itself_met_is_the_cause() -> None:
    error = Exception("spark")
    fenced = Fenced("gone")
    odd = ValueError("odd")
    assert cause_of(error, "s", ["m:f"], (3, 4), fenced) is fenced
    assert cause_of(error, "s", ["m:f"], None, odd) is odd
    found = cause_of(error, "s", ["m:f"], (3, 4), StageFunctionError("bad row"))
    assert isinstance(found, StageFunctionError)
    assert str(found) == "stage s, buckets 3..4: bad row"


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("DataMissing", DataMissing),
        ("Unavailable", Unavailable),
        ("ConfigurationError", ConfigurationError),
        ("Odd", AnabranchError),
        ("StageFunctionError", StageFunctionError),
    ],
)
def test_what_a_task_met_is_in_the_text(name: str, kind: type[Exception]) -> None:
    found = cause_of(Exception(f"{TASK}{name}: the text\n at x"), "s", ["m:f"], None, None)
    assert type(found) is kind
    assert str(found).endswith("the text")


@pytest.mark.parametrize(
    "words",
    [
        "Mkdirs failed to create file:/s/state/0/1",
        "java.io.IOException: No space left on device",
        "java.io.FileNotFoundException: /s/state/0/1/.2_a.changelog (Read-only file system",
        "java.io.FileNotFoundException: /s/state/0/1/.2_a.changelog (Permission denied",
        "java.nio.file.AccessDeniedException: /s/state",
        "[CANNOT_LOAD_STATE_STORE.UNCATEGORIZED] An error occurred during loading state.",
    ],
)
@pytest.mark.parametrize(
    ("place", "there"), [(" (10.0.0.7 executor 1)", "executor on 10.0.0.7: "), ("", "")]
)
def test_a_disk_is_not_the_functions_fault(words: str, place: str, there: str) -> None:
    text = f"Lost task 0.3 in stage 1.0 (TID 4){place}: {words}\n at MapInBatchEvaluator"
    found = cause_of(Exception(text), "s", ["m:f"], (1, 1), None)
    assert type(found) is Unavailable
    assert str(found).startswith(f"{there}Spark cannot use its checkpoint: {words}: see that")


def test_a_function_that_fails_is_named_and_a_surprise_is_handed_on() -> None:
    found = cause_of(
        Exception("PythonException: \n  File x\nValueError: seven"),
        "s",
        ["m:f", "m:g"],
        (1, 1),
        None,
    )
    assert isinstance(found, StageFunctionError)
    assert (
        str(found) == "stage s, buckets 1..1, function m:f, m:g: PythonException: ValueError: seven"
    )
    error = Exception("what")
    assert cause_of(error, "s", ["m:f"], None, None) is error
    assert short("first\n\nsecond\nthird") == "first"
