"""One processor for each process that runs simulations."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def _one_processor() -> Iterator[None]:
    """Keep all threads of a simulation on one processor, another one in each test process. Only one
    of them runs at a time, and to hand over to one that sleeps on another processor takes up to a
    fifth of the processor time of a run.
    """
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    allowed = os.sched_getaffinity(0)
    process = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    os.sched_setaffinity(0, {sorted(allowed)[process % len(allowed)]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, allowed)
