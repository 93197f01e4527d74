"""``python -m experiments.speculation``: chains of 1 to 4 stages on a real broker, which read what
is named, as stages do, or blocks before their record.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from anabranch.local.embedded_kafka import EmbeddedKafka
from benchmarks.processes import exit_on_signals
from experiments.dpc.figures import percentile
from experiments.dpc.virtual import Costs
from experiments.pages import table, write_page
from experiments.speculation.chain import Passed, Reading, pass_through

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

PAGE: Final = Path(__file__).parents[2] / "docs/experiments/speculation.md"
STAGES: Final = (1, 2, 3, 4)
BUCKETS: Final = 150
WARM: Final = 30
"""Buckets that are not counted: connections open, code is loaded."""
BATCH_MS: Final = 214
"""Time that a batch of Spark takes in a chain, as measured by ``experiments.dpc``."""
STEP_MS: Final = 343
"""Delay that a stage on Spark adds, one node, as measured by ``experiments.dpc``: a batch, the wait
for it, and its log.
"""


def _ms(later: Mapping[int, float], earlier: Mapping[int, float]) -> list[float]:
    """Return the time between two points, in ms, for each counted bucket."""
    return [1_000 * (later[bucket] - earlier[bucket]) for bucket in later if bucket > WARM]


def _two(values: Sequence[float]) -> str:
    return f"{median(values):.1f} / {percentile(values, 0.95):.1f}"


def delays(named: Mapping[int, Passed], early: Mapping[int, Passed]) -> str:
    """Return the table of delays from source to client, by the number of stages."""
    rows = []
    for stages in named:
        today = _ms(named[stages].seen, named[stages].due)
        first = _ms(early[stages].seen, early[stages].due)
        final = _ms(early[stages].final, early[stages].due)
        saved = median(today) - median(first)
        whole = stages * STEP_MS
        rows.append(
            [
                str(stages),
                _two(today),
                _two(first),
                _two(final),
                f"{saved:.1f}",
                f"{100 * saved / whole:.1f} %",
            ]
        )
    head = ["stages", "named blocks", "before their record", "known to be final", "saved"]
    return table([*head, "of the delay with Spark"], rows)


def parts(passed: Iterable[Passed]) -> str:
    """Return the table of what a stage's log costs, all stages of all chains together."""
    sent, named, noticed = list[float](), list[float](), list[float]()
    for each in passed:
        writers = [each.source, *each.stages]
        readers = [*(stage.read for stage in each.stages), each.seen]
        for writer, read in zip(writers, readers, strict=True):
            sent += _ms(writer.blocks, writer.sent)
            named += _ms(writer.named, writer.blocks)
            noticed += _ms(read, writer.named)
    return table(
        ["from", "to", "ms"],
        [
            ["blocks are handed to the client", "the broker has them", _two(sent)],
            ["the broker has the blocks", "the boundary record is seen in the log", _two(named)],
            ["the boundary record is seen", "the next stage has the rows", _two(noticed)],
        ],
    )


def rolling_back(saved_ms: float) -> str:
    """Return the table of what one abandoned batch costs a speculative chain, by its stages, and up
    to which share of such batches reading early gains anything. ``saved_ms``: by each stage.
    """
    start_ms = Costs().start_ms
    rows = []
    for stages in STAGES:
        cost_ms = start_ms + BATCH_MS * stages
        share = stages * saved_ms / cost_ms
        rows.append([str(stages), f"{cost_ms:.0f}", f"{100 * max(0.0, share):.2f} %"])
    return table(["stages after it", "delay of a roll-back, ms", "gains below"], rows)


def saved_by_stage_ms(named: Mapping[int, Passed], early: Mapping[int, Passed]) -> float:
    """Return the median delay that reading early saves, for each log on the way to the client."""
    return median(
        (median(_ms(named[n].seen, named[n].due)) - median(_ms(early[n].seen, early[n].due)))
        / (n + 1)
        for n in named
    )


def both(kafka: str, stages: int, buckets: int) -> dict[Reading, Passed]:
    """Run a chain for each reading, at the same time: what else the machine does meets both."""
    stamp = time.time_ns()
    with ThreadPoolExecutor(len(Reading)) as pool:
        running = {
            reading: pool.submit(
                pass_through,
                kafka,
                f"{reading.name.lower()}-{stages}-{stamp}",
                stages,
                reading,
                buckets,
            )
            for reading in Reading
        }
    return {reading: each.result() for reading, each in running.items()}


def main() -> int:
    """Measure, and write the page."""
    parser = argparse.ArgumentParser(prog="python -m experiments.speculation", description=__doc__)
    parser.add_argument("--page", type=Path, default=PAGE, help="the page to write the figures to")
    parser.add_argument("--buckets", type=int, default=BUCKETS, help="of 100 ms, for each chain")
    arguments = parser.parse_args()
    exit_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-speculation-"))
    kafka = EmbeddedKafka(folder / "kafka")
    found: dict[Reading, dict[int, Passed]] = {reading: {} for reading in Reading}
    kafka.start()
    try:
        for stages in STAGES:
            passed = both(kafka.address, stages, WARM + arguments.buckets)
            for reading in Reading:
                found[reading][stages] = passed[reading]
            print(f"{stages} stages: done", flush=True)
    finally:
        kafka.stop()
        shutil.rmtree(folder, ignore_errors=True)
    named, early = found[Reading.NAMED], found[Reading.EARLY]
    blocks = {
        "delays": delays(named, early),
        "parts": parts(named.values()),
        "rolling-back": rolling_back(saved_by_stage_ms(named, early)),
    }
    for block in blocks.values():
        print(f"{block}\n")
    write_page(arguments.page, blocks, {})
    return 0


if __name__ == "__main__":
    sys.exit(main())
