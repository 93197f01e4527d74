"""What is there of a stage's inputs when a replica starts, once its followers have read as far as
the logs go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING

from anabranch.ports import TopicPartition
from anabranch.protocol.errors import Unavailable
from anabranch.protocol.limits import CLUSTER_ANSWER_MS
from anabranch.runtime.gone_blocks import gone_range, last_gone
from anabranch.runtime.log_end import end_of

if TYPE_CHECKING:
    from anabranch.pipeline.topic_names import TopicNames
    from anabranch.ports import Condition, EventLog, LogReader
    from anabranch.processing.follower import InputFollower


class StageInputs:
    """The inputs' logs and blocks. It asks the broker without the lock: the followers, who need
    that, go on.
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
        """``lock``: under which the log states of ``followers`` change. ``pause``: waits a
        little, or raises to give up. ``elsewhere``: the clusters of inputs that are on others. Of
        one that does not answer nothing is known, and nothing is reported as gone.
        """
        self._log, self._elsewhere = log, elsewhere
        self._names = names
        self._followers = followers
        self._lock = lock
        self._pause = pause
        self._forgot = 0
        self._gone: tuple[int, dict[str, tuple[int, int]]] = (-1, {})

    def forget(self, upto: int) -> None:
        """Buckets up to this one are in a checkpoint that this process has at hand."""
        self.check_forgotten(upto)
        with self._lock:
            for follower in self._followers.values():
                follower.reader.log_state.forget(upto)
        self._forgot = upto

    def check_forgotten(self, after: int) -> None:
        """Raises Unavailable where buckets after ``after`` are needed which this process has
        forgotten itself.
        """
        if after < self._forgot:
            message = (
                "the primary went on from an older checkpoint than this process had copied: it"
                " follows the logs anew"
            )
            raise Unavailable(message)

    def complete(self) -> int:
        """The last bucket that is complete on all inputs by now.

        Raises:
            Unavailable: one is on a cluster that does not answer.
        """
        with self._read() as readers:
            for stream in self._followers.keys() - readers.keys():
                raise Unavailable(f"the cluster of {stream} does not answer")
            return min(follower.reader.log_state.upto for follower in self._followers.values())

    def last_gone(self) -> int:
        """The last bucket of which blocks of an input are gone, or rows are in streams that the
        pipeline file does not name any more; 0: none is.
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
        """What is gone of the inputs' blocks of buckets after ``after``, in words; empty:
        they are there.
        """
        self.check_forgotten(after)
        gone = dict[str, tuple[int, int]]()
        with self._read() as readers:
            for stream, reader in readers.items():
                log_state = self._followers[stream].reader.log_state
                if after < (forgotten := log_state.forgotten):
                    # Nobody knows what was in them, so nobody can recompute it.
                    return (
                        f"buckets {after + 1}..{forgotten} of {stream} are trimmed, and its log"
                        " describes them no more"
                    )
                found = gone_range(
                    reader, partial(self._names.blocks, stream), log_state, after, lock=self._lock
                )
                if found is not None:
                    gone[stream] = found
        if gone and after >= self._gone[0]:
            self._gone = after, gone
        return "; ".join(
            f"the blocks of {stream} from bucket {first} on are deleted"
            for stream, (first, _) in gone.items()
        )

    def gone(self) -> dict[str, tuple[int, int]]:
        """By stream, (first, last) bucket that is gone after the start that was tried and
        lacks least. Forgets it.
        """
        (_, gone), self._gone = self._gone, (-1, {})
        return gone

    def recomputed(self, after: int) -> bool:
        """Whether blocks of buckets after ``after`` of an input stand elsewhere than they did, or
        cannot be read now: what was planned to be read of them is planned anew.
        """
        with self._read() as readers, self._lock:
            return len(readers) < len(self._followers) or any(
                follower.reader.log_state.recomputed_after(after)
                for follower in self._followers.values()
            )

    @contextmanager
    def _read(self) -> Iterator[dict[str, LogReader]]:
        """Wait until the inputs' logs are read up to an end requested now; a reader of each,
        without those on clusters that do not answer.
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
        """Whether that log could be read up to its end."""
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
