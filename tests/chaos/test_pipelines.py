"""The pipelines of runs: that of an elastic one has a pool, and halves of its first stage; that of
an overloaded one leaves out rows.
"""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest

from anabranch.pipeline.file import load
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from chaos.run import POOL, WINDOW_S, prepare
from demo.tentative import HALVES, STAGE
from experiments.overload.kept import kept_of


@pytest.mark.parametrize("elastic", [True, False])
def test_the_pipeline_of_a_run(tmp_path: Path, elastic: bool) -> None:
    options = Namespace(elastic=elastic, overload=False, replicas=2)
    pipeline = load(prepare(options, tmp_path))
    assert pipeline.stages[STAGE].shed.kind == "off"
    assert pipeline.halves(STAGE) == (list(HALVES) if elastic else [])
    assert pipeline.inputs("tolls") == ([STAGE, *HALVES] if elastic else [STAGE])
    nodes = pipeline.nodes()
    assert nodes.get(POOL) == ([] if elastic else None)
    own = {label for label in nodes["north.0"] if label.count(".") == 1}
    assert own == {f"{STAGE}.0", "tolls.0"}


@pytest.mark.parametrize(("seed", "kind"), [(800, "rows"), (801, "keys")])
def test_the_pipeline_of_an_overloaded_run(tmp_path: Path, seed: int, kind: str) -> None:
    options = Namespace(elastic=False, overload=True, replicas=2, seed=seed)
    pipeline = load(prepare(options, tmp_path))
    stage = pipeline.stages[STAGE]
    assert (stage.shed.kind, stage.state_horizon_ms) == (kind, 1_000 * WINDOW_S)
    assert pipeline.stages["tolls"].shed.kind == "off"
    # Which reports are kept is known of every source, and does not depend on the source.
    columns = [[5_000 + number] * 3 for number in range(9)]
    for source in stage.reads:
        kept = kept_of(pipeline, STAGE, source, columns)
        assert kept is not None
        assert kept(0).all()
        assert not kept(KEPT_ALL).any()
    assert kept_of(pipeline, "tolls", STAGE, columns) is None
