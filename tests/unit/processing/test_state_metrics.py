"""The state of a replica as metrics."""

from __future__ import annotations

from math import inf

from prometheus_client import CollectorRegistry

from anabranch.processing.state_metrics import StateMetrics
from anabranch.protocol.control.records import ReplicaState
from anabranch.protocol.stage.load_control import LoadFigures

_OWN = {"pipeline": "p", "stage": "s", "replica": "0"}


def test_one_state_holds_and_a_stream_that_is_back_is_shown_as_back() -> None:
    registry = CollectorRegistry()
    metrics = StateMetrics(registry, "p", "s", "0")

    def states() -> dict[str, float | None]:
        return {
            each.value: registry.get_sample_value(
                "anabranch_stage_state", {**_OWN, "state": each.value}
            )
            for each in ReplicaState
        }

    def missing(stream: str) -> float | None:
        return registry.get_sample_value(
            "anabranch_stage_missing_input", {**_OWN, "stream": stream}
        )

    metrics.show(ReplicaState.STABLE, ())
    assert states() == {"stable": 1, "up_failure": 0, "stabilization": 0, "failure": 0}
    assert missing("a") is None
    metrics.show(ReplicaState.UP_FAILURE, ("a",))
    metrics.show(ReplicaState.UP_FAILURE, ("b",))
    assert states() == {"stable": 0, "up_failure": 1, "stabilization": 0, "failure": 0}
    assert (missing("a"), missing("b")) == (0, 1)
    assert registry.get_sample_value("anabranch_stage_shed_permille", _OWN) == 0
    metrics.show(ReplicaState.UP_FAILURE, (), 700)
    assert registry.get_sample_value("anabranch_stage_shed_permille", _OWN) == 700


def test_buckets_that_a_partner_made_otherwise_are_counted() -> None:
    registry = CollectorRegistry()
    metrics = StateMetrics(registry, "p", "s", "0")
    name = "anabranch_stage_partner_wrong_buckets_total"
    assert registry.get_sample_value(name, _OWN) == 0
    metrics.partner_wrong()
    assert registry.get_sample_value(name, _OWN) == 1


def test_an_overload_says_its_backlog_and_for_how_long_there_is_room() -> None:
    registry = CollectorRegistry()
    metrics = StateMetrics(registry, "p", "s", "0")

    def shown() -> list[float | None]:
        return [
            registry.get_sample_value(f"anabranch_stage_overload_{name}", _OWN)
            for name in ("backlog_rows", "room_seconds")
        ]

    metrics.show_load(None)
    assert shown() == [0, inf]
    metrics.show_load(LoadFigures(400, 2_000, 90_000, 1_000, None))
    assert shown() == [90_000, inf]
    metrics.show_load(LoadFigures(400, 2_000, 90_000, 1_000, 3_600_000))
    assert shown() == [90_000, 3_600]
