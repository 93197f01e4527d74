"""Demo ``make demo``: the toll road from end to end, with a failure on the way."""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.table import Table

from demo import consuming, oracle
from demo.comparing import (
    compare,
    compare_rejected,
    followed,
    percentile_ms,
)
from demo.deployment import (
    SERVER_SERVICES,
    Deployment,
    DeploymentError,
    copy_pipeline,
    stopped,
)
from demo.job import CLOSING_MS, Collected, read_job
from demo.machine_watch import MachineWatch
from demo.options import parse, planned
from demo.process_tree import TreeMeter
from demo.progress import Shown
from demo.reporting import Outcome, Sofar, progress, report
from demo.story import Story
from demo.traffic import Traffic, TrafficWriter, Truth, span

SETTLE_S = 2.0
"""Time after the last expected record during which no further one may come, in seconds."""


class Demo:
    """One run of the demo."""

    def __init__(self, options: argparse.Namespace, folder: Path, console: Console) -> None:
        self._options = options
        self._folder = folder
        self._console = console
        self._pipeline = copy_pipeline(options.pipeline, folder / "pipeline", options.replicas)
        self._job = read_job(self._pipeline)
        self._collected = Collected.nothing(self._job)
        self._again = Collected.nothing(self._job)
        self._killed: list[str] = []
        self._readers: list[consuming.TopicReader] = []
        self._truth: Truth | None = None
        self._failure: Exception | None = None
        self._give_up = threading.Event()
        self._behind_ms = 0
        self._records_min = 0
        self._expected: int | None = None
        self._cut, self._seconds = planned(options, self._job)
        self._story: Story | None = None

    def run(self) -> Outcome:
        """From start to stop.

        Raises:
            DeploymentError: the deployment did not start, or ended early.
        """
        begin = time.monotonic()
        deployment = Deployment(
            self._pipeline,
            self._folder / "state",
            self._folder / "up.log",
            drills=self._cut is not None,
        )
        meter = TreeMeter(deployment.pid)
        watch = MachineWatch(meter)
        meter.start()
        watch.start()
        left: list[int] = []
        try:
            doing = "starting broker, Redis and services"
            with Shown(self._console, doing) as shown:
                deployment.wait_ready(
                    self._options.ready_deadline,
                    lambda line: shown.now(f"{doing}: {line}"),
                    shown.count,
                )
            self._console.print(f"ready after {time.monotonic() - begin:.1f} s")
            writer, expected = self._drive(deployment, meter)
        finally:
            self._give_up.set()
            for reader in self._readers:
                reader.stop()
            meter.stop()
            watch.stop()
            with Shown(self._console, "stopping") as shown:
                left = deployment.stop(meter.seen, shown.count)
        with Shown(self._console, "reading everything once more") as shown:
            self._read_again(shown)
            shown.now("comparing with the oracle")
            return self._judge(writer, expected, watch, meter, left, time.monotonic() - begin)

    def _drive(self, deployment: Deployment, meter: TreeMeter) -> tuple[TrafficWriter, Truth]:
        kafka = deployment.kafka()
        writer = TrafficWriter(kafka, self._job.topics)
        for topic, take in self._collected.takers(self._job).items():
            self._readers.append(consuming.TopicReader(kafka, topic, take))
            self._readers[-1].start()
        start_ms, end_ms = span(
            time.time_ns() // 1_000_000, self._seconds, self._job.window_ms, is_paced=True
        )
        traffic = Traffic(
            start_ms,
            end_ms,
            self._options.rate,
            len(self._job.topics),
            self._options.seed,
            self._options.bad_share,
        )
        self._records_min = traffic.reports_total()
        generator = threading.Thread(
            target=self._generate, args=(writer, traffic), name="traffic", daemon=True
        )
        generator.start()
        if self._cut is not None:
            options = self._options
            say = partial(self._console.print, soft_wrap=True, highlight=False)
            self._story = Story(
                self._cut,
                options.cut_at,
                options.cut_for,
                self._collected.live,
                say,
                self._job.max_delay_ms,
                end_ms,
            )
        kills = self._kill_plan(deployment, (end_ms - start_ms) / 1_000)
        started = time.monotonic()

        def running() -> Table:
            return progress(
                time.monotonic() - started,
                (end_ms - start_ms + CLOSING_MS) / 1_000,
                Sofar(
                    writer.written,
                    traffic.reports_total(),
                    len(self._collected.rejected),
                    self._collected.results_total(),
                    self._collected.lag_ms(),
                    meter.last_bytes,
                    self._expected,
                ),
            )

        if not self._console.is_terminal:
            self._console.print(
                f"traffic: about {traffic.reports_total():,} reports in"
                f" {(end_ms - start_ms) / 1_000:.0f} s ...",
                highlight=False,
            )
        with Live(running(), console=self._console, refresh_per_second=4, transient=True) as live:
            while generator.is_alive():
                if kills and time.monotonic() - started >= kills[0][0]:
                    self._kill(deployment, kills.pop(0)[1])
                self._raise_background_errors(deployment)
                if self._story is not None:
                    self._story.tick(deployment)
                live.update(running())
                time.sleep(0.25)
            self._raise_background_errors(deployment)
            if self._truth is None:
                raise DeploymentError("the traffic was not written")
            self._wait_for_results(deployment, self._truth, lambda: live.update(running()))
        return writer, self._truth

    def _read_again(self, shown: Shown) -> None:
        """Read the topics once nothing writes any more: their final content is judged."""
        with stopped(self._pipeline, self._folder / "state", self._folder / "again.log") as kafka:
            takers = self._again.takers(self._job)
            for number, (topic, take) in enumerate(takers.items()):
                shown.count("topics", number, len(takers))
                consuming.read_whole(kafka, topic, take)
            shown.count("topics", len(takers), len(takers))

    def _generate(self, writer: TrafficWriter, traffic: Traffic) -> None:
        try:
            self._truth = writer.run(
                traffic, is_paced=True, closing_ms=CLOSING_MS, stop=self._give_up.is_set
            )
        except Exception as error:  # noqa: BLE001 - the main thread raises it again
            self._failure = error
        self._behind_ms = writer.behind_ms_max

    def _kill_plan(self, deployment: Deployment, seconds: float) -> list[tuple[float, str]]:
        """Return the kills as (seconds after the start, SERVICE/NAME), spread over the middle of
        the run.
        """
        titles = list(self._options.kill)
        if self._options.kill_each:
            titles += [
                row.title for row in deployment.status() if row.service not in SERVER_SERVICES
            ]
        step = 0.8 * seconds / max(1, len(titles))
        return [(0.1 * seconds + step * number, title) for number, title in enumerate(titles)]

    def _kill(self, deployment: Deployment, title: str) -> None:
        pid = deployment.kill(title)
        self._killed.append(title)
        self._console.print(f"killed {title} (process {pid}) with SIGKILL")

    def _raise_background_errors(self, deployment: Deployment) -> None:
        """Raise the error of a background thread, if there is one."""
        deployment.check_running()
        if self._failure is not None:
            raise self._failure
        for reader in self._readers:
            if reader.error is not None:
                raise reader.error

    def _wait_for_results(self, deployment: Deployment, truth: Truth, show: Any) -> None:
        """Wait until as many records are there as must be, and no more came for a while.

        Returns also when none of those that are missing came within the deadline: a slow machine
        takes its time for them, but they keep coming.
        """
        self._expected = expected = sum(len(frame) for frame in self._answers(truth).values())
        end = time.monotonic() + self._options.drain_deadline
        changed = time.monotonic()
        counts = (-1, -1)
        while time.monotonic() < end:
            self._raise_background_errors(deployment)
            if self._story is not None:
                self._story.tick(deployment)
            now = (self._collected.results_total(), len(set(self._collected.rejected)))
            is_whole = now[0] >= expected and now[1] >= len(truth.rejected)
            if now != counts:
                counts, changed = now, time.monotonic()
                # Records beyond the expected number must not prolong the wait.
                end = end if is_whole else changed + self._options.drain_deadline
            is_settled = time.monotonic() - changed >= SETTLE_S and (
                self._story is None or self._story.is_over()
            )
            if is_whole and is_settled:
                return
            show()
            time.sleep(0.25)
        self._console.print(
            f"[yellow]gave up: no other result came for {self._options.drain_deadline:g}"
            f" s[/yellow]\n{_states(deployment)}"
        )

    def _answers(self, truth: Truth) -> dict[str, Any]:
        return oracle.answers(
            truth.reports(),
            list(self._job.outputs),
            self._job.window_ms,
            self._job.free_vehicles,
            self._job.free_speed,
        )

    def _judge(
        self,
        writer: TrafficWriter,
        truth: Truth,
        watch: MachineWatch,
        meter: TreeMeter,
        left: list[int],
        seconds: float,
    ) -> Outcome:
        truth.write(self._folder / "truth")
        job = self._job
        seen = self._collected
        again = self._again
        frames = self._answers(truth)
        answers = {
            name: oracle.results(name, frame, job.bucket_ms, job.partitions)
            for name, frame in frames.items()
        }
        latencies = [
            record.received_ms - record.result.event_time_ms
            for records in seen.results.values()
            for record in records
        ]
        failure = None
        if self._story is not None:
            road = job.road(truth.reports())
            failure = self._story.report(
                road, again.live, was_killed=bool(self._killed), stalls=watch.stalls()
            )
        return Outcome(
            records_in=writer.written,
            records_min=self._records_min,
            tolls=sum(int((frame["toll"] > 0).sum()) for frame in frames.values()),
            rejections=compare_rejected(truth.rejected, again.rejected),
            outputs={
                name: compare(answer, again.results[name]) for name, answer in answers.items()
            },
            changed=[
                text
                for name in answers
                for text in followed(name, seen.results[name], again.results[name])
            ],
            latency_p50_ms=percentile_ms(latencies, 0.50),
            latency_p99_ms=percentile_ms(latencies, 0.99),
            memory_peak_bytes=meter.peak_bytes,
            generator_behind_ms=self._behind_ms,
            killed=self._killed,
            left_processes=left,
            seconds=seconds,
            failure=failure,
            pressure=watch.pressure(),
        )


