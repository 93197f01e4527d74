"""Records of live transactions, in the topic's form: a sequence with kinds, or a compacted view by
key.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final, Protocol

import pyarrow as pa

from anabranch.codec import live_records
from anabranch.codec.live_records import (
    KIND_HEADER,
    MISSING_HEADER,
    SHED_HEADER,
    tentative_suffix,
)
from anabranch.codec.partitions import partition_of
from anabranch.delivery.rendering import MissingSources, Records, Renderer, Written, none_missing
from anabranch.ports import TopicPartition, TransactionalWriter
from anabranch.protocol.edge.delivery import Slice
from anabranch.protocol.edge.live_delivery import Kind, LiveProgress, LiveRun
from anabranch.protocol.edge.views import KeyState, Rows, UpsertView, Version, ViewRecord
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.log.records import BranchNumber

_INSERTION: Final = [(KIND_HEADER, Kind.INSERTION.value.encode())]
_TENTATIVE: Final = (KIND_HEADER, Kind.TENTATIVE.value.encode())


@dataclass(frozen=True, slots=True)
class Piece:
    """Rows of some buckets of one transaction, in canonical order."""

    slices: tuple[Slice, ...]
    table: pa.Table
    branch: BranchNumber | None = None
    """Branch that made tentative rows; None for stable rows."""
    missing: tuple[str, ...] = ()
    """Sources without which tentative rows were made."""
    shed: int = 0
    """Per mille of the rows of their input that tentative rows were made without."""


class LiveForm(Protocol):
    """Form of the live topic's records."""

    left_out: int
    """Number of records left out of the last transaction, as larger than the topic takes."""

    def write(self, writer: TransactionalWriter, run: LiveRun, pieces: Iterator[Piece]) -> None:
        """Send the records of ``run``; ``pieces`` are its insertions, then tentative buckets."""

    def committed(self) -> None:
        """Record that the last written transaction was committed."""


class KindSequence:
    """Form that sends every record with its kind. Control records go to every partition
    (docs/concepts.md).
    """

    def __init__(
        self,
        renderer: Renderer,
        width_ms: int,
        fitting_bytes: int | None = None,
        missing_of: MissingSources = none_missing,
    ) -> None:
        """Keep the arguments. Records larger than ``fitting_bytes`` are left out; with None, none.
        ``missing_of`` names the sources that were given up for a stable bucket.
        """
        self._renderer = renderer
        self._width_ms = width_ms
        self._fitting_bytes = fitting_bytes
        self._topic, self._partitions = renderer.topic, renderer.partitions
        self._missing_of = missing_of
        self.left_out = 0

    def write(self, writer: TransactionalWriter, run: LiveRun, pieces: Iterator[Piece]) -> None:
        """Send, in this order: undo, insertions, tentative buckets, rec_done, boundary."""
        self.left_out = 0
        if run.undo:
            self._control(writer, Kind.UNDO, run.before)
        for piece in pieces:
            if self._renderer.rejects(piece.table.schema):
                continue  # counted by the stage that made the rows, or by the corrected half
            records = self._renderer.render(
                piece.slices,
                piece.table,
                self._missing_of if piece.branch is None else none_missing,
            )
            records = self._fitting(replace(records, headers=self._headers(piece, records)))
            writer.send_many(
                self._topic, records.partitions, records.values, records.keys, records.headers
            )
        if run.rec_done:
            self._control(writer, Kind.REC_DONE, run.after)
        self._control(writer, Kind.BOUNDARY, run.after)

    def committed(self) -> None:
        """Do nothing: this form keeps no state."""

    def _fitting(self, records: Records) -> Records:
        """Return the records that the topic takes. The others are in the corrected topic, or in
        that of rejected results.
        """
        if self._fitting_bytes is None:
            return records
        kept = [place for place, size in enumerate(records.sizes()) if size <= self._fitting_bytes]
        self.left_out += len(records.values) - len(kept)
        return records.only(kept)

    @staticmethod
    def _headers(piece: Piece, records: Records) -> list[Written]:
        """Return the headers of ``records`` with their kind; those of tentative ones also with the
        branch in the id, the missing sources, and the share of rows that was left out.
        """
        if piece.branch is None:
            return [[*_INSERTION, *head] for head in records.headers]
        suffix = tentative_suffix(piece.branch)
        lacking = [(MISSING_HEADER, ",".join(piece.missing).encode())]
        if piece.shed:
            lacking.append((SHED_HEADER, b"%d" % piece.shed))
        return [
            [_TENTATIVE, (head[0][0], head[0][1] + suffix), *head[1:], *lacking]
            for head in records.headers
        ]

    def _control(self, writer: TransactionalWriter, kind: Kind, progress: LiveProgress) -> None:
        """Send a control record to every partition."""
        value, headers = live_records.control(kind, progress, self._width_ms, self._renderer.origin)
        for partition in range(self._partitions):
            writer.send(TopicPartition(self._topic, partition), value, None, headers)


