"""What a query died of, as the person who wrote its function is told."""

from __future__ import annotations

import pytest

from anabranch.adapters.spark.failures import cause_of
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    Fenced,
    StageFunctionError,
    Unavailable,
)
from anabranch.runtime.logs import short

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
        str(found)
        == "stage s, buckets 1..1, function m:f, m:g: PythonException: | ValueError: seven"
    )
    error = Exception("what")
    assert cause_of(error, "s", ["m:f"], None, None) is error
    assert short("first\n\nsecond\nthird") == "first | second"
