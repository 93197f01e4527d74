"""The users' producers: records that are due go into the input topics, unless their producers are
cut off; after the data, signs of life.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anabranch.adapters.memory.partition import Partition, Record
from anabranch.ingestion.batches import HEARTBEAT
from anabranch.ports import Headers, TopicPartition
from simulation import leaders_clocks, workload

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from anabranch.adapters.memory.log import LocalEventLog
    from anabranch.protocol.log.records import InputPosition
    from simulation.faults import Fault
    from simulation.history import History
    from simulation.network import Network
    from simulation.options import Options
    from simulation.scheduler import Scheduler


class Producers:
    """Producers of all partitions of all sources."""

    def __init__(
        self,
        options: Options,
        sent: Sequence[workload.Sent],
        scheduler: Scheduler,
        log: LocalEventLog,
        network: Network,
        history: History,
    ) -> None:
        self._options = options
        self._scheduler = scheduler
        self._log = log
        self._network, self._history = network, history
        self._silent: dict[tuple[str, int], int] = {}
        self.gone: set[tuple[str, int]] = set()
        """Input partitions that never speak again."""
        self.unread = Counter((workload.topic_of(each.source), each.partition) for each in sent)
        """Input partitions that are not read to the end, and how many records each gets."""
        self.displaced_ms: dict[tuple[str, int], int] = {}
        """Error of the clock of each partition's leader, in ms."""
        self.displaced_by: dict[tuple[str, int, int], int] = {}
        """Error of the timestamp of a record, by (topic, partition, offset)."""
        self.read_upto = Counter[tuple[str, int]]()
        """Offset of each input partition up to which its source says that it has read."""
        self._queues: dict[tuple[str, int], list[workload.Sent]] = {}
        for source in options.sources:
            for partition in range(options.source_partitions):
                mine = [
                    each for each in sent if (each.source, each.partition) == (source, partition)
                ]
                self._queues[source, partition] = mine[::-1]

    def begin(self, sent: Sequence[workload.Sent]) -> None:
        """Every record at its time."""
        for each in sent:
            self._scheduler.at(
                each.at_ms,
                lambda each=each: self.produce(each.source, each.partition),  # type: ignore[misc]
            )
        self._scheduler.at(workload.data_end_ms(self._options), self.beat)
        if self._options.grown_ms is not None:
            self._scheduler.at(self._options.grown_ms, self.grow)

    def produce(self, source: str, partition: int) -> None:
        """Send what is due to a partition, unless its producers are cut off."""
        now_ms = self._scheduler.now_ms
        there = self._log.topics.get(f"in.{source}")
        if (source, partition) in self.gone or there is None or partition >= len(there[1]):
            return
        if self._silent.get((source, partition), 0) > now_ms:
            return
        queue, at = self._queues[source, partition], TopicPartition(f"in.{source}", partition)
        while queue and queue[-1].at_ms <= now_ms:
            each = queue.pop()
            offset = self._append(at, each.value, each.key, each.headers)
            self._history.add(
                now_ms,
                "producer",
                "append",
                at.topic,
                partition,
                offset,
                None if each.row is None else each.row[1],
            )
        if not queue and now_ms >= workload.data_end_ms(self._options):
            says_ms = workload.BASE_MS + now_ms - workload.HEARTBEAT_LAG_MS
            self._append(at, b"", None, ((HEARTBEAT, b"%d" % says_ms),))
        self._network.wake({at.topic})

    def _append(
        self, at: TopicPartition, value: bytes | None, key: bytes | None, headers: Headers
    ) -> int:
        """Append a record, dated by the clock of the partition's leader; return its offset."""
        displaced_ms = self.displaced_ms.get((at.topic, at.partition), 0)
        dated_ms = workload.BASE_MS + self._scheduler.now_ms + displaced_ms
        offset = self._log.partition(at).append(Record(value, key, headers, dated_ms))
        if displaced_ms:
            self.displaced_by[at.topic, at.partition, offset] = displaced_ms
        return offset

    def grow(self) -> None:
        """Each input gets its last partition, and at once all that its producers had for it."""
        self._history.reached("fault grown")
        for source in self._options.sources:
            self._log.topics[f"in.{source}"][1].append(Partition())
            self.produce(source, self._options.source_partitions - 1)

    def beat(self) -> None:
        """After their data, producers say that they live, for as long as the run lasts."""
        for source, partition in self._queues:
            self.produce(source, partition)
        self._scheduler.at(self._scheduler.now_ms + self._options.bucket_ms // 2, self.beat)

    def read(self, positions: Sequence[InputPosition], topic_ids: Mapping[str, str]) -> None:
        """Note how far a source says that it has read, in topics that still exist."""
        for each in positions:
            if each.topic_id not in ("", topic_ids[each.topic]):
                continue
            place = each.topic, each.partition
            self.read_upto[place] = max(each.offset_next, self.read_upto[place])
            if each.offset_next >= self.unread[each.topic, each.partition]:
                del self.unread[each.topic, each.partition]

    def read_again(self) -> None:
        """Let the sources begin again with what is there."""
        for source in self._options.sources:
            for partition, there in enumerate(self._log.topics[workload.topic_of(source)][1]):
                left = self._queues[source, partition]
                self.unread[workload.topic_of(source), partition] = there.end + len(left)
        self.read_upto.clear()

    def forget(self, topic: str) -> None:
        """Note that ``topic`` is deleted: all that is left for it goes into the one that is created
        again.
        """
        for (source, partition), left in self._queues.items():
            if workload.topic_of(source) == topic:
                self.unread[topic, partition] = len(left)
                self.read_upto.pop((topic, partition), None)

    def find(self, source: str) -> None:
        """Send what is due to the topic of ``source``, which was created again."""
        for partition in range(self._options.source_partitions):
            self.produce(source, partition)

    def displace(self, fault: Fault) -> None:
        """Give a partition another leader, whose clock is wrong by the fault's value."""
        self.displaced_ms[leaders_clocks.place(fault.target)] = fault.value

    def silence(self, source: str, partition: int, until_ms: int) -> None:
        """They are cut off until then."""
        self._silent[source, partition] = max(until_ms, self._silent.get((source, partition), 0))
        self._scheduler.at(until_ms, lambda: self.produce(source, partition))

    def silence_all(self, until_ms: int) -> None:
        """All of them."""
        for source, partition in self._queues:
            self.silence(source, partition, until_ms)

    def heal(self) -> None:
        """Let cut-off producers send again, to leaders whose clocks are nearly right."""
        for place, displaced_ms in self.displaced_ms.items():
            if abs(displaced_ms) > leaders_clocks.STAYS_WRONG_MS:
                self.displaced_ms[place] = 0
        for source, partition in self._silent:
            self._silent[source, partition] = 0
            self.produce(source, partition)
