"""``make bench-batch``: what a small batch costs Spark, and the share of each setting that lowers
it, to benchmarks/BATCH.md.

One Spark runs two queries of the shape that stages have: the union of two inputs with a condition,
and a window by key, 950 rows/s per input, a tick every 250 ms. Kafka and the services are not in
it: what is left is the fixed cost. First with all settings as they are, then with one of them
changed at a time, each in a process and a Java of its own, one after the other. Measured from
``--first`` to ``--last`` seconds after the queries were started; 600 to 660 tells what it is once
Java has compiled what it will.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as F  # noqa: N812 - the customary name

from anabranch.adapters.spark import bare_files
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.scratch import Scratch
from anabranch.protocol.errors import Unavailable
from benchmarks.machine import commit, machine
from benchmarks.paced_source import PacedSource
from benchmarks.processes import exit_on_signals, machine_cpu_s, name_of, tree

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from anabranch.adapters.spark.settings import Compilers

_ROOT: Final = Path(__file__).parents[1]
_LOOK_S: Final = 2.0
_COUNTED: Final = {"jdk.ProcessStart": "commands", "jdk.Compilation": "compiled"}
"""Java's own records, and how they are called here."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One way to run it."""

    changed: dict[str, str] = field(default_factory=dict)
    compilers: Compilers = "quick"


VARIANTS: Final = {
    "as it is, quick compiler": Variant(),
    "as it is, full compilers": Variant(compilers="full"),
    "Hadoop's own local files": Variant(
        {"spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem"}
    ),
    "Spark's sums beside Hadoop's": Variant(
        {"spark.sql.streaming.checkpoint.fileChecksum.enabled": "true"}
    ),
    "both, as Spark does by default": Variant(
        {
            "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.LocalFileSystem",
            "spark.sql.streaming.checkpoint.fileChecksum.enabled": "true",
        }
    ),
    "PySpark's own daemon": Variant({"spark.python.daemon.module": "pyspark.daemon"}),
}


@dataclass(frozen=True, slots=True)
class Cost:
    """Cost of one batch, on average."""

    batches: int
    java_ms: float
    """Processor time of Java, what it has compiled included, without commands that it forked."""
    forked_ms: float
    python_ms: float
    """Processor time of the task workers and of the readers that plan, in ms."""
    driver_ms: float
    commands: float
    compiled: float
    compiling_ms: float
    between_ms: float
    """Between two batches of one query."""
    others: float
    """Processors that were busy for others on the machine."""


@dataclass(frozen=True, slots=True)
class _Moment:
    at_s: float
    batches: int
    java_s: float
    forked_s: float
    python_s: float
    driver_s: float
    compiling_s: float
    machine_s: float


class _Stages:
    """The two queries and what is counted of them."""

    def __init__(self, session: SparkSession, folder: Path) -> None:
        self._session = session
        self._jvm: Any = session._jvm  # noqa: SLF001 - no other way to ask Java
        self._java: int = session._sc._gateway.proc.pid  # noqa: SLF001
        self._lock = threading.Lock()
        self._python_s: dict[int, float] = {}
        self._batches = 0
        session.dataSource.register(PacedSource)
        clean = (
            self._input("a")
            .union(self._input("b"))
            .where("key % 7 <> 0")
            .select("key", "note", "event_time")
        )
        groups = self._input("c").groupBy(
            F.window("event_time", "5 seconds").alias("window"), "key"
        )
        windows = groups.agg(F.count("*").alias("rows"), F.max("note").alias("note"))
        windows = windows.select("key", "rows", "note", F.col("window.end").alias("event_time"))
        self.queries = [
            frame.writeStream.foreachBatch(self._take)
            .outputMode("append")
            .option("checkpointLocation", str(folder / name))
            .start()
            for name, frame in (("clean", clean), ("windows", windows))
        ]

    def _input(self, name: str) -> DataFrame:
        """Build an input as ``adapters.spark.query`` does."""
        frame = (
            self._session.readStream.format(PacedSource.name())
            .load()
            .withWatermark("event_time", "0 seconds")
        )
        marked = frame.where("NOT (marker AND event_time IS NOT NULL)")
        return marked.observe(f"bench_{name}", F.count(F.lit(1)).alias("rows")).drop("marker")

    def _take(self, frame: DataFrame, _batch: int) -> None:
        frame.toArrow()
        with self._lock:
            self._batches += 1

    def wait(self, until_s: float) -> None:
        """Until then.

        Raises:
            Unavailable: a query has ended.
        """
        while time.time() < until_s:
            for query in self.queries:
                if query.exception() is not None:
                    raise Unavailable(str(query.exception()))
            self._look()
            time.sleep(min(_LOOK_S, max(0.0, until_s - time.time())))

    def _look(self) -> float:
        """Processor seconds of the workers so far. Spark ends those that have been idle for a
        minute, and nothing tells afterwards what they took.
        """
        for pid in tree(self._java):
            if name_of(pid) == "spark python":
                self._python_s[pid] = max(self._python_s.get(pid, 0.0), _own_and_waited_s(pid)[0])
        return sum(self._python_s.values())

    def moment(self) -> _Moment:
        beans = self._jvm.java.lang.management.ManagementFactory
        compiling = beans.getCompilationMXBean().getTotalCompilationTime()
        own, forked = _own_and_waited_s(self._java)
        return _Moment(
            time.time(),
            self._batches,
            own,
            forked,
            self._look(),
            time.process_time(),
            compiling / 1000,
            machine_cpu_s(),
        )

    def end(self) -> None:
        """Java and all below it; a query that is stopped in the middle of a batch would only
        complain at length.
        """
        java = self._session._sc._gateway.proc  # noqa: SLF001
        java.kill()
        java.wait()

    def recording(self) -> Any:
        """Java's flight recorder, for what nothing else counts."""
        recording = self._jvm.jdk.jfr.Recording()
        for event in _COUNTED:
            recording.enable(event).withoutStackTrace().withThreshold(
                self._jvm.java.time.Duration.ZERO
            )
        recording.start()
        return recording

    def counted(self, recording: Any, folder: Path) -> dict[str, int]:
        recording.stop()
        path = self._jvm.java.io.File(str(folder / "recording.jfr")).toPath()
        recording.dump(path)
        counts = dict.fromkeys(_COUNTED.values(), 0)
        for event in self._jvm.jdk.jfr.consumer.RecordingFile.readAllEvents(path):
            name = event.getEventType().getName()
            if name in _COUNTED:
                counts[_COUNTED[name]] += 1
        return counts


