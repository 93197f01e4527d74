"""Suspension of Python's cycle collector during a round.

A round allocates hundreds of thousands of objects that are freed by their reference counts. The
collector runs after a number of allocations, so it would traverse the live objects repeatedly and
find no cycle: it took a sixth of ingestion's processor time.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """Suspend the cycle collector inside the context; restore its state afterwards."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
