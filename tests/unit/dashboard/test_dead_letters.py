"""The newest dead letters, however many there are."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.codec.catalog import topic_settings
from anabranch.dashboard.dead_letters import CONTENT_BYTES_MAX, SAMPLES_MAX, DeadLetterFollower
from anabranch.dashboard.feed import PageFeed
from anabranch.dashboard.page import TEXT_MAX, Page
from anabranch.pipeline.file import load
from anabranch.ports import EventLog, TopicPartition
from harness.page_scenes import TOLL_ROAD

TOPIC = "reports.0.rejected"


class World:
    def __init__(self) -> None:
        self.log = LocalEventLog()
        self.log.admin().create([topic_settings("dead_letters", TOPIC)])
        pipeline = load(TOLL_ROAD)
        self.feed = PageFeed(Page(pipeline), SystemClock())
        self.letters = DeadLetterFollower(pipeline, self.connect, self.feed)
        self.reader = self.log.reader(committed=False)

    def connect(self) -> tuple[str, EventLog]:
        return "memory", self.log

    def write(self, *values: bytes | None, **headers: str) -> None:
        writer = self.log.writer()
        for value in values:
            named = [(f"anabranch-{name}", text.encode()) for name, text in headers.items()]
            writer.send(TopicPartition(TOPIC, 0), value, headers=named)
        writer.flush()

    def look(self) -> list[dict[str, Any]]:
        self.letters.poll(self.reader, {TOPIC: 1})
        with self.feed.page() as page:
            found = page.whole(0, 0)["rejected"]["reports_0"]["samples"]
        assert isinstance(found, list)
        return found


@pytest.fixture
def world() -> World:
    return World()


def test_a_sample_says_why_and_from_where_but_not_what(world: World) -> None:
    world.write(b"SECRET", reason="late", error="too late", topic="t", partition="1", offset="9")
    (sample,) = world.look()
    assert (sample["reason"], sample["error"], sample["from"]) == (
        "late",
        "too late",
        "t[1] offset 9",
    )
    assert sample["bytes"] == 6
    assert "SECRET" not in str(sample)
    assert world.letters.content("reports_0", sample["place"]) == {"text": "SECRET", "size": "6"}


def test_of_many_only_the_newest_are_held(world: World) -> None:
    world.write(*(f"{number}".encode() for number in range(1_000)))
    samples = world.look()
    assert len(samples) == SAMPLES_MAX
    assert {sample["place"] for sample in samples} == {f"0/{n}" for n in range(990, 1_000)}
    world.write(b"newer")
    assert world.look()[0]["place"] == "0/1000"
    assert world.letters.content("reports_0", "0/990") is None, "it is none of the newest any more"


def test_large_ones_and_long_words_are_cut(world: World) -> None:
    world.write(b"x" * 1_000_000, error="e" * 10_000)
    (sample,) = world.look()
    assert len(sample["error"]) == TEXT_MAX
    assert sample["bytes"] == 1_000_000
    content = world.letters.content("reports_0", "0/0")
    assert content is not None
    assert len(content["text"]) == CONTENT_BYTES_MAX
    assert content["size"] == "1000000"


def test_a_character_that_is_cut_does_not_make_a_text_binary(world: World) -> None:
    world.write(("é" * CONTENT_BYTES_MAX).encode()[1:], b"x" + "é".encode() * CONTENT_BYTES_MAX)
    world.write(b"x" * 9 + b"\xc3")
    world.look()
    found = [world.letters.content("reports_0", f"0/{offset}") for offset in range(3)]
    sizes = (2 * CONTENT_BYTES_MAX - 1, 2 * CONTENT_BYTES_MAX + 1, 10)
    assert [each and int(each["size"]) for each in found] == [*sizes]
    assert found[1] is not None
    assert found[1]["text"] == "x" + "é" * (CONTENT_BYTES_MAX // 2 - 1)
    assert all(each is not None and "base64" in each for each in (found[0], found[2]))


def test_what_is_no_text_is_base64_and_nothing_is_nothing(world: World) -> None:
    world.write(b"\xff\xfe", None)
    world.look()
    content = world.letters.content("reports_0", "0/0")
    assert content is not None
    assert content["base64"] == "//4="
    assert world.letters.content("reports_0", "0/1") is None
    assert world.letters.content("nobody", "0/0") is None


def test_a_topic_that_is_not_there_or_empty_has_none(world: World) -> None:
    assert world.look() == []
    world.letters.poll(world.reader, {})
