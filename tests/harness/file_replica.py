"""A replica of a stage without Spark, whose checkpoint is on a disk, in Spark's format: for what
happens to checkpoints.

Its operator is that of ``replica_world``; its state stands in the commits. Run as a program it is a
process that can be killed::

    python -m harness.file_replica KAFKA PIPELINE REPLICA STATE_DIR UPTO
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from typing_extensions import override

from anabranch.adapters.disk.checkpoints import ReplicaFolder
from anabranch.adapters.kafka.log import KafkaEventLog
from anabranch.adapters.system.clock import SystemClock
from anabranch.adapters.system.entropy import SystemEntropy
from anabranch.codec.catalog import TopicSettings
from anabranch.codec.plan_offsets import INITIAL, Offset, position_fields, position_of
from anabranch.pipeline.topic_names import TopicNames
from anabranch.ports import Clock, Entropy, EventLog, TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.processing.replica import ReplicaRunner
from anabranch.processing.replica_environment import HostProcess, Recovery
from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import BoundaryRecord, EpochStarted, Part
from anabranch.protocol.stage.availability import Availability, Policy
from anabranch.protocol.stage.recovery import Comparison, HaMode, PartnerWrong
from anabranch.protocol.stage.replica import StageRules
from anabranch.protocol.stage.scheduling import BatchRules
from anabranch.streams.boundary_reader import BoundaryReader
from anabranch.streams.boundary_writer import BoundaryWriter
from anabranch.streams.gone_blocks import gone_range, last_gone
from harness import spark_files
from harness.replica_bench import STATEFUL, WAITS, WIDTH_MS
from harness.replica_world import expected_rows, operate, rows_read

INPUT = "a"
STAGE = "s"
REPLICAS = ("0", "1")


def create_topics(log: EventLog, names: TopicNames) -> None:
    """Create the topics of the input and of the stage."""
    admin = log.admin()
    blocks = [names.blocks(INPUT, "0"), *(names.blocks(STAGE, replica) for replica in REPLICAS)]
    admin.create(
        [
            TopicSettings(topic, 1)
            for topic in (names.boundaries(INPUT), names.boundaries(STAGE), *blocks)
        ]
    )
    admin.close()


class Source:
    """The stage's input: one row for each bucket that is given, in a block that holds nothing."""

    def __init__(self, log: EventLog, names: TopicNames, clock: Clock, entropy: Entropy) -> None:
        self._log, self._at = log, TopicPartition(names.blocks(INPUT, "0"), 0)
        self._boundary = BoundaryWriter(
            log, names.boundaries(INPUT), ["0"], EpochStarted("0", "f", entropy.token()), clock
        )
        self._boundary.start()
        self._batch = 0
        self.rows: dict[int, int] = {}

    def close(self, upto: int, *filled: int) -> None:
        """Everything up to ``upto`` is complete; ``filled`` get a row."""
        writer = self._log.writer()
        for _ in filled:
            writer.send(self._at, b"block")
        places = writer.flush()
        writer.close()
        parts = tuple(
            Part(b, 0, "t", 1, p.offset, p.offset + 1, 1, 0)
            for b, p in zip(filled, places, strict=True)
        )
        self._batch += 1
        self.rows |= dict.fromkeys(filled, 1)
        self._boundary.append(
            BoundaryRecord(
                "0",
                self._boundary.epoch,
                BatchId("l", self._batch),
                self._boundary.tip(),
                upto,
                parts,
            )
        )

    def poll(self) -> None:
        """Read its own log on."""
        self._boundary.poll()

    def trim(self, bucket: int) -> None:
        """Delete the blocks of buckets up to ``bucket``."""
        admin = self._log.admin()
        admin.delete_before({self._at: sum(1 for b in self.rows if b <= bucket)})
        admin.close()

    def expected(self, upto: int) -> dict[int, int]:
        """Rows of the output."""
        return expected_rows(self.rows, upto, is_stateful=True)


@dataclass(frozen=True, slots=True)
class Conditions:
    """Under which a replica runs: what a test does at its crash points and while it waits for a
    peer, how much state it needs and how that is backed up, which epochs are fenced, whose nodes
    are partners', and who is told of a wrong one.
    """

    point: Callable[[str], None] = lambda _: None
    wait: Callable[[str], None] = lambda _: None
    horizon_buckets: int = 0
    ha: HaMode = "active"
    is_partners: Callable[[str], bool] = lambda _node: False
    fenced: Callable[[], Mapping[str, int]] = dict
    tell: Callable[[PartnerWrong], None] = lambda _found: None


class _Host(HostProcess):
    """Process whose crash points call ``point``."""

    def __init__(self, clock: Clock, point: Callable[[str], None]) -> None:
        super().__init__(clock, may_wait=False)
        self._point = point

    @override
    def crash_point(self, name: str) -> None:
        self._point(name)


