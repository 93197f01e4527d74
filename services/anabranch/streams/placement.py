"""Reader and writer of the log of moves, which places each replica on a node, lets stages begin
anew and splits shards; and a query for the node on which a replica runs.

A crash loses nothing: a new reader reads the log again, from its beginning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec import control_records
from anabranch.ports import EventLog, TopicPartition
from anabranch.protocol.control.records import Move, Restated, SplitStep
from anabranch.protocol.errors import OutcomeUnknown, RemoteProtocolError, Unavailable
from anabranch.protocol.stage.restating import Restatements
from anabranch.protocol.stage.splitting import Splits
from anabranch.streams.boundary_reader import BoundaryReader, ExpectedStream
from anabranch.streams.log_end import read_to

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.control.placement import Places

_FETCH_RECORDS: Final = 2_000
_SILENT_POLLS_MAX: Final = 100
"""Maximum number of consecutive empty polls before the log's end, after which reading fails."""


def append_decision(
    log: EventLog, at: TopicPartition, entry: Move | Restated | SplitStep, what: str
) -> None:
    """Append a decision to the log of moves at ``at``. ``what`` it is, for messages.

    Raises:
        Unavailable: the broker does not answer, or it is not known whether the record was written:
            giving the decision again is safe, as the newest counts.
    """
    writer = log.writer()
    try:
        writer.send(at, control_records.encode(entry), control_records.key_of(entry))
        writer.flush()
    except OutcomeUnknown as error:
        raise Unavailable(
            f"it is not known whether the {what} was written: {error}; give the command again"
        ) from error
    finally:
        writer.close()


class PlacementReader:
    """Reader of the log of moves. Not thread-safe."""

    def __init__(
        self,
        log: EventLog,
        topic: str,
        places: Places,
        listener: Callable[[Move, str], None] = lambda _move, _source: None,
        on_split: Callable[[SplitStep], None] = lambda _step: None,
    ) -> None:
        """Open the log. ``places`` are those of the pipeline file; moves change them. ``listener``
        receives each move that counts, after it was applied, and the node that had the place
        before; ``on_split`` each step of a split that counts.

        Raises:
            Unavailable: the topic does not exist, or there is no answer.
        """
        self.places, self._at, self._listener = places, TopicPartition(topic, 0), listener
        self._on_split = on_split
        self._reader = log.reader(committed=False, headers=False, follows=True)
        self._reader.assign({self._at: self._reader.offsets(self._at)[0]})
        self.restatements = Restatements()
        self.splits = Splits()
        """Attempts to split shards."""
        self.ignored = 0
        """Number of records that are none of these, or impossible ones."""

    def poll(self, wait_ms: int = 0) -> bool:
        """Read and apply new moves, waiting up to ``wait_ms`` for the first. Return whether a place
        has changed.
        """
        has_changed = False
        for chunk in self._reader.fetch(_FETCH_RECORDS, wait_ms):
            for value in chunk.values:
                has_changed |= self._take(value)
        return has_changed

    def _take(self, value: bytes | None) -> bool:
        """Take one record. Returns whether a place has changed."""
        try:
            entry = control_records.decode(value)
        except RemoteProtocolError:
            entry = None
        has_moved = isinstance(entry, Move) and self._apply(entry)
        is_decision = isinstance(entry, Restated) and self.restatements.add(entry)
        if isinstance(entry, SplitStep) and self.splits.apply(entry):
            is_decision = True
            self._on_split(entry)
        self.ignored += not (has_moved or is_decision)
        return has_moved

    def _apply(self, move: Move) -> bool:
        """Apply one move. Return whether it counts."""
        label = f"{move.stage}.{move.replica}"
        source = self.places.node_of(label) if label in self.places.labels() else ""
        has_moved = self.places.moved(move)
        if has_moved:
            self._listener(move, source)
        return has_moved

    def read_to_end(self) -> None:
        """Read and apply the log up to its present end.

        Raises:
            Unavailable: no answer, or no record arrives although the end is not reached.
        """
        end = self._reader.offsets(self._at)[1]
        read_to(
            end,
            self._at.topic,
            lambda: self._reader.position(self._at),
            self.poll,
            silent_polls_max=_SILENT_POLLS_MAX,
        )

    def close(self) -> None:
        """Close the log. Idempotent."""
        self._reader.close()


def runs_on(log: EventLog, pipeline: Pipeline, stage: str, process: str) -> str:
    """Return the node on which the newest epoch of a replica began, by its boundary log, read to
    its end. Empty if there is none, or the log does not say.

    Raises:
        Unavailable: no answer.
    """
    writers = pipeline.stream_writers(stage)
    reader = BoundaryReader(
        log,
        pipeline.topic_names.boundaries(stage),
        writers,
        expected=ExpectedStream(bucket_ms=pipeline.bucket_ms),
    )
    try:
        reader.read_to_end()
        return reader.log_state.node(process if process in writers else writers[0])
    finally:
        reader.close()