def _own_and_waited_s(pid: int) -> tuple[float, float]:
    """Processor seconds of a process, and of those that it has started and waited for."""
    try:
        fields = [
            int(text)
            for text in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]
        ]
    except OSError:
        return 0.0, 0.0
    return sum(fields[:2]) / 100, sum(fields[2:]) / 100


def measure(variant: Variant, first_s: float, last_s: float, folder: Path) -> Cost:
    """Run one variant in this process.

    Raises:
        Unavailable: a query has ended.
    """
    session = start_session(
        "bench-batch",
        master="local[2]",
        memory="1g",
        state_partitions=1,
        import_roots=[str(_ROOT)],
        scratch=Scratch(folder / "scratch"),
        compilers=variant.compilers,
        changed=variant.changed,
    )
    stages = _Stages(session, folder)
    begun_s = time.time()
    stages.wait(begun_s + first_s)
    recording, before = stages.recording(), stages.moment()
    stages.wait(begun_s + last_s)
    after = stages.moment()
    counts = stages.counted(recording, folder)
    stages.end()
    batches, passed_s = after.batches - before.batches, after.at_s - before.at_s
    if not batches:
        raise Unavailable("no batch was done")

    def ms(name: str) -> float:
        return round(float(getattr(after, name) - getattr(before, name)) / batches * 1000, 1)

    own_s = sum(
        getattr(after, name) - getattr(before, name)
        for name in ("java_s", "forked_s", "python_s", "driver_s")
    )
    return Cost(
        batches,
        ms("java_s"),
        ms("forked_s"),
        ms("python_s"),
        ms("driver_s"),
        round(counts["commands"] / batches, 2),
        round(counts["compiled"] / batches, 1),
        ms("compiling_s"),
        round(passed_s / batches * len(stages.queries) * 1000),
        round((after.machine_s - before.machine_s - own_s) / passed_s, 2),
    )


def write(path: Path, costs: dict[str, list[Cost]], first_s: float, last_s: float) -> None:
    """Write the report of the runs so far."""
    lines = [
        "# What a small batch costs Spark, measured",
        "",
        (
            f"{time.strftime('%Y-%m-%d', time.gmtime())}, at {commit()}, `make"
            f" bench-batch`; {machine()}. Two queries in one Spark, from {first_s:g} to"
        ),
        (
            f"{last_s:g} s after their start; per batch, in ms of processor time, medians of the"
            " runs. Others: processors that were busy for what is not part of it;"
        ),
        (
            "where that is not near zero compare processor time only. `benchmarks/batch.py` says"
            " what is run."
        ),
        "",
        (
            "| | runs | Java | of it compiling | forked commands | Python workers | driver |"
            " commands | methods compiled | ms between batches | others |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, runs in costs.items():
        middle = {
            key: sorted(asdict(run)[key] for run in runs)[len(runs) // 2] for key in Cost.__slots__
        }
        cells = [
            middle[key]
            for key in (
                "java_ms",
                "compiling_ms",
                "forked_ms",
                "python_ms",
                "driver_ms",
                "commands",
                "compiled",
                "between_ms",
                "others",
            )
        ]
        lines.append(f"| {name} | {len(runs)} | {' | '.join(f'{cell:g}' for cell in cells)} |")
    path.write_text("\n".join(lines) + "\n")


def main() -> int:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--first", type=float, default=50.0, help="seconds after the start of the queries"
    )
    parser.add_argument("--last", type=float, default=90.0)
    parser.add_argument("--runs", type=int, default=1)
    parser.add_argument("--variants", nargs="+", choices=VARIANTS, default=list(VARIANTS))
    parser.add_argument("--output", type=Path, default=Path(__file__).with_name("BATCH.md"))
    parser.add_argument(
        "--here", choices=VARIANTS, help=argparse.SUPPRESS
    )  # one variant, in this process
    arguments = parser.parse_args()
    exit_on_signals()
    if arguments.here:
        with tempfile.TemporaryDirectory() as folder:
            print(
                json.dumps(
                    asdict(
                        measure(
                            VARIANTS[arguments.here], arguments.first, arguments.last, Path(folder)
                        )
                    )
                ),
                flush=True,
            )
        return 0
    bare_files.fetch()
    costs: dict[str, list[Cost]] = {}
    for run in range(arguments.runs):
        for name in arguments.variants:
            command = [sys.executable, "-m", "benchmarks.batch", "--here", name]
            command += ["--first", str(arguments.first), "--last", str(arguments.last)]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, cwd=_ROOT)
            cost = Cost(**json.loads(done.stdout.splitlines()[-1]))
            costs.setdefault(name, []).append(cost)
            print(f"run {run + 1}, {name}: {cost}", flush=True)
            write(arguments.output, costs, arguments.first, arguments.last)
    return 0


if __name__ == "__main__":
    sys.exit(main())
