"""RESULTS.md: the tables, and what they were measured with."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
import time
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

from anabranch.adapters.spark.class_archive import place
from anabranch.adapters.system.java import find_java
from anabranch.local.kafka_jars import KAFKA_VERSION
from benchmarks.flink.environment import CONNECTOR, FLINK_VERSION
from benchmarks.machine import machine
from benchmarks.plain_pyspark.environment import PYSPARK_VERSION
from benchmarks.workload import JITTER_MS, JOBS, OUT_OF_ORDERNESS_MS, PARTITIONS, Job

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.session import Outcome, Phase, Plan


def write_report(
    path: Path, outcomes: Sequence[Outcome], plan: Plan, arguments: Sequence[str]
) -> None:
    """Write the report of the sessions so far."""
    lines = ["# Measured", "", *_settings(plan, arguments), ""]
    for job in JOBS:
        for title, phase in (("cold drain", "cold"), ("warm drain", "warm")):
            lines += _drain_table(outcomes, job, title, phase)
        lines += _steady_table(outcomes, job)
    lines += _stages(outcomes)
    failed = [
        f"- {outcome.system} {outcome.job}: {outcome.error.splitlines()[0][:300]}"
        for outcome in outcomes
        if outcome.error
    ]
    if failed:
        lines += ["## Sessions that failed", "", *failed, ""]
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text("\n".join(lines))
    unfinished.replace(path)


def _settings(plan: Plan, arguments: Sequence[str]) -> list[str]:
    versions = f"Kafka {KAFKA_VERSION}, Java {_java_version()}, Python {platform.python_version()}"
    own = f"PySpark {importlib.metadata.version('pyspark')} in anabranch"
    return [
        (
            f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())},"
            f" `{' '.join(['python -m benchmarks.run', *arguments])}`"
        ),
        "",
        f"- Machine: {machine()}; broker, load generator and the measured system share it.",
        (
            f"- Versions: {versions}, {own}, PySpark {PYSPARK_VERSION} with its Kafka connector as"
            f" plain PySpark and in real-time mode, Flink {FLINK_VERSION} with its connector"
            f" {CONNECTOR[2]}."
        ),
        (
            f"- {plan.records} JSON records of about 100 bytes per backlog, 100 s of event time,"
            f" {PARTITIONS} partitions, lz4; out of order by less than {JITTER_MS} ms; a fresh"
            " broker for each run; of several runs min / median / max."
        ),
        (
            "- Plain PySpark: local[2], 2 GiB heap, maxOffsetsPerTrigger 500 000, 2 shuffle"
            " partitions, FileSystemBasedCheckpointFileManager, default state store (in memory,"
            " with snapshots), no trigger interval. anabranch: `anabranch up -f"
            f" benchmarks/jobs/JOB.yaml`, {'with' if place().archive.exists() else 'without'} the"
            " archive of Spark's classes (`make classes`)."
        ),
        (
            "- Flink: a job in SQL by PyFlink on a cluster within one process, parallelism 2, 2 GiB"
            " heap, state in memory, a checkpoint every 10 s, at least once, as plain PySpark. Its"
            " watermarks are per partition. Real-time mode: local[4], as it has a task for each"
            " partition at once."
        ),
        (
            f"- Windowed: both systems allow {OUT_OF_ORDERNESS_MS} ms of out_of_orderness;"
            f" anabranch's buckets are 250 ms wide. Stateless: anabranch allows {JITTER_MS} ms and"
            " has buckets of 100 ms; plain PySpark has neither there, as it gives its results in"
            " no particular order."
        ),
        (
            "- Cold: from the start of the system's first process to the append of the last result."
            " Warm: from the instant at which the second backlog becomes readable (commit of the"
            " transaction that wrote it) to the append of the last result. Steady: append time of a"
            " result minus the scheduled time of its record (windowed: minus the window's end);"
            " `seen` is the same at a read_committed consumer."
        ),
        (
            "- CPU and memory: all processes of the system, without the broker; anabranch's include"
            " its Redis and its supervisor."
        ),
        (
            "- Others' CPU: used on the machine by what is no part of the benchmark. Where it is"
            " not near zero, compare CPU seconds, not times."
        ),
        (
            "- Lost: input records that no result accounts for. Wrong: missing + duplicated +"
            " different results."
        ),
    ]


def _java_version() -> str:
    printed = subprocess.run(
        [str(find_java().executable), "-version"], capture_output=True, text=True, check=False
    ).stderr
    return printed.split('"')[1] if '"' in printed else "?"


def _phases(outcomes: Sequence[Outcome], job: Job, name: str) -> dict[str, list[Phase]]:
    found: dict[str, list[Phase]] = {}
    for outcome in outcomes:
        if outcome.job == job and name in outcome.phases:
            found.setdefault(outcome.system, []).append(outcome.phases[name])
    return found


def _spread(values: Sequence[float], digits: int = 0) -> str:
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return " / ".join(f"{value:.{digits}f}" for value in (min(values), median(values), max(values)))


def _faults(phases: Sequence[Phase]) -> str:
    lost = sum(phase.verdict["lost"] for phase in phases)
    wrong = sum(
        phase.verdict["missing"] + phase.verdict["duplicated"] + phase.verdict["wrong"]
        for phase in phases
    )
    return f"{lost} | {wrong} of {sum(phase.verdict['expected'] for phase in phases)}"


def _drain_table(outcomes: Sequence[Outcome], job: Job, title: str, name: str) -> list[str]:
    phases = _phases(outcomes, job, name)
    if not phases:
        return []
    own = median(phase.rate for phase in phases["pyspark"]) if "pyspark" in phases else None
    lines = [
        f"## {job}: {title}",
        "",
        (
            "| system | runs | k records/s | x plain PySpark | seconds | CPU s | broker's CPU s |"
            " others' CPU s | peak PSS MiB | peak RSS MiB | lost | wrong results |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system, runs in phases.items():
        ratio = f"{median(run.rate for run in runs) / own:.2f}" if own else "-"
        lines.append(
            f"| {system} | {len(runs)} | {_spread([run.rate / 1000 for run in runs])} | {ratio} |"
            f" {_spread([run.seconds for run in runs], 1)} |"
            f" {_spread([run.cpu_s for run in runs], 1)} |"
            f" {_spread([run.broker_cpu_s for run in runs], 1)} |"
            f" {_spread([run.others_cpu_s for run in runs], 1)} |"
            f" {max(run.peak_pss_mib for run in runs):.0f} |"
            f" {max(run.peak_rss_mib for run in runs):.0f} | {_faults(runs)} |"
        )
    return [*lines, ""]


def _steady_table(outcomes: Sequence[Outcome], job: Job) -> list[str]:
    phases = {
        system: [run for run in runs if run.p50_ms is not None]
        for system, runs in _phases(outcomes, job, "steady").items()
    }
    phases = {system: runs for system, runs in phases.items() if runs}
    if not phases:
        return []
    own = median(run.p50_ms or 0.0 for run in phases["pyspark"]) if "pyspark" in phases else None
    lines = [
        f"## {job}: steady load",
        "",
        (
            "| system | runs | p50 ms | x plain PySpark | p99 ms | seen p50 ms | seen p99 ms | CPU"
            " s | others' CPU s | peak PSS MiB | lost | wrong results |"
        ),
        "|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system, runs in phases.items():
        ratio = f"{median(run.p50_ms or 0.0 for run in runs) / own:.2f}" if own else "-"
        lines.append(
            f"| {system} | {len(runs)} | {_spread([run.p50_ms or 0.0 for run in runs])} | {ratio} |"
            f" {_spread([run.p99_ms or 0.0 for run in runs])} |"
            f" {_spread([run.seen_p50_ms or 0.0 for run in runs])} |"
            f" {_spread([run.seen_p99_ms or 0.0 for run in runs])} |"
            f" {_spread([run.cpu_s for run in runs], 1)} |"
            f" {_spread([run.others_cpu_s for run in runs], 1)} |"
            f" {max(run.peak_pss_mib for run in runs):.0f} | {_faults(runs)} |"
        )
    return [*lines, ""]


def _stages(outcomes: Sequence[Outcome]) -> list[str]:
    """Describe where the time of a warm drain goes: CPU by process, and when each stream was
    written.
    """
    lines: list[str] = []
    for job in JOBS:
        for system, runs in _phases(outcomes, job, "warm").items():
            middle = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
            cpu = ", ".join(
                f"{kind} {seconds:.1f}"
                for kind, seconds in sorted(
                    middle.cpu_by_process.items(), key=lambda item: -item[1]
                )
            )
            spans = ", ".join(
                f"{topic} {first:.1f}-{last:.1f}" for topic, (first, last) in middle.spans.items()
            )
            lines.append(f"| {job} | {system} | {middle.seconds:.1f} | {cpu} | {spans or '-'} |")
    if not lines:
        return []
    head = [
        "## Where the time goes (warm drain, the median run)",
        "",
        (
            "| job | system | seconds | CPU s by process | first-last boundary record with blocks,"
            " s (stream.writer) |"
        ),
    ]
    return [*head, "|---|---|---|---|---|", *lines, ""]
