"""Stages and pipelines of which a test looks at a few facts: it names these alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from anabranch.pipeline.model import Pipeline, Stage


def stage(name: str, *reads: str, **facts: Any) -> Stage:
    return Stage(name=name, participant="north", reads=list(reads), transform=["m:f"], **facts)


def pipeline(*stages: Stage, **facts: Any) -> Pipeline:
    """Return pipeline ``p``."""
    plain: dict[str, Any] = {
        "path": Path("p.yaml"),
        "bucket_ms": 100,
        "max_delay_ms": 1_000,
        "partitions": 1,
        "sources": {},
        "outputs": {},
    }
    return Pipeline(name="p", stages={each.name: each for each in stages}, **plain | facts)
