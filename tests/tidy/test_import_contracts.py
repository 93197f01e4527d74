"""Each contract of import-linter in pyproject.toml finds what it forbids: a copy of the package
with one wrong import breaks it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

PLANTED = {
    "Layers: what decides is below what acts": [
        ("protocol/log/buckets.py", "from anabranch.codec import blocks"),
        ("protocol/log/buckets.py", "def f():\n    import anabranch.ports"),
        ("runtime/service.py", "import anabranch.adapters.kafka.log"),
        ("client/rows.py", "import anabranch.up.state_file"),
        ("new_layer.py", ""),
    ],
    "A service is imported by nothing but itself": [
        ("ingestion/service.py", "from anabranch.delivery import service"),
        ("ingestion/service.py", "from anabranch import delivery"),
        ("up/supervisor.py", "import anabranch.ingestion.service"),
    ],
    "The client stands beside what starts services": [
        ("drills/links.py", "import anabranch.client.rows"),
    ],
    "Spark calls our reader and writer in its tasks: that adapter alone is above the runtime": [
        ("adapters/kafka/log.py", "from anabranch.runtime.block_writer import BlockWriter"),
        ("cli/move.py", "from anabranch.runtime.placement import PlacementReader"),
    ],
    "What runs a stage knows its engine by a port: __main__ chooses it, commands look at it": [
        ("processing/node.py", "import anabranch.adapters.spark.session"),
        ("auditor/service.py", "import anabranch.adapters.spark.starting"),
        ("cli/check.py", "import anabranch.adapters.spark.session"),
    ],
    "What runs a stage knows its disk by a port: an adapter chooses it, commands look at it": [
        ("processing/standby.py", "import anabranch.adapters.disk.checkpoints"),
        ("processing/__main__.py", "import anabranch.adapters.disk.checkpoints"),
    ],
    "Within the rules: what a stream is, what processes say, what a stage does, what users see": [
        ("protocol/log/buckets.py", "import anabranch.protocol.stage.planner"),
        ("protocol/new_package/__init__.py", ""),
    ],
    "What the page shows is decided without input and output": [
        ("dashboard/page.py", "import anabranch.ports"),
    ],
    "Kafka's client is behind its adapter": [
        ("runtime/service.py", "from confluent_kafka import Consumer"),
    ],
    "Redis' client is behind its adapter": [("up/supervisor.py", "import redis")],
    "Spark is behind its adapter, and in what users' functions import": [
        ("processing/replica.py", "from pyspark.sql import DataFrame"),
    ],
    "Keys are made and kept by one adapter; a signature is checked where it is decoded": [
        ("agent/service.py", "import cryptography.x509"),
    ],
    "Time and chance come from adapters": [("delivery/service.py", "import time")],
    "Java's archives are fetched by one adapter": [("up/supervisor.py", "import jgo")],
    "Log lines and figures are the services'": [("codec/blocks.py", "import structlog")],
    "The command speaks to the terminal": [("operating/doctor.py", "import rich.console")],
    "The page is served by the dashboard": [("cli/ui.py", "import uvicorn")],
}


@pytest.fixture(scope="module")
def copy(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the package and of its contracts."""
    copied = tmp_path_factory.mktemp("copy")
    shutil.copytree(
        root / "services" / "anabranch",
        copied / "anabranch",
        ignore=shutil.ignore_patterns("__pycache__"),
    )
    shutil.copy(root / "pyproject.toml", copied)
    return copied


def broken(copied: Path) -> set[str]:
    """The contracts that do not hold in the copy."""
    linted = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"],
        cwd=copied,
        env={**os.environ, "PYTHONPATH": str(copied), "COLUMNS": "500"},
        check=False,
        capture_output=True,
        text=True,
    ).stdout
    assert "Contracts: " in linted, linted
    return set(re.findall(r"^(.+) BROKEN\b", linted, re.MULTILINE))


def test_every_contract_is_tried(root: Path) -> None:
    """Two tables of the same names: a new contract comes with what breaks it."""
    settings = tomllib.loads((root / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert [contract["name"] for contract in contracts] == list(PLANTED)


@pytest.mark.parametrize(
    ("contract", "path", "source"),
    [(name, path, source) for name, plants in PLANTED.items() for path, source in plants],
)
def test_a_wrong_import_is_found(copy: Path, contract: str, path: str, source: str) -> None:
    planted = copy / "anabranch" / path
    before = planted.read_text() if planted.exists() else None
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(f"{before or ''}\n\n{source}\n")
    try:
        assert contract in broken(copy)
    finally:
        if before is None:
            planted.unlink()
        else:
            planted.write_text(before)


def test_the_copy_itself_holds(copy: Path) -> None:
    assert broken(copy) == set()
