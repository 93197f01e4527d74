"""Measurement of a stage with large state, and of one that is split over a pool of nodes: ``python
-m experiments.elastic``, to docs/experiments/elastic.md.

Each run is a deployment of its own, with a real broker and Spark, on nodes that share no disk. Its
figures go to a file in the folder of results. A run whose file is there is not measured again, so
a call that was interrupted continues where it stopped.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from anabranch.local.embedded_kafka import EmbeddedKafka
from benchmarks.machine import machine
from benchmarks.processes import exit_on_signals
from experiments.elastic.files import Files, files
from experiments.elastic.lost_shard import AGES_S as LOST_AGES_S
from experiments.elastic.lost_shard import LostShard, lost_shards
from experiments.elastic.measuring import (
    MORE_AGES_S,
    Move,
    Recovery,
    Restart,
    moves,
    recoveries,
    restarts,
    standby,
)
from experiments.elastic.report import AGES_RATE, Measured, Row, plots, tables
from experiments.elastic.splitting import (
    Split,
    Threshold,
    Throughput,
    pause,
    thresholds,
    throughput,
)
from experiments.pages import write_page

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

PAGE: Final = Path("docs/experiments/elastic.md")
SIZES_MB: Final = (5, 50, 200, 500, 1_000)
LARGEST_MB: Final = 5_000
"""Size that is measured only when it is named: it takes more than 70 GB of disk."""
RATES: Final = (100, 500, 1_000)
SPLITS: Final = ((2, 30), (2, 50), (3, 50))
"""Numbers of nodes of a shard and its halves, and loads at which the stage is split by command, in
rows per second: a node can do 100, and with two nodes a half is beside the shard.
"""
NODES: Final = (1, 2, 4)
ABOVE: Final = (50, 60, 70, 80, 90)
"""Thresholds of the scaler that are compared, in percent."""
_KINDS: Final[dict[str, type[Any]]] = {
    each.__name__: each
    for each in (Files, Restart, Move, Recovery, LostShard, Split, Throughput, Threshold)
}
Run: TypeAlias = "Callable[[Callable[[], str], Path, Callable[[str], None]], Sequence[Row]]"


def _runs() -> dict[str, Run]:
    """Return all runs, by name."""
    found: dict[str, Run] = {}
    for size_mb in (*SIZES_MB, LARGEST_MB):
        for name, measure in (
            ("files", files),
            ("restart", restarts),
            ("standby", standby),
            ("move", moves),
        ):
            found[f"{name}-{size_mb}"] = partial(measure, size_mb=size_mb)
    for mode in ("store", "upstream_backup"):
        for rate in RATES:
            found[f"recovery-{mode}-{rate}"] = partial(recoveries, mode=mode, rows_per_s=rate)
    found["recovery-ages"] = partial(
        recoveries, mode="store", rows_per_s=AGES_RATE, ages_s=MORE_AGES_S
    )
    for nodes in (1, 2):
        for age_s in LOST_AGES_S:
            name = f"parallel-{nodes}-{age_s}"
            found[name] = partial(lost_shards, nodes=nodes, age_s=age_s)
    for nodes, rate in SPLITS:
        found[f"split-{nodes}-{rate}"] = partial(pause, rows_per_s=rate, nodes=nodes)
    for nodes in NODES:
        found[f"ramp-{nodes}"] = partial(throughput, nodes=nodes)
    for above in ABOVE:
        found[f"threshold-{above}"] = partial(thresholds, above=above)
    return found


def _measure(name: str, run: Run) -> Measured:
    """Measure one run."""

    def say(text: str) -> None:
        sys.stdout.write(f"{name}: {text}\n")
        sys.stdout.flush()

    with tempfile.TemporaryDirectory(prefix="anabranch-elastic-") as folder:
        kafka = EmbeddedKafka(Path(folder) / "kafka")
        try:
            rows = run(kafka.start, Path(folder) / "run", say)
        finally:
            kafka.stop(3.0)
    for row in rows:
        say(str(row))
    busy = os.getloadavg()[1] / (os.cpu_count() or 1)
    day = time.strftime("%Y-%m-%d", time.gmtime())
    return Measured(day, _commit(), machine(), busy, rows)


def _write(file: Path, measured: Measured) -> None:
    rows = [(type(row).__name__, asdict(row)) for row in measured.rows]
    file.write_text(json.dumps(measured._replace(rows=[])._asdict() | {"rows": rows}))


def _read(file: Path) -> Measured:
    fields = json.loads(file.read_text())
    return Measured(**fields | {"rows": [_KINDS[kind](**row) for kind, row in fields["rows"]]})


def _commit() -> str:
    """Return the commit that is measured, with a mark if the code differs from it."""
    git = ["git", "diff", "--quiet", "HEAD", "--", "services", "experiments"]
    is_changed = subprocess.run(git, check=False).returncode != 0
    command = ["git", "log", "-1", "--format=%h", "--abbrev=8"]
    found = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    return f"{found}, changed" if is_changed else found


def main() -> int:
    """Measure, then write the page and its plots. Return 1 if a result was wrong."""
    runs = _runs()
    parser = argparse.ArgumentParser(prog="python -m experiments.elastic", description=__doc__)
    parser.add_argument(
        "--run",
        action="append",
        choices=[*runs, *dict.fromkeys(name.partition("-")[0] for name in runs)],
        help="only this run, or all of this kind; may be given several times",
    )
    parser.add_argument(
        "--results",
        type=Path,
        default=Path(tempfile.gettempdir()) / "anabranch-elastic",
        help="folder of results",
    )
    parser.add_argument("--page", action="store_true", help="measure nothing, write the page")
    arguments = parser.parse_args()
    exit_on_signals()
    results: Path = arguments.results
    results.mkdir(parents=True, exist_ok=True)
    asked = arguments.run or [name for name in runs if not name.endswith(f"-{LARGEST_MB}")]
    wanted = [name for name in runs if name in asked or name.partition("-")[0] in asked]
    for name in [] if arguments.page else wanted:
        if not (file := results / f"{name}.json").exists():
            _write(file, _measure(name, runs[name]))
    files = [results / f"{name}.json" for name in runs]
    found = [_read(file) for file in files if file.exists()]
    write_page(PAGE, tables(found), plots(found))
    return int(any(row.wrong for each in found for row in each.rows))


if __name__ == "__main__":
    sys.exit(main())
