"""A pipeline that stands still: what its processes hold in memory, and what the index holds, does
not grow with time. What grows by one item per bucket, heartbeat or report would be told within a
minute.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Final

import pytest
from typing_extensions import override

from anabranch.agent.service import AgentService
from anabranch.protocol.control import consistency
from anabranch.protocol.federation import workload
from anabranch.protocol.federation.movements import MovementState
from anabranch.protocol.stage import availability
from anabranch.streams import range_reader
from simulation import drawing, faults, index_entries, market, probes, scenarios, sizes
from simulation.faults import Fault
from simulation.hurrying import hurried
from simulation.options import Options, StageOptions
from simulation.participants import FederatedWorld, contract_logs, hurried_agents
from simulation.planting import Mutant, planted
from simulation.world import Run, World, keys

_SETTLED_MS: Final = 15_000
_UNTIL_MS: Final = 63_000
"""End of a run, in ms: its last third is so long that a collection which gets an item a second, as
reports of nodes come, grows by more than ``sizes`` lets differ.
"""
_SAMPLE_MS: Final = 600
_CHAIN_MAX: Final = 40
_BUCKET_MS: Final = 200
_SPLIT_BUCKETS: Final = 44
"""Number of buckets with input where a shard is split, or sold, meanwhile."""
_FAULTS_FROM_MS: Final = 1_000
_FAULT_EVERY_MS: Final = 250
_FAULT_MS_MAX: Final = 900
_SILENT_MS: Final = 4_000
"""Longer than a stage waits, so that a branch begins."""
_HEALED_MS: Final = 24_000
_CALM_MS: Final = 62_000
"""Time at which all is as if nothing had been, in ms: restarted, corrected, trimmed."""
_END_MS: Final = 68_000
_KINDS: Final = (
    "crash",
    "zombie",
    "double",
    "pause",
    "cut",
    "slow",
    "write lost",
    "write late",
    "write applied",
    "write rejected",
    "commit lost",
    "commit torn",
    "power",
    "index lost",
    "index cut",
)
_ONLY: Final = {
    "commit lost": "delivery/",
    "commit torn": "delivery/",
    "power": "processing/",
    "index lost": "consistency_manager",
    "index cut": "consistency_manager",
}
"""Targets of kinds that do not strike every service, by the beginning of their names."""


_Samples = dict[str, list[Counter[str]]]
"""Sizes of the collections of each service, and the number of keys of the index, at several times.
"""


class _Standing(World):
    """Pipeline whose producers have sent what they had."""

    def stand(self) -> list[str]:
        """Run it; return what grew, each with its service."""
        return [
            f"{key}: {line}"
            for key, of in self.sampled(_SETTLED_MS, _UNTIL_MS).items()
            for line in sizes.grown(of)
        ]

    def sampled(self, first_ms: int, until_ms: int) -> _Samples:
        """Run it with its faults, healed at ``options.heal_ms``. Return the sizes from ``first_ms``
        on.
        """
        samples: _Samples = {}
        try:
            with probes.counted(self.history), hurried(self.options):
                for key in self.keys:
                    self.start(key)
                self.producers.begin(self.sent)
                for fault in self.faults:
                    self.scheduler.at(fault.at_ms, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
                if self.options.heal_ms < first_ms:
                    self.scheduler.run_until(self.options.heal_ms)
                    self._heal()
                for at_ms in range(first_ms, until_ms, _SAMPLE_MS):
                    self.scheduler.run_until(at_ms)
                    for key, runs in self.runs.items():
                        assert runs.service is not None, key
                        samples.setdefault(key, []).append(sizes.held(runs.service))
                    keys = len(self.index.keys(""))
                    samples.setdefault("index", []).append(Counter({"keys": keys}))
                remains = self.remains(is_complete=True)
        finally:
            self.scheduler.close()
        assert all(sum(map(len, of)) for of in samples.values()), "something is counted"
        assert index_entries.check(remains) == []
        assert remains.history.probes["index compared as a whole"]
        return samples


class _StandingMarket(_Standing, FederatedWorld):
    """The same of two participants, after a stage was sold and came home, and of their auditor."""

    @override
    def remains(self, *, is_complete: bool) -> Run:
        """See ``World``. Checks that a movement is over, and nothing is on its way."""
        buyer = self.runs[f"agent/{market.BUYER}"].service
        assert isinstance(buyer, AgentService)
        movements = [
            movement.state
            for each in contract_logs(buyer)
            if each.ledger is not None
            for movement in each.ledger.movements
        ]
        assert MovementState.OVER in movements
        assert all(map(self._is_calm, self.options.traders))
        return super().remains(is_complete=is_complete)


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
        bucket_ms=_BUCKET_MS,
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
    """Return what grows. ``silent``: source that falls silent for good; empty: none does."""
    faults = [Fault(1_500, "silent for good", silent, number, 0) for number in (0, 1) if silent]
    return _Standing(_options(), faults).stand()


def _stand_split() -> list[str]:
    """Return what grows once a shard was split onto the pool of a pipeline that is scaled."""
    options = _options()
    shard, reader = options.stages
    split = replace(
        options,
        scenario=scenarios.SPLIT,
        splits_by_itself=True,
        stages=(replace(shard, operator="map", replicas=1, may_split=True), reader),
        buckets=_SPLIT_BUCKETS,
        max_delay_ms=4_000,
    )
    world = _Standing(split, [Fault(2_500, faults.SPLIT, shard.name, 1, 0)])
    grown = world.stand()
    assert world.history.probes["log shard_split"] == 1
    return grown


def _stand_traded() -> list[str]:
    """Return what grows once all that was sold has come home, and its audits are over."""
    drawn = market.draw(1)
    traded = replace(
        drawn,
        heal_ms=_UNTIL_MS,
        is_live=True,
        has_manager=True,
        has_auditor=True,
        dishonest="",
        sellers_rush=(0, 0, 0),
        rush=(7, 33, 6),
        buckets=_SPLIT_BUCKETS,
        snapshot_every=60,
        chain_records_max=_CHAIN_MAX,
    )
    with hurried_agents():
        return _StandingMarket(traded, []).stand()


def _many_faults() -> list[Fault]:
    """Return faults that follow each other until the time of healing: far more of each kind than
    the items by which a collection may differ.
    """
    rng = random.Random("faults of a standing pipeline")
    targets = keys(_options())
    found = []
    for at_ms in range(_FAULTS_FROM_MS, _HEALED_MS - _FAULT_MS_MAX, _FAULT_EVERY_MS):
        kind = rng.choice(_KINDS)
        some = [each for each in targets if each.startswith(_ONLY.get(kind, ""))]
        lasts_ms = rng.randint(50, _FAULT_MS_MAX)
        found.append(Fault(at_ms, kind, rng.choice(some), rng.randrange(24), lasts_ms))
    silences = [
        Fault(at_ms, "silent all", "b", 0, _SILENT_MS)
        for at_ms in range(_FAULTS_FROM_MS, _HEALED_MS - _SILENT_MS, 2 * _SILENT_MS)
    ]
    return sorted([*found, *silences])


def _sizes_after(faults: list[Fault]) -> _Samples:
    options = replace(_options(), heal_ms=_HEALED_MS, buckets=_HEALED_MS // _BUCKET_MS)
    return _Standing(options, faults).sampled(_CALM_MS, _END_MS)


@cache
def _sizes_without_faults() -> _Samples:
    return _sizes_after([])


def _left_by_faults() -> list[str]:
    """Return what a pipeline holds more after many faults than without them."""
    plain, struck = _sizes_without_faults(), _sizes_after(_many_faults())
    return [
        f"{key}: {line}" for key in struck for line in sizes.grown_since(plain[key], struck[key])
    ]


@pytest.fixture(autouse=True)
def _low_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lower the limits that alone bound a collection, so that a run comes to them."""
    monkeypatch.setattr(consistency, "CHAIN_RECORDS_MAX", _CHAIN_MAX)
    monkeypatch.setattr(workload, "KEPT_BUCKETS", 60)
    monkeypatch.setattr(range_reader, "_KEPT_BYTES_MAX", 0)
    monkeypatch.setattr(availability, "TIMER_STEPS_MAX", 32)
    monkeypatch.setattr(availability, "TIMER_ERROR_PARTS", 2)


