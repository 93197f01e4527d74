"""Cost of what a node itself does with the files of a checkpoint, without Spark: the part of a
restart, a move and a standby's work that depends on the size of the state.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from anabranch.adapters.disk.checkpoint_store import stored_replicas
from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.protocol.log.timeline import Timeline
from harness import spark_files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_LAST: Final = 3
_PARTITIONS: Final = 16
_NAME: Final = "000000000001-000000"
_COPIES: Final = ("000000000002-000000", "000000000003-000000")


@dataclass(frozen=True, slots=True)
class Files:
    """One step."""

    step: str
    state_mb: float
    cpu_s: float
    """Processor time of this process, in seconds."""
    wall_s: float
    wrong: int
    judged: int


def files(
    _start_kafka: Callable[[], str], folder: Path, say: Callable[[str], None], size_mb: int
) -> list[Files]:
    """Measure each step on a checkpoint of ``size_mb``. One that is not whole after a step is
    wrong.
    """
    (folder / "store").mkdir(parents=True)
    stored = stored_replicas(f"file://{folder / 'store'}", "elastic")
    own = ReplicaFolder(folder / "old" / "kept.0", stored=stored)
    new = ReplicaFolder(folder / "new" / "kept.0", stored=stored)
    peer = ReplicaFolder(folder / "peer" / "kept.1", {"0": folder / "old" / "kept.0"})
    say(f"writing {size_mb} MB")
    spark_files.fill(
        own.directory(_NAME),
        _LAST + 1,
        partitions=_PARTITIONS,
        snapshots=(_LAST,),
        snapshot_bytes=size_mb * 1_000_000 // _PARTITIONS,
    )
    own.write(Timeline(_NAME, -1, None))
    found = []

    def is_whole(disk: ReplicaFolder, name: str) -> bool:
        return disk.whole(name, [_LAST]) == _LAST

    def standby_copies(name: str) -> bool:
        return peer.copy_peer("0", _NAME, name) and is_whole(peer, name)

    def fetched() -> bool:
        new.fetch()
        return True

    steps: tuple[tuple[str, Callable[[], object]], ...] = (
        ("start: check the files", lambda: is_whole(own, _NAME)),
        ("start: check them again", lambda: is_whole(own, _NAME)),
        ("store, first time", lambda: own.store(_NAME)),
        ("store, little is new", lambda: own.store(_NAME)),
        ("fetch from the store", fetched),
        ("start from what was fetched", lambda: new.newest() and is_whole(new, _NAME)),
        ("standby: first copy", lambda: standby_copies(_COPIES[0])),
        ("standby: next copy", lambda: standby_copies(_COPIES[1])),
    )
    for step, does in steps:
        begun_s, begun_cpu_s = time.monotonic(), time.process_time()
        is_right = does()
        cpu_s, wall_s = time.process_time() - begun_cpu_s, time.monotonic() - begun_s
        found.append(Files(step, size_mb, cpu_s, wall_s, int(not is_right), 1))
    return found