def _states(deployment: Deployment) -> str:
    try:
        return "\n".join(f"  {row.title}: {row.state}" for row in deployment.status())
    except DeploymentError as error:
        return f"  {error}"


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit code."""
    options = parse(sys.argv[1:] if arguments is None else arguments)
    console = Console()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-demo-"))
    try:
        outcome = Demo(options, folder, console).run()
    except DeploymentError as error:
        console.print(f"[red]{error}[/red]", markup=True, highlight=False)
        return 1
    console.print(report(outcome))
    console.print(
        "[dim]latency: from a result's time (the end of its window), by the clock, until a"
        " read_committed consumer had it[/dim]"
    )
    if outcome.failure is not None:
        console.print(str(outcome.failure.apart), highlight=False)
        if not outcome.failure.keeps_up():
            console.print(
                "[yellow]too slow without any failure: before the cut results took more than twice"
                " the bound, outside of stalls of the machine; so what the failure added says"
                " nothing. Try a lower --rate[/]"
            )
    changes = outcome.changed + (
        []
        if outcome.failure is None
        else [*outcome.failure.broken, *outcome.failure.answer.examples]
    )
    for example in [
        *changes,
        *outcome.rejections.examples,
        *(text for output in outcome.outputs.values() for text in output.examples),
    ]:
        console.print(example, markup=False, highlight=False)
    if options.json is not None:
        options.json.write_text(
            json.dumps({"is_good": outcome.is_good(), **asdict(outcome)}, indent=1)
        )
    if outcome.is_good() and not options.keep:
        shutil.rmtree(folder)
    else:
        console.print(f"state, logs and truth: {folder}", highlight=False)
    return 0 if outcome.is_good() else 1


if __name__ == "__main__":
    sys.exit(main())
