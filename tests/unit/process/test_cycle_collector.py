"""``process.cycle_collector``."""

from __future__ import annotations

import gc

import pytest

from anabranch.process.cycle_collector import without_collection


def test_nothing_is_collected_inside_and_it_goes_on_after_an_error() -> None:
    def step() -> None:
        with without_collection():
            assert not gc.isenabled()
            raise RuntimeError("inside")

    assert gc.isenabled()
    with pytest.raises(RuntimeError, match="inside"):
        step()
    assert gc.isenabled()


def test_whoever_switched_it_off_finds_it_off() -> None:
    with without_collection():
        with without_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
