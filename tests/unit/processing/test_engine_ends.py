"""``processing.engine_ends``: who ran each time that the engine ended is named, from the
second time on.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.memory.clock import VirtualClock
from anabranch.processing.engine_ends import EngineEnds
from anabranch.protocol.control.placement import ENGINE_ENDS_TOGETHER_MS
from anabranch.protocol.errors import EngineEnded


def describe(path: Path, clock: VirtualClock, *during: str) -> str:
    """Return the error's text in a new process of the node."""
    return str(EngineEnds(path, clock).describe(EngineEnded("it ended", during)))


def test_the_second_end_names_who_ran_both_times(tmp_path: Path) -> None:
    path, clock = tmp_path / "processing" / "north.0.ends.json", VirtualClock()
    assert describe(path, clock, "good.0", "hog.0") == "it ended"
    assert describe(path, clock, "hog.0", "other.0").startswith(
        "it ended; 2 times now while a batch of hog.0 ran: "
    )
    assert describe(path, clock, "other.0") == "it ended", "nobody ran each time"


def test_an_end_of_long_ago_accuses_nobody(tmp_path: Path) -> None:
    path, clock = tmp_path / "ends.json", VirtualClock()
    describe(path, clock, "hog.0")
    clock.sleep_ms(ENGINE_ENDS_TOGETHER_MS + 1)
    assert describe(path, clock, "hog.0") == "it ended"


@pytest.mark.parametrize("content", [b"", b"[[1]]", b"{}", b"[1]", b"\xff"])
def test_a_spoilt_file_is_as_none(tmp_path: Path, content: bytes) -> None:
    path, clock = tmp_path / "ends.json", VirtualClock()
    path.write_bytes(content)
    assert describe(path, clock, "hog.0") == "it ended"
    assert "hog.0" in describe(path, clock, "hog.0")


def test_where_nothing_can_be_written_the_end_is_reported_all_the_same(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert describe(tmp_path / "file" / "ends.json", VirtualClock(), "hog.0") == "it ended"
