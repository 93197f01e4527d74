"""Rounds without Python's cycle collector.

A round makes hundreds of thousands of objects that die by their reference counts. The collector
goes by how many were made, so it would look through the living ones again and again and find no
cycle: a sixth of the processor time of ingestion went there.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_collection() -> Iterator[None]:
    """No collection inside; afterwards it is as it was."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
