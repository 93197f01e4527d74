"""Small Spark sessions for tests that run no node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pyspark.sql import SparkSession

from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.scratch import Scratch


@contextmanager
def small_session(
    scratch: Path,
    import_roots: Sequence[str] = (),
    *,
    cores: int = 1,
    state_partitions: int = 1,
) -> Iterator[SparkSession]:
    """Start Spark in this process. Leaving the block ends it."""
    session = start_session(
        "test",
        master=f"local[{cores}]",
        memory="512m",
        state_partitions=state_partitions,
        import_roots=[*import_roots],
        scratch=Scratch(scratch),
    )
    try:
        yield session
    finally:
        session.stop()
