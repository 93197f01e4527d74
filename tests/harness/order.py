"""Order in which the tests of a session start: the files that take longest first.

A long test that starts last leaves the other processes without work until it ends. Where tests or
files are dealt out one by one (``--dist worksteal``, ``--dist loadfile``), those that start first
are those that end alone least.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

LONGEST: Final = (
    "spark/test_overload.py",
    "spark/test_split.py",
    "spark/test_new_pipeline.py",
    "spark/test_scaling.py",
    "spark/test_checkpoint_store.py",
    "spark/test_stage_shards.py",
    "spark/test_up.py",
    "spark/test_moves.py",
    "spark/test_recovery.py",
    "spark/test_wide_rows.py",
    "spark/test_stage_crashes.py",
    "spark/test_remote_definition.py",
    "spark/test_node.py",
    "spark/test_linear_road.py",
    "spark/test_foreign_records.py",
    "spark/test_packaged_java.py",
    "spark/test_shards.py",
    "spark/test_branches.py",
    "security/test_broker_access.py",
    "security/test_connections.py",
    "security/test_secrets.py",
    "security/test_federation_access.py",
    "integration/test_agents.py",
    "integration/test_contract_broker.py",
    "integration/test_spare_process.py",
    "integration/test_content_contracts.py",
    "integration/test_crash_points.py",
    "integration/test_ingestion.py",
    "integration/test_drills.py",
    "integration/test_live_delivery.py",
    "integration/test_output_resharding.py",
    "integration/test_resharding.py",
    "conformance/test_engine.py",
    "simulation/test_simulation.py",
)
"""Files below ``tests`` with a test that takes more than half a minute beside others, the longest
of each folder first. The end of a run names its longest tests.
"""
_TESTS: Final = Path(__file__).parents[1]


def sort(items: list[pytest.Item]) -> None:
    """Put the tests of LONGEST first, and leave the order within each file, and of all others."""
    places = {_TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))
