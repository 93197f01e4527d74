"""The pipeline of an elastic run has a pool, and halves of its first stage."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from chaos.run import POOL, prepare
from demo.tentative import HALVES, STAGE


@pytest.mark.parametrize("elastic", [True, False])
def test_the_pipeline_of_a_run(tmp_path: Path, elastic: bool) -> None:
    pipeline = load(prepare(Namespace(elastic=elastic, replicas=2), tmp_path))
    assert pipeline.halves(STAGE) == (list(HALVES) if elastic else [])
    assert pipeline.inputs("tolls") == ([STAGE, *HALVES] if elastic else [STAGE])
    nodes = pipeline.nodes()
    assert nodes.get(POOL) == ([] if elastic else None)
    own = {label for label in nodes["north.0"] if label.count(".") == 1}
    assert own == {f"{STAGE}.0", "tolls.0"}
