"""Logs are one JSON object per line, those of libraries included."""

from __future__ import annotations

import io
import json
import logging

import pytest

from anabranch.process import logging_setup


def test_one_object_per_line_with_the_process_and_traceback() -> None:
    stream = io.StringIO()
    logger = logging_setup.configure("ingestion", "reports", "info", stream)
    logger.debug("unheard")
    logger.info("hello", records=3)
    error = ValueError("what\nhappened")
    logger.error("stopped", exc_info=error)
    logging.getLogger("some.library").warning("be %s", "careful")
    logging.getLogger("some.library").info("chatter")
    first, second, third = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert (first["event"], first["records"], first["service"], first["name"], first["level"]) == (
        "hello",
        3,
        "ingestion",
        "reports",
        "info",
    )
    assert first["at"].endswith("Z")
    assert "ValueError: what\nhappened" in second["exception"]
    assert (third["event"], third["logger"], third["level"]) == (
        "be careful",
        "some.library",
        "warning",
    )


def test_what_readers_of_boundary_logs_say_is_heard_from_the_level_of_the_process_on() -> None:
    stream = io.StringIO()
    reader = logging.getLogger("anabranch.boundaries")
    for level in ("warning", "info", "debug"):
        logging_setup.configure("delivery", "tolls", level, stream)
        reader.debug("of %s", level)
        reader.info("of %s", level)
    found = [
        (entry["event"], entry["level"])
        for entry in map(json.loads, stream.getvalue().splitlines())
    ]
    assert found == [("of info", "info"), ("of debug", "debug"), ("of debug", "info")]


def test_a_talkative_library_is_cut_and_the_cut_is_reported() -> None:
    stream = io.StringIO()
    logging_setup.configure("ingestion", "reports", "info", stream)
    library = logging.getLogger("talkative")

    def say(moment_s: float) -> None:
        record = library.makeRecord(
            library.name, logging.ERROR, "f", 1, "failed at %s", (moment_s,), None
        )
        record.created = moment_s
        library.handle(record)

    for number in range(1_000):
        say(1_000.0 + number / 1_000)
    assert len(stream.getvalue().splitlines()) == 20
    logging.getLogger("other").error("heard")
    say(1_010.5)
    last, newest = [json.loads(line)["event"] for line in stream.getvalue().splitlines()[-2:]]
    assert last == "heard"
    assert newest == "failed at 1010.5 (980 lines before this were left out)"


PARSE_ERROR = "f: raised ParseException: \n[NEAR] near 'FORM'\n\n== SQL ==\nSELECT * FORM"
TRACEBACK = """An exception was thrown from the Python worker:
  Traceback (most recent call last):
    File "f.py", line 1, in f
      return 1 // 0
  ZeroDivisionError: division by zero
    at org.apache.spark.Executor"""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (PARSE_ERROR, "f: raised ParseException: [NEAR] near 'FORM'"),
        (TRACEBACK, "ZeroDivisionError: division by zero"),
        ("\nonly this\nand that", "only this"),
        ("ValueError: a\nKeyError: b\nKeyError: b\nTypeError: c", "KeyError: b | TypeError: c"),
        ("", ""),
    ],
)
def test_what_is_shown_of_an_error_says_something(text: str, shown: str) -> None:
    assert logging_setup.short(text) == shown
