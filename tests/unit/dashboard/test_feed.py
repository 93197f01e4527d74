"""The page between its followers and the server."""

from __future__ import annotations

import json

from anabranch.adapters.system.clock import SystemClock
from anabranch.dashboard import feed as feed_module
from anabranch.dashboard.feed import PageFeed
from anabranch.dashboard.page import Page
from anabranch.pipeline.file import load
from anabranch.protocol.errors import Unavailable
from harness.page_scenes import TOLL_ROAD
from harness.waiting import wait_until


def test_an_error_of_the_broker_is_shown_and_the_work_repeated() -> None:
    feed = PageFeed(Page(load(TOLL_ROAD)), SystemClock())
    tries: list[int] = []

    def work() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise Unavailable("nobody answers")
        feed.stopping.wait()

    thread = feed.run_in_thread("topics", work, is_contact=True)
    wait_until(lambda: tries, 30, "a try")
    wait_until(lambda: "nobody answers" in feed.whole()[1], 30, "why nothing is shown")
    wait_until(lambda: len(tries) == 2, 2 * feed_module.AGAIN_S + 30, "another try")
    feed.stopping.set()
    thread.join(30)
    assert feed.failure is None


def test_a_mistake_of_the_page_ends_it() -> None:
    feed = PageFeed(Page(load(TOLL_ROAD)), SystemClock())

    def work() -> None:
        raise KeyError("a bug")

    feed.run_in_thread("topics", work).join(30)
    assert feed.stopping.is_set()
    assert isinstance(feed.failure, KeyError)


def test_messages_are_numbered_json() -> None:
    feed = PageFeed(Page(load(TOLL_ROAD)), SystemClock())
    number, text = feed.message()
    assert json.loads(text)["seq"] == number == 1
    assert feed.whole()[0] == 1
