"""Errors are found in logs, with their time, and nothing else is."""

from __future__ import annotations

import json
from datetime import datetime

from chaos.complaints import complaints


def line(level: str, **more: object) -> str:
    return json.dumps({"event": "stopped", "level": level, **more})


def test_errors_in_logs_are_found_and_nothing_else() -> None:
    bad = [
        line("error", error="x"),
        line("critical"),
        line("warning", exception="Traceback"),
        "26/01/01 ERROR Executor: lost",
        "[2026-01-01] FATAL [broker] out of disk",
        "Traceback (most recent call last):",
        "{ERROR not json",
        "Segmentation fault",
        "Fatal Python error: Aborted",
        "Timeout (0:05:00)!",
    ]
    good = [line("info", error=None), line("warning"), "INFO ok", "", "errors: 0", "[1, 2]", "{}"]
    assert [each.text for each in complaints("a.log", [*good, *bad])] == bad


def test_a_traceback_is_one_error_with_its_exception_and_those_that_it_led_to() -> None:
    def texts(log: list[str]) -> list[str]:
        return [each.text for each in complaints("a", log)]

    one = [
        "Traceback (most recent call last):",
        '  File "x.py", line 1, in f',
        "    read()",
        "EOFError",
    ]
    other = [*one[:3], "OSError: [Errno 5] x"]
    between = ["", "During handling of the above exception, another exception occurred:", ""]
    assert texts(["fine", *one, *between, *other, "{}", "fine"]) == ["\n".join([*one, *other])]
    assert texts([*one, "", "", *other, "{}"]) == ["\n".join(one), "\n".join(other)], (
        "two of their own"
    )
    assert texts([*one, *between, "fine", *other]) == ["\n".join(one), "\n".join(other)]
    for length in (1, 2, 3):
        assert texts(one[:length]) == ["\n".join(one[:length])], "a log may end in one"
        cut = "\n".join([*one, *other[:length]])
        assert (
            texts([*one, *between, *other[:length]])
            == texts([*one, *between, *other[:length], "{}"])
            == [cut]
        ), "killed while it wrote"


def test_an_error_has_its_time_or_that_of_the_line_before() -> None:
    log = [
        "Traceback (most recent call last):",
        "EOFError",
        '{"event": "x", "level": "error"}',
        '{"event": "x", "at": "2026-01-01T00:00:01.5Z"}',
        "ERROR plain",
        line("error", at="2026-01-01T00:00:02+00:00"),
    ]
    begin_ms = 1_767_225_600_000
    assert [each.at_ms for each in complaints("a", log)] == [
        None,
        None,
        begin_ms + 1_500,
        begin_ms + 2_000,
    ]
    (broker,) = complaints("kafka.log", ["2026-01-01T00:00:03,250 ERROR out of disk (x)"])
    local_ms = int(datetime(2026, 1, 1, 0, 0, 3).astimezone().timestamp() * 1_000)
    assert broker.at_ms == local_ms + 250
