"""A pipeline that stands still: what its processes hold in memory, and what the index holds, does
not grow with time. What grows by one item per bucket or heartbeat would be told within a minute.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Final

import pytest

from anabranch.protocol.control import consistency
from anabranch.protocol.stage import availability
from simulation import drawing, probes, sizes
from simulation.faults import Fault
from simulation.hurrying import hurried
from simulation.options import Options, StageOptions
from simulation.planting import Mutant, planted
from simulation.world import World

_SETTLED_MS: Final = 15_000
_UNTIL_MS: Final = 51_000
_SAMPLE_MS: Final = 600
_CHAIN_MAX: Final = 40


class _Standing(World):
    """Pipeline whose producers have sent what they had."""

    def stand(self) -> list[str]:
        """Run it; return what grew, each with its service."""
        samples: dict[str, list[Counter[str]]] = {}
        try:
            with probes.counted(self.history), hurried(self.options):
                for key in self.keys:
                    self.start(key)
                self.producers.begin(self.sent)
                for fault in self.faults:
                    self.scheduler.at(fault.at_ms, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
                for at_ms in range(_SETTLED_MS, _UNTIL_MS, _SAMPLE_MS):
                    self.scheduler.run_until(at_ms)
                    for key, runs in self.runs.items():
                        assert runs.service is not None, key
                        samples.setdefault(key, []).append(sizes.held(runs.service))
                    keys = {f"index {key}": 1 for key in self.index.keys("")}
                    samples.setdefault("index", []).append(Counter(keys))
        finally:
            self.scheduler.close()
        totals = [Counter({"keys": len(each)}) for each in samples.pop("index")]
        assert all(sum(map(len, of)) for of in samples.values()), "something is counted"
        return [
            f"{key}: {line}"
            for key, of in [*samples.items(), ("index", totals)]
            for line in sizes.grown(of)
        ]


def _options() -> Options:
    stages = (
        StageOptions("s0", ("a", "b"), "sum", 2, is_batch_safe=True, policy="process"),
        StageOptions("s1", ("s0",), "both", 1, is_batch_safe=True, policy="process"),
    )
    return replace(
        drawing.by_chance(3, stages_max=0),
        sources=("a", "b"),
        source_partitions=2,
        stages=stages,
        bucket_ms=200,
        buckets=12,
        max_delay_ms=2_500,
        is_live=True,
        is_upsert=False,
        has_manager=True,
        idle_ms=None,
        late="dead_letter",
        heal_ms=_UNTIL_MS,
        trim_every_ms=300,
        snapshot_every=25,
        seen_wait_ms=10_000,
        chain_records_max=_CHAIN_MAX,
    )


def _stand(silent: str) -> list[str]:
    """``silent``: source that falls silent for good; empty: none does."""
    faults = [Fault(1_500, "silent for good", silent, number, 0) for number in (0, 1) if silent]
    return _Standing(_options(), faults).stand()


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits that alone bound a collection, so that a run comes to them."""
    monkeypatch.setattr(consistency, "CHAIN_RECORDS_MAX", _CHAIN_MAX)
    monkeypatch.setattr(availability, "TIMER_STEPS_MAX", 32)
    monkeypatch.setattr(availability, "TIMER_ERROR_PARTS", 2)


def test_nothing_grows_while_an_input_stands_still() -> None:
    assert _stand("b") == []


def test_a_collection_that_is_never_cleared_is_found_and_nothing_else_grows() -> None:
    """Here all inputs have nothing more to say, and their producers say so."""
    bug = Mutant(
        "every_point_is_kept",
        "protocol.control.consistency:StreamAudit._continued",
        "if len(replica.points) > CHAIN_RECORDS_MAX",
        "if len(replica.points) > CHAIN_RECORDS_MAX * 1_000",
        "CHAIN_RECORDS_MAX",
    )
    with planted(bug):
        found = _stand("")
    assert found
    assert all("_Replica.points" in line for line in found)
