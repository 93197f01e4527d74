"""Division of a node's processor time among its batches."""

from __future__ import annotations

import pytest

from anabranch.protocol.errors import LocalProtocolError
from anabranch.protocol.stage.shared_cores import SharedCores


def test_cs2_a_batch_alone_uses_its_duration() -> None:
    cores = SharedCores(1)
    cores.began("a", "q", 100)
    assert cores.ended("a", "q", 350) == 250
    assert cores.totals_ms(900) == {"a": 250}


def test_cs2_batches_on_fewer_cores_use_a_part_each() -> None:
    cores = SharedCores(1)
    cores.began("a", "q", 0)
    cores.began("b", "q", 100)
    assert cores.ended("a", "q", 300) == 100 + 200 / 2
    assert cores.ended("b", "q", 400) == 200 / 2 + 100
    assert cores.totals_ms(500) == {"a": 200, "b": 200}


def test_cs1_batches_on_enough_cores_do_not_share_them() -> None:
    cores = SharedCores(2)
    cores.began("a", "q", 0)
    cores.began("b", "q", 0)
    assert cores.ended("a", "q", 100) == 100
    cores.began("a", "q", 100)
    cores.began("a", "r", 100)
    assert cores.totals_ms(400) == pytest.approx({"a": 100 + 400, "b": 100 + 200})


def test_an_unknown_batch_and_one_that_was_dropped_used_nothing() -> None:
    cores = SharedCores(1)
    assert cores.ended("a", "q", 100) == 0
    cores.began("a", "q", 100)
    cores.began("b", "q", 100)
    cores.dropped("a")
    assert cores.ended("a", "q", 300) == 0
    assert cores.ended("b", "q", 300) == 200


def test_a_node_has_a_core() -> None:
    with pytest.raises(LocalProtocolError, match="0 cores"):
        SharedCores(0)
