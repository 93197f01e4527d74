"""``python -m experiments.backtracking``: the table of the published system, none /
acknowledgement / ASK, at three rates.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict
from pathlib import Path
from typing import Final

from anabranch.local.embedded_kafka import EmbeddedKafka
from benchmarks.processes import exit_on_signals
from experiments.backtracking.disciplines import Discipline, Sender, create_topics, read_received
from experiments.backtracking.figures import Figures, figures, table

_WARM_S: Final = 2.0
_REST_S: Final = 2.0
"""After the last tuple, for what is under way."""


class _Receivers:
    """The receiver, and the next one after it was killed."""

    def __init__(self, kafka: str, name: str, folder: Path, discipline: Discipline) -> None:
        self._command = [
            sys.executable,
            "-m",
            "experiments.backtracking.receiver",
            kafka,
            name,
            str(folder),
            discipline.value,
        ]
        self._ready = folder / "ready"
        self.killed_s = 0.0
        self._process = subprocess.Popen(self._command)

    def wait_ready(self) -> None:
        while not self._ready.exists():
            if self._process.poll() is not None:
                message = "the receiver ended"
                raise RuntimeError(message)
            time.sleep(0.05)

    def kill_and_restart(self) -> None:
        self.killed_s = time.time()
        self.kill()
        self._process = subprocess.Popen(self._command)

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


def measure(
    kafka: str,
    folder: Path,
    discipline: Discipline,
    rate: int,
    calm_s: float,
    after_s: float,
    pace_ms: float,
) -> Figures:
    """One run: ``calm_s`` without a failure, then the receiver is killed and started again,
    then ``after_s`` more.
    """
    name = f"{discipline.value}-{rate}-{time.time_ns()}"
    place = folder / name
    place.mkdir(parents=True)
    create_topics(kafka, name)
    sender, receivers = Sender(kafka, name, discipline), _Receivers(kafka, name, place, discipline)
    try:
        receivers.wait_ready()
        begin_s = time.time() + 0.5
        timer = threading.Timer(
            begin_s + _WARM_S + calm_s - time.time(), receivers.kill_and_restart
        )
        timer.start()
        sender.run(begin_s, rate, _WARM_S + calm_s + after_s, pace_ms)
        timer.join()
        time.sleep(_REST_S)
    finally:
        receivers.kill()
        sender.close()
    return figures(
        discipline.value,
        read_received(place / "received"),
        begin_s=begin_s,
        rate=rate,
        warm_s=begin_s + _WARM_S,
        killed_s=receivers.killed_s,
        sent=sender.sent,
        repeated=sender.repeated,
    )


def main() -> int:
    """Run. 0: nothing was lost or received twice where something is done about it."""
    parser = argparse.ArgumentParser(prog="python -m experiments.backtracking", description=__doc__)
    parser.add_argument(
        "--rates", nargs="+", type=int, default=[1_000, 20_000, 200_000], help="tuples per second"
    )
    parser.add_argument(
        "--disciplines",
        nargs="+",
        type=Discipline,
        choices=list(Discipline),
        default=list(Discipline),
    )
    parser.add_argument(
        "--pace-ms",
        type=float,
        default=0.0,
        help="least time between batches; ingestion has APPEND_EVERY_MS",
    )
    parser.add_argument(
        "--calm", type=float, default=8.0, metavar="SECONDS", help="without a failure"
    )
    parser.add_argument(
        "--after", type=float, default=6.0, metavar="SECONDS", help="after the receiver was killed"
    )
    parser.add_argument("--output", type=Path, help="file for the figures, as JSON lines")
    arguments = parser.parse_args()
    exit_on_signals()
    folder = Path(tempfile.mkdtemp(prefix="anabranch-backtracking-"))
    kafka, found = EmbeddedKafka(folder / "kafka"), list[Figures]()
    kafka.start()
    try:
        for rate in arguments.rates:
            for discipline in arguments.disciplines:
                found.append(
                    measure(
                        kafka.address,
                        folder,
                        discipline,
                        rate,
                        arguments.calm,
                        arguments.after,
                        arguments.pace_ms,
                    )
                )
                print(table(found[-1:]).splitlines()[-1], flush=True)
    finally:
        kafka.stop()
        shutil.rmtree(folder, ignore_errors=True)
    print(table(found))
    if arguments.output is not None:
        arguments.output.write_text("".join(json.dumps(asdict(each)) + "\n" for each in found))
    return (
        0
        if all(
            not (each.lost or each.twice) for each in found if each.discipline != Discipline.NONE
        )
        else 1
    )


if __name__ == "__main__":
    sys.exit(main())