def _assert_only_found(bug: Mutant, run: Callable[[], list[str]], collection: str) -> None:
    """Check that with ``bug`` planted ``run`` finds ``collection`` to grow, and nothing else."""
    with planted(bug):
        found = run()
    assert found
    assert all(collection in line for line in found)


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
    _assert_only_found(bug, lambda: _stand(""), "_Replica.points")


def test_nothing_grows_where_nodes_report_and_a_shard_was_split() -> None:
    assert _stand_split() == []


@pytest.mark.nightly  # by day: that a collection which grows is found, and that none does here
def test_loads_that_a_scaler_never_forgets_are_found() -> None:
    bug = Mutant(
        "every_load_is_kept",
        "protocol.control.scaling:Scaler._observe",
        "now_ms - track.seen[1][0] >= self._rules.for_ms",
        "now_ms - track.seen[1][0] >= self._rules.for_ms * 1_000",
        "SG1",
    )
    _assert_only_found(bug, _stand_split, "_Track.seen")


def test_nothing_grows_while_agents_have_nothing_to_trade() -> None:
    assert _stand_traded() == []


def test_nothing_is_left_of_many_faults() -> None:
    assert _left_by_faults() == []


@pytest.mark.nightly  # by day: that a collection which grows is found, and that none does here
def test_what_failures_alone_leave_behind_is_found() -> None:
    bug = Mutant(
        "tentative_buckets_are_never_dropped",
        "protocol.log.tentative:Branches._drop",
        "self._filled_parts -= sum(len(parts) for _, parts in self._filled.pop_upto(upto))",
        "pass",
        "TE4",
    )
    _assert_only_found(bug, _left_by_faults, "BucketMap")
