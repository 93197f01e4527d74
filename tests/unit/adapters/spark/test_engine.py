"""The engine of a node, with a stand-in for Spark."""

from __future__ import annotations

from unittest.mock import Mock

import pytest

from anabranch.adapters.spark import engine as module
from anabranch.adapters.spark.engine import SparkEngine
from anabranch.protocol.errors import EngineEnded, StageFunctionError


def test_an_engine_that_keeps_too_many_sessions_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of builds that failed count, too: Spark keeps them, so a replica that fails
    repeatedly would take all memory.
    """
    monkeypatch.setattr(module, "SESSIONS_MAX", 2)
    monkeypatch.setattr(module, "PlanServer", Mock())
    monkeypatch.setattr(module, "session_beside", Mock())
    monkeypatch.setattr(module, "build_query", Mock(side_effect=StageFunctionError("it raised")))
    spark = Mock()
    spark.session().sparkContext._gateway.proc.poll.return_value = None
    engine = SparkEngine(Mock(), Mock(master="local[2]"), spark)
    for _ in range(2):
        with pytest.raises(StageFunctionError):
            engine.prepare("s.0", "s", {})
        engine.check()
    with pytest.raises(StageFunctionError):
        engine.prepare("s.0", "s", {})
    with pytest.raises(EngineEnded, match="3 queries were built"):
        engine.check()
