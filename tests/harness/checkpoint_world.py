"""Random runs of one replica's disk and its store of checkpoints, over several lives of the stage's
log. A seed draws what happens; every batch that the replica has reported as held for good is
compared with what it restores later.

Disk, store and the steps of a start (``protocol.log.timeline``) are the real ones. Spark is
replaced by the files that it writes; there is neither a log nor time.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Container, Iterator
from pathlib import Path
from typing import BinaryIO, Final, cast
from unittest import mock

from anabranch.adapters.disk import checkpoint_store
from anabranch.adapters.disk.checkpoint_store import stored_replicas
from anabranch.adapters.disk.checkpoints import ReplicaDisks, ReplicaFolder
from anabranch.processing.disk_steps import on_disk
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.timeline import (
    Answer,
    AppendBase,
    AwaitPeer,
    CheckEpoch,
    DiskStep,
    FindFences,
    FindMissing,
    FindRecomputed,
    OwnChain,
    Step,
    Timeline,
    carry_out,
    failover_steps,
)
from anabranch.protocol.stage.owners_checkpoint import StoreUse
from harness import spark_files

STEPS: Final = 30
_EPOCHS_OF_A_LIFE: Final = 30
"""Maximum offset at which a life's first epoch begins. Lives overlap, so that the epochs of an
earlier life are sometimes below and sometimes above those of the next.
"""


def fail_over(
    disk: ReplicaFolder, epoch: int, chain: Container[BatchId], missing: Callable[[int], str]
) -> Timeline:
    """Carry out the steps of a start on ``disk``, without a log and without peers that answer.

    Args:
        disk: Checkpoints of the process that starts.
        epoch: The new epoch.
        chain: Batches that the stage's log has.
        missing: Function that returns what is missing of the inputs after a batch; empty: nothing.

    Raises:
        Unavailable: the start would wait for a peer.
    """

    def perform(step: Step) -> Answer:
        match step:
            case FindMissing(_, batch):
                return missing(batch)
            case FindRecomputed():
                return 0
            case FindFences():
                return ()
            case AwaitPeer(awaited):
                raise Unavailable(awaited)
            case CheckEpoch() | AppendBase():
                return None
        assert isinstance(step, DiskStep)
        return on_disk(disk, step)

    return carry_out(failover_steps(epoch, own=OwnChain(has=chain.__contains__)), perform)


class _StillWritten:
    """Pack that is being written while Spark goes on: after each piece it calls ``finish``, which
    may write the other halves of files that the pack has already, or does not have yet.
    """

    def __init__(self, pack: BinaryIO, finish: Callable[[], None]) -> None:
        self._pack, self._finish = pack, finish

    def write(self, piece: bytes) -> None:
        self._pack.write(piece)
        self._finish()


class CheckpointWorld:
    """One replica with its disk, its store and its log's lives, driven by one seed. Use once."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._rng = random.Random(seed)
        self._folder, self._store = folder, folder / "store"
        self._store.mkdir(parents=True)
        self._stored = stored_replicas(f"file://{self._store}", "p")
        self._life = self._batch = 0
        self._epoch = 0
        self._chain = set[BatchId]()
        self._held: list[int] = []
        """Batches that it has reported in this life as held for good, in ascending order. Its
        inputs still have what is above the newest, and nothing else.
        """
        self._disk: ReplicaFolder | None = None
        """Disk of the running process; None: no process runs."""
        self._timeline = ""
        self._rest: dict[Path, bytes] = {}
        """Path of each file that Spark is writing -> its second half."""
        self._whole: dict[str, bytes] = {}
        """Name of each such file -> its whole content."""
        self._stored_whole: list[set[str]] = []
        """For each batch in ``_held``, the names of the files that were whole before its save."""

    def wrong(self) -> Iterator[str]:
        """Run the seed; yield a sentence for each violation."""
        with mock.patch("os.fsync"):  # no loss of power is tried here, and syncing is slow
            yield from self._happenings()

    def _happenings(self) -> Iterator[str]:
        self._begin_life()
        acts = (
            (6, self._run),
            (6, self._save),
            (4, self._crash),
            (4, self._lose_disk),
            (3, self._damage_newest),
            (1, self._begin_life),
        )
        for _ in range(STEPS):
            if self._disk is None:
                yield from self._start()
                continue
            (act,) = self._rng.choices([act for _, act in acts], [weight for weight, _ in acts])
            yield from act() or ()

    def _begin_life(self) -> None:
        """Delete and create the topic of the stage's log; disk and store stay."""
        self._crash()
        self._life += 1
        self._epoch = self._rng.randrange(_EPOCHS_OF_A_LIFE)
        self._chain = set()
        self._held = []
        self._stored_whole = []
        self._whole.clear()

    def _start(self) -> Iterator[str]:
        disks = ReplicaDisks(self._folder / "state", stored=self._stored)
        disk = disks.of("s", "0", [], life=str(self._life), store_use=StoreUse.WHOLE)
        self._epoch += self._rng.randint(1, 9)
        held = self._held[-1] if self._held else -1
        try:
            timeline = fail_over(
                disk,
                self._epoch,
                self._chain,
                lambda batch: f"batch {batch + 1}" if batch < held else "",
            )
        except Unavailable as error:
            yield f"it waits for a peer that there is not, and holds batch {held}: {error}"
            self._begin_life()
            return
        if timeline.start_batch < held:
            yield f"it begins after batch {timeline.start_batch}, and holds batch {held}"
        newest = disk.newest()
        if newest is None or newest.name != timeline.name:
            yield f"the newest timeline is {newest}, not its own, {timeline.name}"
        lives = [path.name for path in (self._folder / "state" / "s.0").iterdir()]
        if lives != [f"life-{self._life}"]:
            yield f"in life {self._life} the disk has {lives}"
        self._disk = disk
        self._timeline = timeline.name
        self._batch = timeline.start_batch
        spark_files.write(disk.directory(timeline.name) / "metadata", b'{"id": "0a"}')
        yield from self._torn(disk.directory(timeline.name))

    def _torn(self, directory: Path) -> Iterator[str]:
        """Yield the restored files that were whole when they were stored, and are not any more."""
        stored = self._stored_whole[-1] if self._stored_whole else ()
        for path in directory.rglob("*.sst"):
            if self._whole.get(path.name) == path.read_bytes():
                continue
            if path.name in stored:
                yield f"{path.name} was restored and is not what was written"
            # Spark was writing it, and no commit refers to it: it may stay torn.
            self._whole.pop(path.name, None)

    def _run(self) -> None:
        """Commit one or two batches; in half of the runs leave Spark in the middle of a file."""
        assert self._disk is not None
        directory = self._disk.directory(self._timeline)
        self._finish()
        for _ in range(self._rng.randint(1, 2)):
            self._batch += 1
            spark_files.log_batch(directory, self._batch)
            spark_files.commit_batch(directory, self._batch, partitions=1, snapshot=True)
            self._chain.add(BatchId(self._timeline, self._batch))
        if self._rng.random() < 0.5:
            path = directory / "state" / "0" / "0" / "SSTs" / f"{self._timeline}-{self._batch}.sst"
            halves = self._rng.randbytes(50), self._rng.randbytes(50)
            path.write_bytes(halves[0])
            self._rest[path], self._whole[path.name] = halves[1], b"".join(halves)

    def _finish(self) -> None:
        """Write the second halves of the files that Spark is writing."""
        for path, rest in self._rest.items():
            with path.open("ab") as file:
                file.write(rest)
        self._rest.clear()

    def _save(self) -> Iterator[str]:
        """Sync and store the checkpoint, and report it as held, so that its inputs are trimmed. In
        one of five saves the store is away.
        """
        assert self._disk is not None
        append_file = checkpoint_store._append_file
        whole = self._whole.keys() - {path.name for path in self._rest}
        number, moment = 0, self._rng.randrange(1, 30)

        def finish() -> None:
            nonlocal number
            number += 1
            if number == moment:
                self._finish()

        def append(stream: BinaryIO, relative: str, path: Path) -> object:
            return append_file(cast("BinaryIO", _StillWritten(stream, finish)), relative, path)

        is_away = self._rng.random() < 0.2
        if is_away:
            self._store.rename(self._folder / "away")
        try:
            self._disk.sync(self._timeline)
            with mock.patch.object(checkpoint_store, "_append_file", append):
                is_stored = self._disk.store(self._timeline)
        except Unavailable:
            is_stored = False
            if not is_away:
                yield "the store is there, and cannot be written"
        finally:
            if is_away:
                (self._folder / "away").rename(self._store)
        if not is_stored:
            if not is_away:
                yield "its checkpoint is not the newest, and is not stored"
            return
        self._held.append(self._batch)
        self._stored_whole.append(set(whole))
        lives = [path.name for path in (self._store / "p" / "s.0").iterdir()]
        if lives != [f"life-{self._life}"]:
            yield f"in life {self._life} the store has {lives}"

    def _crash(self) -> None:
        """End the process; a file that Spark was writing is never finished."""
        self._disk = None
        for path in self._rest:
            self._whole.pop(path.name)
        self._rest.clear()

    def _lose_disk(self) -> None:
        """End the process and delete its disk."""
        self._crash()
        shutil.rmtree(self._folder / "state", ignore_errors=True)

    def _damage_newest(self) -> None:
        """Lose the disk, and damage the newest of at least two checkpoints in the store. The
        replica must continue from the one before, whose inputs are trimmed later.
        """
        if len(self._held) < 2:
            return
        self._lose_disk()
        manifest = max((self._store / "p" / "s.0").glob("**/*.json"))
        manifest.write_bytes(manifest.read_bytes()[:-20])
        self._held.pop()
        self._stored_whole.pop()
