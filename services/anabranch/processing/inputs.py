"""Inputs of a starting replica: which of their buckets are complete, and which blocks are missing.
Each question is answered once the followers have read the logs to their current ends.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import CLUSTER_ANSWER_MS
from anabranch.streams.block_heads import BlockHeads
from anabranch.streams.gone_blocks import gone_range, last_gone
from anabranch.streams.log_end import end_of

if TYPE_CHECKING:
    from anabranch.pipeline.topic_names import TopicNames
    from anabranch.ports import Clock, Condition, EventLog, LogReader
    from anabranch.processing.follower import InputFollower
    from anabranch.protocol.log.boundary_log import LogState


class StageInputs:
    """Inputs of one stage: their logs and blocks. It queries the broker without holding the lock,
    so the followers, which need the lock, keep reading.
    """

    def __init__(
        self,
        log: EventLog,
        names: TopicNames,
        followers: Mapping[str, InputFollower],
        lock: Condition,
        pause: Callable[[], None],
        elsewhere: Mapping[str, EventLog] = MappingProxyType({}),
    ) -> None:
        """Use the logs that ``followers`` read.

        ``lock``: held while the log states of ``followers`` change. ``pause``: waits a little, or
        raises to end the start. ``elsewhere``: clusters of inputs on other clusters. While one of
        them does not answer, its inputs are neither known nor reported as missing.
        """
        self._log, self._elsewhere = log, elsewhere
        self._names = names
        self._followers = followers
        self._lock = lock
        self._pause = pause
        self._proves_by: Clock | None = None
        self._forgot = 0
        self._gone: tuple[int, dict[str, tuple[int, int]]] = (-1, {})

    def prove_blocks(self, clock: Clock) -> None:
        """Let ``missing`` prove from now on that blocks are there, after they could not be read: a
        partition that lost them may have grown past their offsets since.
        """
        self._proves_by = clock

    def forget(self, upto: int) -> None:
        """Forget the buckets up to ``upto``, which a checkpoint of this process holds."""
        self.check_forgotten(upto)
        with self._lock:
            for follower in self._followers.values():
                follower.reader.log_state.forget(upto)
        self._forgot = upto

    def check_forgotten(self, after: int) -> None:
        """Check that the buckets after ``after`` are still known.

        Raises:
            Unavailable: this process has forgotten them.
        """
        if after < self._forgot:
            message = (
                "the primary went on from an older checkpoint than this process had copied: it"
                " follows the logs anew"
            )
            raise Unavailable(message)

    def complete(self) -> int:
        """Return the last bucket that is complete on all inputs by now.

        Raises:
            Unavailable: the cluster of an input does not answer.
        """
        with self._read() as readers:
            for stream in self._followers.keys() - readers.keys():
                raise Unavailable(f"the cluster of {stream} does not answer")
            return min(follower.reader.log_state.upto for follower in self._followers.values())

    def last_gone(self) -> int:
        """Return the last bucket of which an input's blocks are missing, or that has rows in
        streams which the pipeline file no longer names; 0 if there is none.
        """
        with self._read() as readers:
            return max(
                (
                    max(
                        self._followers[stream].reader.log_state.whole_after,
                        last_gone(
                            reader,
                            partial(self._names.blocks, stream),
                            self._followers[stream].reader.log_state,
                            lock=self._lock,
                        ),
                    )
                    for stream, reader in readers.items()
                ),
                default=0,
            )

    def missing(self, after: int) -> str:
        """Describe, for people, which blocks of the inputs' buckets after ``after`` are missing;
        empty if none.
        """
        self.check_forgotten(after)
        gone = dict[str, tuple[int, int]]()
        with self._read() as readers:
            for stream, reader in readers.items():
                log_state = self._followers[stream].reader.log_state
                if after < (forgotten := log_state.forgotten):
                    # No log says what these buckets held, so no replica can recompute them.
                    return (
                        f"buckets {after + 1}..{forgotten} of {stream} are trimmed, and its log"
                        " no longer describes them"
                    )
                found = self._gone_range(stream, reader, log_state, after)
                if found is not None:
                    gone[stream] = found
        if gone and after >= self._gone[0]:
            self._gone = after, gone
        return "; ".join(
            f"the blocks of {stream} from bucket {first} on are deleted"
            for stream, (first, _) in gone.items()
        )

    def _gone_range(
        self, stream: str, reader: LogReader, log_state: LogState, after: int
    ) -> tuple[int, int] | None:
        """Return the first and last bucket of ``stream`` after ``after`` of which blocks are gone;
        None if there is none.
        """
        topic_of, clock = partial(self._names.blocks, stream), self._proves_by
        if clock is None:
            return gone_range(reader, topic_of, log_state, after, lock=self._lock)
        log, is_elsewhere = self._elsewhere.get(stream, self._log), stream in self._elsewhere
        with closing(BlockHeads(log, clock, is_elsewhere=is_elsewhere)) as heads:
            return gone_range(reader, topic_of, log_state, after, lock=self._lock, heads=heads)

    def gone(self) -> dict[str, tuple[int, int]]:
        """Return, by stream, the (first, last) missing bucket for the attempted start that lacks
        least, and forget it.
        """
        (_, gone), self._gone = self._gone, (-1, {})
        return gone

    def recomputed(self, after: int) -> bool:
        """Return whether blocks of input buckets after ``after`` have moved to other offsets, or
        cannot be read now. Batches that were planned over them must then be planned again.
        """
        with self._read() as readers, self._lock:
            return len(readers) < len(self._followers) or any(
                follower.reader.log_state.recomputed_after(after)
                for follower in self._followers.values()
            )

    @contextmanager
    def _read(self) -> Iterator[dict[str, LogReader]]:
        """Wait until the inputs' logs are read to their current ends. Yield a log reader for each
        input, without inputs on clusters that do not answer.
        """
        with ExitStack() as closing_them:
            own = self._log.reader(committed=False, headers=False)
            closing_them.callback(own.close)
            found = {}
            for stream, follower in self._followers.items():
                at = TopicPartition(self._names.boundaries(stream), 0)
                if stream in self._elsewhere:
                    reader = self._elsewhere[stream].reader(committed=False, headers=False)
                    closing_them.callback(reader.close)
                    if self._read_elsewhere(follower, reader, at):
                        found[stream] = reader
                    continue
                end = own.offsets(at)[1]
                while follower.reader.offset_next < end:
                    follower.raise_error()
                    self._pause()
                found[stream] = own
            yield found

    def _read_elsewhere(
        self, follower: InputFollower, reader: LogReader, at: TopicPartition
    ) -> bool:
        """Return whether the log of an input on another cluster was read to its end."""
        try:
            end = None
            while not follower.reader.trouble:
                follower.raise_error()
                there = end_of(reader, at, CLUSTER_ANSWER_MS)
                end = there if end is None else end
                if follower.reader.offset_next >= end:
                    return True
                self._pause()
        except Unavailable:
            pass
        return False
