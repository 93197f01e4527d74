"""Parser of the few metrics that the page reads from a process's ``/metrics``.

Lines of other metrics are skipped before they are parsed: a process has hundreds, and the page
reads them every few seconds.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import isfinite
from typing import Final

_SAMPLE: Final = re.compile(r"([a-z_]+)\{(.*)\} (\S+)(?: \d+)?\Z")
_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_WANTED: Final = (
    "anabranch_records_total{",
    "anabranch_bucket_age_seconds_bucket{",
    "anabranch_stage_batch_seconds_bucket{",
    "anabranch_ingestion_rejected_total{",
    "anabranch_restarts{",
)
_LINES_MAX: Final = 10_000
"""Number of lines that are read of one process's metrics; the rest is ignored, so that a wrong
answer cannot keep the page busy.
"""

Bars = dict[float, float]
"""Histogram: cumulative count up to each bound in seconds."""


@dataclass(slots=True)
class ProcessMetrics:
    """Metrics of one process."""

    records: dict[tuple[str, str], float] = field(default_factory=dict)
    """Number of records by (name, direction). A node counts for each of its replicas."""
    rejected: dict[str, float] = field(default_factory=dict)
    """Number of dead letters by reason."""
    ages: dict[str, Bars] = field(default_factory=dict)
    """Age of a bucket when it is closed, by name."""
    batches: dict[str, Bars] = field(default_factory=dict)
    """Duration of a batch, by ``STAGE.REPLICA``."""
    restarts: int = 0


def figures_of(text: str) -> ProcessMetrics:
    """Parse the text of ``/metrics``. Lines that cannot be parsed are ignored."""
    found = ProcessMetrics()
    for line in text.splitlines()[:_LINES_MAX]:
        if not line.startswith(_WANTED):
            continue
        sample = _SAMPLE.fullmatch(line)
        if sample is None:
            continue
        labels = dict(_LABEL.findall(sample[2]))
        try:
            value = float(sample[3])
            bound = float(labels.get("le", "0"))
        except ValueError:
            continue
        if not isfinite(value):
            continue
        name = labels.get("name", "")
        match sample[1]:
            case "anabranch_records_total":
                found.records[name, labels.get("direction", "")] = value
            case "anabranch_ingestion_rejected_total":
                found.rejected[labels.get("reason", "")] = value
            case "anabranch_bucket_age_seconds_bucket":
                found.ages.setdefault(name, {})[bound] = value
            case "anabranch_stage_batch_seconds_bucket":
                replica = f"{labels.get('stage', '')}.{labels.get('replica', '')}"
                found.batches.setdefault(replica, {})[bound] = value
            case _:
                found.restarts = max(found.restarts, int(value))
    return found
