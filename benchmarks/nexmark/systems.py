"""The systems that answer the queries, each started as a user would."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Final, Literal, get_args

from benchmarks.flink.environment import flink
from benchmarks.nexmark.queries import path_of
from benchmarks.plain_pyspark.environment import plain_pyspark
from benchmarks.systems import Running, flink_environment, pyspark_environment

System = Literal["anabranch", "pyspark", "flink"]
SYSTEMS: Final[tuple[System, ...]] = get_args(System)
OUT_OF_ORDERNESS_MS: Final = 500
"""Lateness that all systems allow, in ms. The events come in order."""


def pipeline_copy(query: str, folder: Path, source: str, answers: str) -> Path:
    """Copy the pipeline file of ``query`` to ``folder``, with topics of this session."""
    path = folder / "pipeline.yaml"
    text = path_of(query).read_text()
    for old, new in (
        (f"pipeline: nexmark-{query}\n", f"pipeline: {answers.replace('.', '-')}\n"),
        ("topics: [events]", f"topics: [{source}]"),
        ("topic: answers,", f"topic: {answers},"),
    ):
        if old not in text:
            raise ValueError(f"{path_of(query)} has no line {old!r}: this module replaces it")
        text = text.replace(old, new)
    path.write_text(text)
    shutil.copy(path_of(query).with_name("event.avsc"), folder)
    return path


def _module(name: str) -> list[str]:
    """Return the words that make a Python run a module of this package."""
    return ["-m", f"{__package__}.{name}"]


def start(
    system: System, query: str, kafka: str, source: str, answers: str, folder: Path
) -> Running:
    """Start ``system`` on ``query``, from the topic ``source`` to ``answers``.

    Raises:
        ConfigurationError: what the system needs could not be installed.
    """
    given = [
        *("--query", query, "--kafka", kafka, "--input", source, "--output", answers),
        *("--checkpoint", str(folder / "checkpoint")),
        *("--out-of-orderness-ms", str(OUT_OF_ORDERNESS_MS)),
    ]
    match system:
        case "pyspark":
            plain = plain_pyspark()
            command = [str(plain.python), *_module("plain_job"), *given]
            command += ["--jars", ",".join(map(str, plain.jars))]
            environment = pyspark_environment()
        case "flink":
            where = flink()
            command = [str(where.python), *_module("flink_job"), *given]
            command += ["--connector", str(where.connector)]
            environment = flink_environment()
        case _:
            path = pipeline_copy(query, folder, source, answers)
            command = [str(Path(sys.executable).with_name("anabranch")), "up", "-f", str(path)]
            command += ["--kafka", kafka, "--state-dir", str(folder / "state")]
            environment = dict(os.environ)
    return Running(system, command, environment, folder)