class _Recovery(Recovery):
    """Input on the broker, and the conditions of the test."""

    def __init__(
        self,
        conditions: Conditions,
        peers: tuple[str, ...],
        log: EventLog,
        names: TopicNames,
        reader: BoundaryReader,
    ) -> None:
        self._conditions, self._log, self._names, self._input = conditions, log, names, reader
        self.peers = peers
        if conditions.ha == "upstream_backup":
            self.comparison = Comparison(
                STAGE, conditions.horizon_buckets, WIDTH_MS, conditions.is_partners
            )

    @override
    def missing(self, after: int) -> str:
        self._input.read_to_end()
        log_state, reader = self._input.log_state, self._log.reader()
        gone = gone_range(
            reader, lambda writer: self._names.blocks(INPUT, writer), log_state, after
        )
        reader.close()
        if after < log_state.forgotten:
            gone = after + 1, log_state.forgotten
        return "" if gone is None else f"{INPUT} from bucket {gone[0]} on"

    @override
    def last_gone(self, log_state: LogState) -> int:
        del log_state
        self._input.read_to_end()
        reader = self._log.reader()
        found = last_gone(
            reader, lambda writer: self._names.blocks(INPUT, writer), self._input.log_state
        )
        reader.close()
        return found

    @override
    def wait(self, missing: str) -> None:
        self._conditions.wait(missing)

    @override
    def complete(self) -> int:
        return 0

    @override
    def fenced(self) -> Mapping[str, int]:
        return self._conditions.fenced()

    @override
    def report_difference(self, found: PartnerWrong) -> None:
        self._conditions.tell(found)


class FileReplica:
    """One process of a replica."""

    def __init__(
        self,
        log: EventLog,
        names: TopicNames,
        replica: str,
        folder: Path,
        clock: Clock,
        entropy: Entropy,
        conditions: Conditions = Conditions(),
    ) -> None:
        self._input = BoundaryReader(log, names.boundaries(INPUT), ["0"])
        self._log, self._names = log, names
        self.boundary = BoundaryWriter(
            log,
            names.boundaries(STAGE),
            list(REPLICAS),
            EpochStarted(replica, "f", entropy.token()),
            clock,
        )
        peers = {r: folder / f"{STAGE}.{r}" for r in REPLICAS if r != replica}
        self.disk = ReplicaFolder(
            folder / f"{STAGE}.{replica}", peers, crash_point=conditions.point
        )
        self.runner = ReplicaRunner(
            {INPUT: self._input},
            self.boundary,
            self.disk,
            StageRules(
                STATEFUL,
                Availability([INPUT], WAITS, Policy.SUSPEND),
                BatchRules(WIDTH_MS, rows_max=3),
                conditions.horizon_buckets,
                conditions.ha,
            ),
            _Host(clock, conditions.point),
        )
        self._recovery = _Recovery(conditions, tuple(peers), self._log, self._names, self._input)
        self._attempts = 0
        self.checkpoint = folder
        self.batch = -1

    def start(self) -> str:
        """Fail over to this process."""
        name = self.runner.fail_over(self._recovery)
        self.checkpoint = self.disk.directory(name)
        self.batch = self.disk.last_commit(name)
        return name

    def step(self) -> bool:
        """One batch, if there is one."""
        self.runner.tick()
        orders = self.runner.orders()
        assert not orders, "it never forks"
        batch, before = self.batch + 1, self._offset(self.batch)
        offset = self._offset(batch)
        if offset is None:
            offset = self.runner.advance(
                self.checkpoint.name, INPUT, position_fields(before or INITIAL)
            )
            if offset is None:
                return False
            spark_files.log_batch(self.checkpoint, batch, [offset])
        position = position_of(before or INITIAL)
        self.runner.begin(
            self.checkpoint.name, [offset], position_of(offset).bucket * WIDTH_MS, position
        )
        self._attempts += 1
        parts, state = operate(
            rows_read([offset]),
            self._state(self.batch),
            position_of(offset).bucket,
            f"{self.boundary.epoch}-{self._attempts}",
        )
        assert self.runner.finish(self.checkpoint.name, batch, parts)
        fields = {"nextBatchWatermarkMs": 0, "rows": state}
        spark_files.write(
            self.checkpoint / "commits" / str(batch), ("v2\n" + json.dumps(fields)).encode()
        )
        self.batch = batch
        return True

    def settle(self) -> None:
        """Until there is nothing to do."""
        for _ in range(1_000):
            if not self.step():
                return
        message = "it never settles"
        raise AssertionError(message)

    def close(self) -> None:
        """Give the readers back."""
        self._input.close()
        self.boundary.close()

    def _offset(self, batch: int) -> Offset | None:
        path = self.checkpoint / "offsets" / str(batch)
        found: Offset | None = (
            json.loads(path.read_text().splitlines()[2]) if path.exists() else None
        )
        return found

    def _state(self, batch: int) -> dict[int, int]:
        if batch < 0:
            return {}
        fields = json.loads((self.checkpoint / "commits" / str(batch)).read_text().splitlines()[1])
        return {int(bucket): rows for bucket, rows in fields["rows"].items()}


def stage_log_state(log: EventLog, names: TopicNames) -> LogState:
    """Return the output as any reader sees it."""
    reader = BoundaryReader(log, names.boundaries(STAGE), REPLICAS)
    reader.read_to_end()
    reader.close()
    return reader.log_state


def replica_rows(log_state: LogState, replica: str, first: int) -> dict[int, int]:
    """Rows of the buckets from ``first`` on that ``replica`` closed itself."""
    found = {
        bucket: log_state.replica_bucket(replica, bucket)
        for bucket in range(first, log_state.closed(replica) + 1)
    }
    return {bucket: sum(p.rows for p in parts) for bucket, parts in found.items() if parts}


def main(kafka: str, pipeline: str, replica: str, folder: str, upto: str) -> None:
    """Run until the replica has closed ``upto``."""
    made = FileReplica(
        KafkaEventLog(kafka),
        TopicNames(pipeline),
        replica,
        Path(folder),
        SystemClock(),
        SystemEntropy(),
        Conditions(point=crash_point),
    )
    print(made.start())
    while made.boundary.log_state.closed(replica) < int(upto):
        made.step()
    made.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
