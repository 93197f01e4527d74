"""The page over a real pipeline, in a real browser: the toll road with its broker, Redis and Spark.

Skipped, with the reason and a count in pytest's summary, where there is no browser.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from demo.deployment import Deployment
from harness.browser import await_text, browser, missing
from harness.page_scenes import TOLL_ROAD
from harness.waiting import wait_until

pytestmark = [pytest.mark.integration, pytest.mark.browser, pytest.mark.nightly]

READY_S = 180
SHOWN_S = 60
SOURCES = ("reports_0", "reports_1", "reports_2")
STAGE = "[data-key='stream segment_statistics']"


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "anabranch.cli", *words]


class Ui:
    """``anabranch ui`` as a process."""

    def __init__(self, file: Path, state_dir: Path, log: Path, port: int = 0) -> None:
        self._log = log
        with log.open("wb") as output:
            self.process = subprocess.Popen(
                command("ui", "-f", str(file), "--state-dir", str(state_dir), "--port", str(port)),
                stdout=output,
                stderr=subprocess.STDOUT,
            )
        found = wait_until(lambda: re.findall(r"http://\S+", log.read_text()), 30, "its address")
        self.url: str = found[0]

    @property
    def port(self) -> int:
        return int(self.url.rstrip("/").rpartition(":")[2])

    def page(self) -> dict[str, Any]:
        with urlopen(f"{self.url}api/page", timeout=10) as answer:
            found: dict[str, Any] = json.loads(answer.read())
        return found

    def phases(self, stream: str) -> Counter[str]:
        return Counter(cell[1] for cell in self.page()["cells"][stream])

    def restarts(self) -> dict[str, int]:
        return {
            f"{row['service']}/{row['name']}": row["restarts"] or 0
            for row in self.page()["processes"] or ()
        }

    def stop(self) -> int:
        self.process.terminate()
        return self.process.wait(20)


@contextmanager
def traffic(file: Path, state_dir: Path) -> Iterator[None]:
    """Made-up reports on each source."""
    with ExitStack() as stack:
        for source in SOURCES:
            words = command("produce", source, "-f", str(file), "--state-dir", str(state_dir))
            sending = subprocess.Popen(
                [*words, "--generate", "--every", "20ms"], stdout=subprocess.DEVNULL
            )
            stack.callback(sending.wait)
            stack.callback(sending.terminate)
        yield


def test_the_page_follows_a_real_pipeline_through_failures_and_restarts(tmp_path: Path) -> None:
    if missing():
        pytest.skip(missing())
    folder = tmp_path / "toll_road"
    shutil.copytree(TOLL_ROAD.parent, folder)
    file, state_dir = folder / "pipeline.yaml", tmp_path / "state"
    with ExitStack() as stack:
        ui = Ui(file, state_dir, tmp_path / "ui.log")

        def end() -> None:
            ui.process.kill()

        stack.callback(end)
        driver = stack.enter_context(browser())
        driver.get(ui.url)
        await_text(driver, "#contact", "nothing runs yet")
        deployment = Deployment(file, state_dir, tmp_path / "up.log", drills=True)
        stack.callback(lambda: deployment.stop(set()))
        deployment.wait_ready(READY_S)
        with traffic(file, state_dir):
            await_text(driver, "#verdict", "All results are stable", SHOWN_S)

            deployment.drill("cut", "ingestion/reports_1")
            await_text(driver, "#verdict", "tentative, without reports_1", SHOWN_S)
            await_text(driver, f"{STAGE} .chip", "UP_FAILURE", SHOWN_S)
            await_text(driver, "#events", "cut off from Kafka", SHOWN_S)
            assert ui.phases("segment_statistics")["tentative"]
            deployment.drill("heal", "ingestion/reports_1")
            await_text(driver, "#verdict", "All results are stable", SHOWN_S)
            await_text(driver, "#events", "link to Kafka healed", SHOWN_S)
            phases = ui.phases("segment_statistics")
            assert phases["corrected"]
            assert not phases["tentative"]

            for label in sorted(ui.restarts()):
                if not label.startswith(("kafka/", "proxy/", "redis/", "replica/")):
                    before = ui.restarts()[label]
                    deployment.kill(label)
                    wait_until(
                        lambda label=label, before=before: ui.restarts()[label] > before,  # type: ignore[misc]
                        SHOWN_S,
                        f"the page shows the restart of {label}",
                        every_s=0.5,
                    )
            await_text(driver, "#verdict", "All results are stable", 2 * SHOWN_S)

            newest_ms = ui.page()["cards"]["stream tolls"]["newest_ms"]
            deployment.kill("kafka/kafka")
            wait_until(
                lambda: ui.page()["cards"]["stream tolls"]["newest_ms"] > newest_ms + 10_000,
                2 * SHOWN_S,
                "the page goes on with the broker",
                every_s=1,
            )
            await_text(driver, "#verdict", "All results are stable", 2 * SHOWN_S)

            port = ui.port
            assert ui.stop() == 0
            await_text(driver, "#contact", "no connection", SHOWN_S)
            with pytest.raises(URLError):
                ui.page()
            ui = Ui(file, state_dir, tmp_path / "ui-again.log", port)
            await_text(driver, "#verdict", "All results are stable", SHOWN_S)
            # As far back as the logs go, which the consistency manager trims.
            wait_until(
                lambda: ui.phases("tolls")["stable"] > 10, SHOWN_S, "the logs are read again"
            )
        assert deployment.stop(set()) == []
        await_text(driver, "#contact", "does not answer", SHOWN_S)
        assert ui.stop() == 0
