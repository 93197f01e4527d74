"""``anabranch tail`` on a log in memory."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.codec.catalog import TopicSettings
from anabranch.operating.tail import Shown, follow, rejected_topic_of, sink_of
from anabranch.pipeline.file import load
from anabranch.ports import Headers, TopicPartition
from anabranch.protocol.errors import ConfigurationError
from harness import outputs


def shown(*records: tuple[int, bytes | None, Headers], from_beginning: bool = True) -> list[Shown]:
    log = LocalEventLog(VirtualClock())
    log.admin().create([TopicSettings("t", 2)])
    writer = log.writer()
    for partition, value, headers in records:
        writer.send(TopicPartition("t", partition), value, b"k", headers)
    writer.flush()
    found: list[Shown] = []
    for record in follow(log, "t", threading.Event(), from_beginning=from_beginning):
        found.append(record)
        if len(found) == len(records):
            break
    return sorted(found, key=lambda record: (record.partition, record.offset))


def test_a_line_is_the_value_and_what_was_asked_for() -> None:
    (one,) = shown((0, b'{"a":1}', [("anabranch-id", b"3.1"), ("anabranch-event-time", b"300")]))
    assert one.line(with_id=False, live=False) == '{"a":1}'
    assert one.line(with_id=True, live=False) == '3.1\t300\tk\t{"a":1}'


def test_lines_of_a_live_topic_say_what_they_are() -> None:
    control = b'{"kind":"undo","stable":3}'
    found = shown(
        (0, b"v", [("anabranch-kind", b"insertion")]),
        (0, b"v", [("anabranch-kind", b"tentative"), ("anabranch-missing", b"reports")]),
        (0, b"v", [("anabranch-kind", b"tentative"), ("anabranch-shed", b"700")]),
        (0, control, [("anabranch-kind", b"undo")]),
        (0, None, [("anabranch-kind", b"undo")]),
        (1, control, [("anabranch-kind", b"undo")]),
        (1, b"{}", [("anabranch-kind", b"boundary")]),
    )
    assert [record.repeated for record in found] == [False] * 5 + [True, True]
    assert [record.line(with_id=False, live=True) for record in found[:5]] == [
        "insertion\tv",
        "tentative\tv\tmissing: reports",
        "tentative\tv\tshed: 700 per mille",
        f"undo\t{control.decode()}",
        "undo\tdeleted: k",
    ]


def test_binary_values_and_control_characters_do_not_reach_the_terminal() -> None:
    (one,) = shown((0, b"\x00\xff", []))
    assert one.value == "AP8="


def test_a_topic_that_is_not_there_is_reported() -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        next(follow(LocalEventLog(VirtualClock()), "t", threading.Event(), from_beginning=True))


def test_the_topic_of_an_output() -> None:
    pipeline = outputs.pipeline("p", live=True)
    assert (
        sink_of(pipeline, "out", live=False).topic,
        sink_of(pipeline, "out", live=True).topic,
    ) == ("p.out", "p.out.live")
    with pytest.raises(ConfigurationError, match="no output 'other'; there are: out"):
        sink_of(pipeline, "other", live=False)
    with pytest.raises(ConfigurationError, match="output out has no live topic"):
        sink_of(outputs.pipeline("p"), "out", live=True)


def test_a_dead_letter_says_why_it_is_one_and_where_the_record_stands() -> None:
    place: Headers = [
        ("anabranch-topic", b"readings"),
        ("anabranch-partition", b"2"),
        ("anabranch-offset", b"17"),
    ]
    late: Headers = [*place, ("anabranch-reason", b"late"), ("anabranch-error", b"3 s too late")]
    found = shown(
        (0, b'{"at":1}', late),
        (0, b"\x1b[2Jgone", [*place, ("anabranch-reason", b"not_json")]),
        (0, b"lar", [*place, ("anabranch-reason", b"late"), ("anabranch-truncated", b"99")]),
        (0, b"v", [("anabranch-topic", b"out"), ("anabranch-reason", b"too_large")]),
    )
    assert [record.rejected_line(with_id=False) for record in found] == [
        'late\treadings[2] offset 17\t{"at":1}\t3 s too late',
        "not_json\treadings[2] offset 17\tG1sySmdvbmU=",
        "late\treadings[2] offset 17\tlar\tcut from 99 bytes",
        "too_large\tout\tv",
    ]
    assert found[3].rejected_line(with_id=True) == "too_large\tout\t\t\tk\tv"


def test_the_topic_of_what_was_rejected() -> None:
    file = Path(__file__).parents[3] / "examples" / "first_pipeline" / "pipeline.yaml"
    pipeline = load(file)
    assert rejected_topic_of(pipeline, "readings") == "readings.rejected"
    assert rejected_topic_of(pipeline, "hottest") == "hottest.rejected"
    with pytest.raises(ConfigurationError, match=r"'x'; there are: readings, hottest$"):
        rejected_topic_of(pipeline, "x")
