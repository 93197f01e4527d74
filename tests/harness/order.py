"""Order in which the tests of a session start: the files that take longest first.

A long test that starts last leaves the other processes without work until it ends. Where tests or
files are dealt out one by one (``--dist worksteal``, ``--dist loadfile``), those that start first
are those that end alone least.

Where files are dealt out, those of SHARING go to one process together: what they share is started
once.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest
from xdist.scheduler import LoadFileScheduling

LONGEST: Final = (
    "spark/test_overload.py",
    "spark/test_split.py",
    "spark/test_new_pipeline.py",
    "spark/test_stages.py",
    "spark/test_scaling.py",
    "spark/test_checkpoint_store.py",
    "spark/test_foreign_records.py",
    "spark/test_up.py",
    "spark/test_moves.py",
    "spark/test_recovery.py",
    "spark/test_wide_rows.py",
    "spark/test_stage_crashes.py",
    "spark/test_remote_definition.py",
    "spark/test_node.py",
    "spark/test_plan_facts.py",
    "spark/test_examples.py",
    "spark/test_output_bounds.py",
    "spark/test_packaged_java.py",
    "spark/test_branches.py",
    "spark/test_many_groups.py",
    "spark/test_auditor.py",
    "integration/test_crash_points.py",
    "security/test_secrets.py",
    "conformance/test_engine.py",
    "integration/test_ingestion.py",
    "security/test_hostile_input.py",
    "integration/test_contract_broker.py",
    "integration/test_content_contracts.py",
    "integration/test_spare_process.py",
    "integration/test_embedded_kafka.py",
    "integration/test_catalog.py",
    "integration/test_drills.py",
    "integration/test_auditor.py",
    "security/test_broker_access.py",
    "integration/test_agents.py",
    "security/test_federation_access.py",
    "integration/test_clusters.py",
    "integration/test_live_delivery.py",
    "integration/test_page_in_a_browser.py",
    "conformance/test_event_log.py",
    "security/test_connections.py",
    "integration/test_supervisor.py",
    "simulation/test_simulation.py",
)
"""Files below ``tests`` that take longest in one run of ``make spark`` or ``make waiting``, the
longest of each first: from 160 s to 35 s, beside five others, and from 140 s to 20 s, beside one.
"""
SHARING: Final = (
    "security/test_broker_access.py",
    "security/test_connections.py",
    "security/test_secrets.py",
)
"""Files below ``tests`` that use the fixture ``secured``: a broker with its users, rights and
topics.
"""
_TESTS: Final = Path(__file__).parents[1]


def sort(items: list[pytest.Item]) -> None:
    """Put the tests of LONGEST first, and leave the order within each file, and of all others."""
    places = {_TESTS / name: place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: places.get(item.path, len(places)))


def scheduler(config: pytest.Config, log: object) -> LoadFileScheduling:
    """Return the scheduler of ``--dist loadfile``, but for the files of SHARING, which it gives to
    one process.
    """
    made = LoadFileScheduling(config, log)
    file_of = made._split_scope

    def group_of(nodeid: str) -> str:
        """Return the name of the group of tests to which a test belongs."""
        file = str(file_of(nodeid))
        return "sharing" if file.endswith(SHARING) else file

    made._split_scope = group_of
    return made
