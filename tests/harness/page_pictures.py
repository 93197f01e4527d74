"""``python -m harness.page_pictures [FOLDER]``: the pictures of docs/dashboard.md, of a pipeline
that is played.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from selenium import webdriver
from selenium.webdriver import ActionChains

from anabranch.adapters.system.clock import SystemClock
from anabranch.codec import federation_records
from anabranch.codec.catalog import topic_settings
from anabranch.dashboard.feed import PageFeed
from anabranch.pipeline.file import load
from anabranch.pipeline.model import AgentPolicy, Federation
from anabranch.ports import TopicPartition
from anabranch.protocol.federation.offers import OfferedTask, TaskOffer
from harness.browser import at, await_text, browser
from harness.federations import FederationWorld
from harness.markets import DAY_MS, answer, contract, offer, started
from harness.page_scenes import TOLL_ROAD, PageScene, page_of

FOLDER = Path(__file__).parents[2] / "docs/pictures"
STRIP = "canvas[data-stream='segment_statistics']"
SETTLED_S = 1.5


@contextmanager
def looked_at(
    scene: PageScene, *, height: int, is_dark: bool = False
) -> Iterator[tuple[webdriver.Chrome, PageFeed]]:
    """Show the page of a scene that goes on."""
    ending = threading.Event()

    def play() -> None:
        while not ending.wait(0.2):
            scene.to_now()
            scene.beats()

    scene.beats()
    thread = threading.Thread(target=play)
    with (
        page_of(scene.pipeline, scene.log) as (feed, url),
        browser(height=height, is_dark=is_dark) as driver,
    ):
        thread.start()
        try:
            driver.get(url)
            await_text(driver, "#name", scene.pipeline.name)
            await_text(driver, "[data-key='output tolls'] .chip", "", 20)
            ending.wait(SETTLED_S)
            yield driver, feed
        finally:
            ending.set()
            thread.join()


def point(driver: webdriver.Chrome, share: float) -> None:
    """At a bucket of the stage's strip: from -0.5, the left end, to 0.5."""
    canvas = at(driver, STRIP)
    x = round(share * canvas.size["width"])
    ActionChains(driver).move_to_element_with_offset(canvas, x, 6).perform()


def stable(to: Path) -> None:
    """All is well, and was not a minute ago."""
    scene = PageScene(past_ms=130_000)
    scene.steps(90)
    scene.cut.add("reports_1")
    scene.steps(44)
    scene.cut.clear()
    scene.to_now()
    with looked_at(scene, height=800) as (driver, _):
        await_text(driver, "#verdict", "stable")
        point(driver, 0.04)
        driver.save_screenshot(str(to))


def tentative(to: Path) -> None:
    """Take the picture while a source is missing."""
    now_ms = SystemClock().now_ms()
    scene = PageScene(past_ms=130_000)
    scene.steps(200)
    scene.cut.add("reports_1")
    scene.to_now()
    with looked_at(scene, height=1000) as (driver, feed):
        with feed.page() as page:
            page.add_event(now_ms - 29_000, "drill", "ingestion/reports_1", "cut off from Kafka")
        await_text(driver, "#verdict", "without reports_1")
        await_text(driver, "#events", "cut off")
        point(driver, 0.4)
        driver.save_screenshot(str(to))


def correcting(to: Path) -> None:
    """Take the picture while the source is back, and corrections come."""
    scene = PageScene(past_ms=130_000)
    scene.steps(110)
    scene.cut.add("reports_1")
    scene.to_now()
    scene.cut.clear()
    with looked_at(scene, height=800, is_dark=True) as (driver, _):
        await_text(driver, "[data-key='stream segment_statistics'] .chip", "STABILIZATION")
        driver.save_screenshot(str(to))


def letters(to: Path) -> None:
    """Dead letters, one of which was asked for."""
    scene = PageScene(past_ms=20_000)
    topic = scene.pipeline.sources["reports_0"].dead_letter
    scene.log.admin().create([topic_settings("dead_letters", topic)])
    writer = scene.log.writer()
    for offset, (reason, error, value) in enumerate(
        [
            ("late", "its bucket was closed 1.2 s ago", b'{"time": 1795475126000, "vehicle": 17}'),
            ("json", "line 1: a value is missing", b'{"time": '),
            ("json", "not a record", b"<script>alert(1)</script>"),
        ]
    ):
        place = {"topic": "reports.0", "partition": "1", "offset": str(4_711 + 40 * offset)}
        facts = {"reason": reason, "error": error} | place
        headers = [(f"anabranch-{name}", text.encode()) for name, text in facts.items()]
        writer.send(TopicPartition(topic, 0), value, headers=headers)
    writer.flush()
    scene.to_now()
    with looked_at(scene, height=520) as (driver, _):
        at(driver, "#tab-letters").click()
        await_text(driver, "#panel-letters", "not a record")
        at(driver, "#panel-letters tbody tr button").click()
        await_text(driver, "#panel-letters .content", "script")
        driver.save_screenshot(str(to))


def market(to: Path) -> None:
    """Take the picture while a stage of north runs at south."""
    policy = AgentPolicy(capacity_units=100, scale_micro=1_000)
    federation = Federation(name="tolls", participant="north", auditor="auditor", agent=policy)
    scene = PageScene(load(TOLL_ROAD).model_copy(update={"federation": federation}))
    world, now_ms = FederationWorld(scene.log), SystemClock().now_ms()
    text = contract(valid_from_ms=now_ms - DAY_MS, valid_to_ms=now_ms + 29 * DAY_MS)
    world.say("north", text)
    world.say("south", text)
    begun = started(answer(), at_ms=now_ms)
    world.say("north", replace(begun, signature=world.keys["south"].sign(answer())))
    topic = world.topics.offers("north-south")
    world.make("offers", topic)
    for statement in (offer(), answer(), offer(2, OfferedTask("north.b", 25, 940))):
        by = "north" if isinstance(statement, TaskOffer) else "south"
        world.write(topic, federation_records.encode(statement, world.keys[by].sign(statement)))
    scene.to_now()
    with looked_at(scene, height=1000) as (driver, feed):
        tasks = {
            "north.a": {"place": "away", "units": 10},
            "north.b": {"place": "offered", "units": 25},
            "north.c": {"place": "here", "units": 48},
        }
        detail = {"phase": "waiting", "load_units": 73, "tasks": tasks}
        row = {"service": "agent", "name": "north", "state": "running", "detail": detail}
        with feed.page() as page:
            page.show_processes([row], {}, {}, now_ms)
        at(driver, "#tab-market").click()
        await_text(driver, "#panel-market", "up to 940")
        await_text(driver, "#panel-market", "one more would cost")
        driver.save_screenshot(str(to))


PICTURES = {
    "page-stable": stable,
    "page-tentative": tentative,
    "page-correcting": correcting,
    "page-dead-letters": letters,
    "page-market": market,
}


def main() -> None:
    """Make them all."""
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    for name, draw in PICTURES.items():
        draw(folder / f"{name}.png")
        print(f"{name}.png: {(folder / f'{name}.png').stat().st_size // 1_000} kB")


if __name__ == "__main__":
    main()
