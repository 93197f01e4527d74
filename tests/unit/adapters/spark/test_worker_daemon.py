"""``adapters.spark.worker_daemon``: what was imported is out of the collector's sight; what
comes later is not.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterator

import pytest

from anabranch.adapters.spark.worker_daemon import FreezesImports, quiet_at_its_end


@pytest.fixture
def frozen() -> Iterator[list[int]]:
    """How often what is alive was frozen, one entry per time."""
    times: list[int] = []
    hook = FreezesImports()

    def watched(phase: str, info: dict[str, int]) -> None:
        before = gc.get_freeze_count()
        hook(phase, info)
        if gc.get_freeze_count() != before:
            times.append(gc.get_freeze_count() - before)

    gc.callbacks.append(watched)
    yield times
    gc.callbacks.remove(watched)
    gc.unfreeze()


def test_once_after_imports_and_not_after_every_task(
    frozen: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    gc.collect(1)
    assert frozen == []
    gc.collect()
    assert len(frozen) == 1
    assert frozen[0] > 1_000
    gc.collect()
    assert len(frozen) == 1
    monkeypatch.setitem(sys.modules, "imported_since", types.ModuleType("imported_since"))
    gc.collect()
    assert len(frozen) == 2


def test_garbage_of_tasks_is_still_found(frozen: list[int]) -> None:
    gc.collect()
    ring: list[object] = []
    ring.append(ring)
    del ring
    assert gc.collect() >= 1
    assert len(frozen) == 1


def test_a_worker_whose_connection_java_has_closed_ends_without_a_word() -> None:
    def closed(*_: object) -> int:
        raise BrokenPipeError

    assert quiet_at_its_end(closed)(None, True) == 1
    assert quiet_at_its_end(lambda sock, authenticated: 0 if authenticated else 2)(None, True) == 0
