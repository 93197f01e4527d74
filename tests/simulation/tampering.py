"""Tampering with the logs by a process without the right to: forged records in boundary logs and
control topics, blocks that are deleted or changed.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final

from anabranch.adapters.memory.partition import Record
from anabranch.codec import boundary_records, control_records
from anabranch.pipeline.control_topics import control_topics
from anabranch.ports import TopicPartition
from anabranch.protocol.control.failure_detector import STANDBY_SERVICE
from anabranch.protocol.control.records import (
    ControlRecord,
    DeliveryProgress,
    Fence,
    Heartbeat,
    TrimPoint,
    Vote,
)
from anabranch.protocol.edge.delivery import has_run
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.log.boundary_log import LogState
from simulation import hostile
from simulation.committed import is_committed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.adapters.memory.log import LocalEventLog
    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.log.records import Part
    from simulation.network import Network


_UNHEARD_OF: Final = 1_000


class Tampering:
    """With the logs of one run. ``epochs``: of each writer of a stream the newest."""

    def __init__(
        self,
        pipeline: Pipeline,
        log: LocalEventLog,
        network: Network,
        epochs: Mapping[tuple[str, str], int],
    ) -> None:
        self._pipeline = pipeline
        self._log = log
        self._network = network
        self._epochs = epochs

    def forge(self, stream: str, choice: int, last: int, now_ms: int) -> None:
        """Forge records of a boundary log and of a control topic. ``last``: the last bucket that
        exists.
        """
        at = TopicPartition(self._pipeline.topic_names.boundaries(stream), 0)
        partition = self._log.partition(at)
        records = {
            offset: partition.at(offset).value for offset in range(partition.start, partition.end)
        }
        value = hostile.forged(records, choice) if records else None
        if value is not None:
            partition.append(Record(value, None, (), now_ms))
            self._network.wake({at.topic})
        self._forge_control(stream, choice, last, now_ms)
        self._forge_fences(stream, last, now_ms)

    def _forge_control(self, stream: str, choice: int, last: int, now_ms: int) -> None:
        """Write into a process's own control topic what only the manager, or another process, may
        write.
        """
        topics = [
            topic
            for topic, speaker in control_topics(self._pipeline).items()
            if not speaker.is_manager
        ]
        at = TopicPartition(topics[choice % len(topics)], 0)
        forged: list[ControlRecord] = [TrimPoint(stream, last, now_ms)]
        forged += [
            Fence(stream, writer, self._epochs.get((stream, writer), -1), last, (), now_ms)
            for writer in self._pipeline.stream_writers(stream)
        ]
        if "delivery" not in at.topic:
            forged.append(
                Heartbeat(
                    "delivery",
                    next(iter(self._pipeline.deliveries())),
                    "0",
                    -1,
                    "forged",
                    last,
                    now_ms,
                    checkpoint_bucket=last,
                )
            )
        for entry in forged:
            self._log.partition(at).append(
                Record(control_records.encode(entry), control_records.key_of(entry), (), now_ms)
            )
        self._network.wake({at.topic})

    def _forge_fences(self, stream: str, last: int, now_ms: int) -> None:
        """Somebody who may write where the manager does says of each writer that it is outvoted:
        without votes, by two of them, by replicas that there are not, by replicas that made
        something else, of buckets that nobody has closed. Of the first one also, that the others
        made something else of the newest bucket: of those that the log does not name any more only
        the votes could tell.
        """
        log_state = self._log_state(stream)
        at = TopicPartition(self._pipeline.topic_names.fences(), 0)
        first = log_state.writers[0]
        is_named = log_state.replica_bucket(first, log_state.upto) is not None
        newest = first if is_named else ""
        for writer in log_state.writers:
            epoch, bucket = self._epochs.get((stream, writer), -1), log_state.closed(writer)
            own = Vote(writer, epoch, 1, 1)
            peers = tuple(
                Vote(peer, self._epochs.get((stream, peer), -1), 2, 2)
                for peer in log_state.writers
                if peer != writer
            )
            strangers = (Vote("x", epoch, 2, 2), Vote("y", epoch, 2, 2))
            for votes, of in (
                ((), bucket),
                ((own, *peers[:1]), bucket),
                ((own, *strangers), bucket),
                ((own, *peers), 0),
                ((own, *peers), last + _UNHEARD_OF),
                *([((own, *peers), bucket)] if writer == newest else []),
            ):
                fence = Fence(stream, writer, epoch, of, votes, now_ms)
                self._log.partition(at).append(
                    Record(control_records.encode(fence), control_records.key_of(fence), (), now_ms)
                )
        self._network.wake({at.topic})

    def say_again(self, target: str, now_ms: int) -> None:
        """Repeat the last heartbeat of ``target`` as the primary of an epoch that is over."""
        service, _, label = target.partition("/")
        stage = label.partition(".")[0]
        at = TopicPartition(self._pipeline.topic_names.control(service, label), 0)
        partition = self._log.partition(at)
        for offset in range(partition.end - 1, partition.start - 1, -1):
            record = partition.at(offset)
            with contextlib.suppress(RemoteProtocolError):
                entry = control_records.decode(record.value)
                if (
                    isinstance(entry, Heartbeat)
                    and (entry.service, entry.name) == (service, stage)
                    and entry.epoch < self._epochs.get((stage, entry.replica), -1)
                ):
                    partition.append(Record(record.value, record.key, (), now_ms))
                    self._network.history.reached("an older epoch is heard again")
                    self._network.wake({at.topic})
                    return

    def claim_again(self, target: str, now_ms: int) -> None:
        """Repeat the heartbeat by which ``target`` claimed most as a standby in this life."""
        service, _, label = target.partition("/")
        at = TopicPartition(self._pipeline.topic_names.control(service, label), 0)
        partition = self._log.partition(at)
        said: list[tuple[Heartbeat, Record]] = []
        for offset in range(partition.start, partition.end):
            record = partition.at(offset)
            with contextlib.suppress(RemoteProtocolError):
                entry = control_records.decode(record.value)
                if isinstance(entry, Heartbeat) and entry.service == STANDBY_SERVICE:
                    said.append((entry, record))
        alike = [each for each in said if each[0].life == said[-1][0].life]
        if alike:
            _, record = max(alike, key=lambda each: each[0].checkpoint_bucket)
            partition.append(Record(record.value, record.key, (), now_ms))
            self._network.history.reached("an old claim is heard again")
            self._network.wake({at.topic})

    def _log_state(self, stream: str) -> LogState:
        """Return the state of a stream, from what is left of its log."""
        log = self._log.partition(TopicPartition(self._pipeline.topic_names.boundaries(stream), 0))
        log_state = LogState(self._pipeline.stream_writers(stream))
        for offset in range(log.start, log.end):
            with contextlib.suppress(RemoteProtocolError):
                record = log.at(offset)
                log_state.apply(offset, boundary_records.decode(record.value, record.headers))
        return log_state

    def has_only_begun_late(self, stream: str) -> bool:
        """Return whether a process of the stage has recorded a late start, and none a result."""
        log_state = self._log_state(stream)
        origins = [log_state.origin(writer) for writer in log_state.writers]
        return any(each.late_upto for each in origins) and not any(
            each.has_results for each in origins
        )

    def has_delivered(self, process: str) -> bool:
        """Return whether a delivery process has recorded a run, and not only where its output
        begins.
        """
        at = TopicPartition(self._pipeline.topic_names.progress(process), 0)
        if at.topic not in self._log.topics:
            return False
        partition = self._log.partition(at)
        there = [partition.at(offset) for offset in range(partition.start, partition.end)]
        return any(
            isinstance(entry := control_records.decode(record.value), DeliveryProgress)
            and has_run(entry)
            for record in there
            if not record.control and is_committed(record)
        )

    def lose_all_blocks(self, stream: str) -> None:
        """Blocks of closed buckets are gone, whoever wrote them."""
        log_state = self._log_state(stream)
        for writer in self._pipeline.stream_writers(stream):
            self._delete(stream, writer, *self._blocks_needed(log_state, writer, None))

    def lose_partitions(self, stream: str) -> None:
        """All blocks of a stream are lost, whoever wrote them, and their partitions grow again."""
        for writer in self._pipeline.stream_writers(stream):
            topic = self._pipeline.topic_names.blocks(stream, writer)
            for number, _ in enumerate(self._log.topics[topic][1]):
                self._network.lose_blocks(TopicPartition(topic, number))

    def lose_blocks(self, stream: str, choice: int, *, spoils: bool) -> None:
        """Blocks of one writer are gone, or hold other rows, as far as another one has closed
        the same buckets.
        """
        names, writers = self._pipeline.topic_names, self._pipeline.stream_writers(stream)
        log_state = self._log_state(stream)
        writer = writers[choice % len(writers)]
        spare, needed = self._blocks_needed(log_state, writer, writers)
        if spoils:
            for part in spare:
                self._network.spoil(
                    TopicPartition(names.blocks(stream, writer), part.partition),
                    part.offset_first,
                    part.offset_next,
                )
            return
        self._delete(stream, writer, spare, needed)

    def _delete(
        self, stream: str, writer: str, spare: Sequence[Part], needed: Sequence[Part]
    ) -> None:
        """Blocks of ``spare`` are gone, but none of ``needed``."""
        names = self._pipeline.topic_names
        gone: dict[TopicPartition, int] = {}
        for part in spare:
            at = TopicPartition(names.blocks(stream, writer), part.partition)
            gone[at] = max(part.offset_next, gone.get(at, 0))
        for part in needed:
            at = TopicPartition(names.blocks(stream, writer), part.partition)
            gone[at] = min(part.offset_first, gone.get(at, 0))
        self._network.delete({at: end for at, end in gone.items() if end > 0}, self._log.admin())

    @staticmethod
    def _blocks_needed(
        log_state: LogState, writer: str, writers: Sequence[str] | None
    ) -> tuple[list[Part], list[Part]]:
        """(parts of closed buckets that another of ``writers`` has too, all others that count).
        ``writers`` None: nobody has to have them.
        """
        spare: list[Part] = []
        needed = list(log_state.pending(writer))
        for bucket, of, parts in log_state.stable(1, log_state.upto):
            others = [
                other
                for other in writers or ()
                if other != writer and log_state.replica_bucket(other, bucket)
            ]
            mine = parts if of == writer else log_state.replica_bucket(writer, bucket) or ()
            (spare if others or writers is None else needed).extend(mine)
        for bucket in log_state.tentative_filled(
            writer, log_state.upto + 1, log_state.tentative_upto(writer)
        ):
            found = log_state.tentative(writer, bucket)
            needed += found.parts if found is not None else ()
        return spare, needed
