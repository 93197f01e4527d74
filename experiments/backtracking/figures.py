"""From what a receiver noted to figures."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from experiments.backtracking.disciplines import Received


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of one run."""

    discipline: str
    rate: int
    """Tuples per second that were due."""
    throughput: float
    """Tuples per second that were received in the part of the run without a failure."""
    p50_ms: float
    p95_ms: float
    p99_ms: float
    first_s: float
    """From the kill to the first batch that the next receiver takes."""
    caught_up_s: float
    """From the kill to the first batch that is no later than batches were before it; nan:
    none was.
    """
    lost: int
    """Tuples that were sent and never received."""
    twice: int
    """Tuples that were received more than once."""
    repeated: int
    """Batches that the sender repeated."""


def latencies_ms(received: list[Received], begin_s: float, rate: int) -> np.ndarray:
    """Return the latency of every tuple: from when it was due until the receiver had it."""
    parts = [
        r.at_us / 1000 - 1000 * (begin_s + np.arange(r.first, r.first + r.rows) / rate)
        for r in received
    ]
    return np.concatenate(parts) if parts else np.empty(0)


def figures(
    discipline: str,
    received: list[Received],
    *,
    begin_s: float,
    rate: int,
    warm_s: float,
    killed_s: float,
    sent: int,
    repeated: int,
) -> Figures:
    """``warm_s`` and ``killed_s``: the part without a failure, wall clock."""
    calm = [r for r in received if warm_s * 1e6 <= r.at_us < killed_s * 1e6]
    after = [r for r in received if r.at_us >= killed_s * 1e6]
    found = latencies_ms(calm, begin_s, rate)
    p50, p95, p99 = np.percentile(found, (50, 95, 99)) if len(found) else (np.nan,) * 3
    caught_up = [r for r in after if latencies_ms([r], begin_s, rate).max() <= max(p99, 2 * p50)]
    counts = np.zeros(sent, np.int32)
    for r in received:
        counts[r.first : r.first + r.rows] += 1
    return Figures(
        discipline,
        rate,
        sum(r.rows for r in calm) / (killed_s - warm_s),
        float(p50),
        float(p95),
        float(p99),
        after[0].at_us / 1e6 - killed_s if after else np.nan,
        caught_up[0].at_us / 1e6 - killed_s if caught_up else np.nan,
        int((counts == 0).sum()),
        int((counts > 1).sum()),
        repeated,
    )


def table(rows: list[Figures]) -> str:
    """Return the figures as a Markdown table."""
    lines = [
        (
            "| rate (tuples/s) | discipline | throughput (tuples/s) | p50 (ms) | p95 (ms) | p99"
            " (ms) | first result (s) | caught up (s) | lost | twice |"
        ),
        "|---:|---|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    lines += [
        f"| {r.rate:,} | {r.discipline} | {r.throughput:,.0f} | {r.p50_ms:.0f} | {r.p95_ms:.0f} |"
        f" {r.p99_ms:.0f} | {r.first_s:.2f} | {r.caught_up_s:.2f} | {r.lost:,} | {r.twice:,} |"
        for r in rows
    ]
    return "\n".join(lines).replace("nan", "-")