class CompactedView:
    """Form that keeps one record per key, its newest value (``protocol.edge.views``)."""

    def __init__(
        self,
        renderer: Renderer,
        view: UpsertView,
        fitting_bytes: int | None = None,
        missing_of: MissingSources = none_missing,
    ) -> None:
        """Keep the arguments. In place of a record larger than ``fitting_bytes`` the view shows its
        key's last stable value, or none; with None, every record is sent. ``missing_of`` names the
        sources that were given up for a stable bucket.
        """
        self._renderer = renderer
        self._view = view
        self._fitting_bytes = fitting_bytes
        self._topic, self._partitions = renderer.topic, renderer.partitions
        self._missing_of = missing_of
        self.left_out = 0
        self._written: list[ViewRecord] = []

    def write(self, writer: TransactionalWriter, run: LiveRun, pieces: Iterator[Piece]) -> None:
        """Send one record for every key whose newest or last stable value ``run`` changes."""
        insertions: dict[bytes, Version] = {}
        tentative: dict[bytes, Version] = {}
        for piece in pieces:
            if self._renderer.rejects(piece.table.schema):
                continue
            for key, version in self._rows(piece):
                (insertions if piece.branch is None else tentative)[key] = version
        wanted = self._view.transaction(
            undo=run.undo,
            insertions=insertions.items(),
            stable_upto=run.after.stable,
            tentative=tentative.items(),
        )
        kept = [self._fitting(write) for write in wanted]
        self.left_out = sum(write != instead for write, instead in zip(wanted, kept, strict=True))
        self._written = [write for write in kept if write.state != self._view.state(write.key)]
        for write in self._written:
            value, headers = live_records.upsert(write, self._renderer.origin)
            partition = partition_of(write.key, RecordId(1, 0), self._partitions)
            writer.send(TopicPartition(self._topic, partition), value, write.key, headers)

    def committed(self) -> None:
        """Apply the last written transaction to the view."""
        self._view.apply(self._written)
        self._written = []

    def _fitting(self, write: ViewRecord) -> ViewRecord:
        """Return ``write`` if the topic takes it, else its replacement: the key's last stable
        value, or no value. Never an older tentative one.
        """
        if self._fitting_bytes is None or self._size(write) <= self._fitting_bytes:
            return write
        stable = ViewRecord(write.key, Kind.UNDO, KeyState(write.state.stable))
        if self._size(stable) <= self._fitting_bytes:
            return stable
        return ViewRecord(write.key, Kind.UNDO, KeyState())

    def _size(self, write: ViewRecord) -> int:
        """Return the size of ``write`` as a record: key, value and headers, in bytes."""
        value, headers = live_records.upsert(write, self._renderer.origin)
        sizes = (len(name) + len(text) for name, text in headers)
        return len(value or b"") + len(write.key) + sum(sizes)

    def _rows(self, piece: Piece) -> Rows:
        """Yield the key and version of each row of ``piece``."""
        records = self._renderer.render(piece.slices, piece.table)
        event_times = (int(head[1][1]) for head in records.headers)
        ids = (
            RecordId(s.bucket, position)
            for s in piece.slices
            for position in range(s.start, s.stop)
        )
        for key, value, ident, event_time_ms in zip(
            records.keys, records.values, ids, event_times, strict=True
        ):
            if key is not None:  # always so: the pipeline file must name a key for `upsert`
                missing = self._missing_of(ident.bucket) if piece.branch is None else piece.missing
                yield key, Version(ident, event_time_ms, value, piece.branch, missing, piece.shed)
