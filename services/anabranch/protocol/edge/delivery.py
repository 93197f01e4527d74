"""Delivery of the corrected topic: what to write next, and what is already there (rule 19).

Theory of operation. An output's stable records are one sequence, ordered by id = (bucket, position
in the bucket's canonical order); stable buckets never change, so neither does the sequence.
Delivery writes it in *runs*. A run is one transaction: its records, and one progress record that
says where the run begins and ends in the sequence, and its first possible position in each
partition of the topic.

Exactness does not rest on transactions: one whose outcome is unknown may have been applied, or not,
or in some partitions only, with or without its progress record. So its replacement (after a
restart, or an unknown outcome: in both cases the older writer is fenced first) starts at the
*beginning* of the last run that a progress record names, reads the topic from that run's positions
to its end, and goes through the sequence again, writing the ids that are not there. That repairs
the last run too. Until all ids that were found are passed, progress records keep the positions read
from, so that a second crash finds them again.

If retention has removed records above those positions, their ids cannot be compared.
Then records that a progress record names count as written in such a partition. Rows of an
unfinished run that retention removed would be written again, with the same ids.

A record may be larger than its topic takes. The broker does not tell which record of a run that is,
and it rejects records that are sent together as a whole. So a run that is rejected is cut, before
its largest record and at its middle, until it is a single record. That record goes to the topic of
rejected results instead, truncated if that topic rejects it, too. The topic of rejected results is
handled like one more partition: its ids are read back, and progress records have its position.

Where an output begins stands in its progress before any of its results is written: a run of no
records. So whatever a transaction leaves, its replacement and its heirs know from where on to look
for it.

An output may be added to a pipeline whose blocks were deleted in part. It begins late, as a stage
does (``protocol.stage.recovery``), as long as neither of its topics has anything, and neither gets
anything before that is recorded. So the live topic begins there too, and where only one has
delivered, the other one waits for its blocks.

*Shards* (``protocol.edge.shards``). An output with n shards is delivered by n processes. Each goes
through the whole sequence, but writes only what belongs into its own partitions; so order within a
partition, and all that is said above, are each shard's own matter. A run of which nothing is the
shard's is recorded, too, by its progress alone, so that what all have passed can be trimmed. Each
shard has a partition of the topic of rejected results to itself, the one of its number.

All shards begin at the same bucket: the first of them decides it and records it once, under the
output's own name, too, and the others wait for that. The number of shards, and that
of partitions, is part of what progress records say: under another number a partition would be
written by a shard that does not know what stands there. So a shard stops (code 2) where its own
progress, or the beginning of all, says another. How the number changes all the same is in
``protocol.edge.output_handover``: a shard may have *inherited* its partitions. Then ids before a
bound, one for each partition, count as written, and progress records say so until all that was
found is passed.

Ids are those of one origin (``protocol.edge.origins``): what another output or an earlier life has
written to the topic is no part of the sequence.

Invariants:
    DE1 an id that is in the topic at or after the last progress record's positions is not
        written.
    DE2 every id from the sequence's beginning (or from where an output began that was added later)
        to ``cursor`` stands in the topic, once (or did, before retention).
    DE3 ids of one partition ascend, unless a torn transaction left a hole that is filled later.
    DE4 every id >= the beginning of the last recorded run stands at or after that record's
        positions.
    DE5 the number of partitions never changes: records of one key stay in one partition.
    DE6 a run has at most ``rows_max`` records; it takes buckets whole unless its first bucket alone
        has more.
    DE7 an id of a bucket that is not stable cannot be this output's: it is foreign, and rejected.
    DE8 a record goes to the topic of rejected results only if it was rejected when it was sent
        alone, or if it is a notice, which is no result; its id counts as written, also for its
        replacement. Notices that follow one another go there together.
    DE9 if no replica has the blocks of the next run, delivery never writes less. It waits for them,
        and requests deleted ones, unless neither this topic nor its live one has anything
        yet: then the output begins after them, and its progress says so first.
    DE10 a replacement reads no bucket up to ``passed``: it is before the last run that a progress
        record names.
    DE11 a shard counts, compares and records only its own partitions (MB1); the positions of the
        others in its progress records are OTHERS.
    DE12 no result of an output is written before its progress says where it begins. All its shards
        begin there; of an output with several it never changes.
    DE13 an id before the bound of its partition is not written.
    DE14 as long as ids that retention has removed count as written, progress records keep the
        position that says so, and name nothing beyond those ids: a second crash finds the same.
    DE15 a result for whose columns the output has no form is rejected only where no person can
        correct the pipeline so that it has one. Otherwise delivery waits, and no result is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from anabranch.protocol.control.records import DeliveryProgress
from anabranch.protocol.edge.shards import Shard, another_number, members
from anabranch.protocol.errors import (
    ConfigurationError,
    LocalProtocolError,
    RemoteProtocolError,
    Unavailable,
)
from anabranch.protocol.identifiers import RecordId
from anabranch.protocol.limits import DELIVERY_BUCKETS_MAX, MIB
from anabranch.protocol.log.records import Part

DELIVERY_ROWS_MAX: Final = 100_000
"""Rows of one transaction of delivery: bounds its memory, its time (well below the
transaction time-out) and what a recovery reads back.
"""

DELIVERY_BYTES_MAX: Final = 64 * MIB
"""Maximum size of the rows that one transaction of delivery writes, in bytes, by the mean of the
next ones: bounds memory where records are large.
"""

RECOVERY_IDS_MAX: Final = 5_000_000
"""Ids that a recovery of delivery holds in memory. Only a lost progress topic makes it read
more than a few transactions back.
"""

BEGINNING: Final = RecordId(1, 0)
# The place of the topic of rejected results: its number in progress records, and the last of all
# places in lists.
REJECTED: Final = -1
# The position of a partition that another shard writes.
OTHERS: Final = -1
ALONE: Final = Shard()
ALL_NUMBERS: Final = (
    "write all numbers that it has had, in their order, and last the one that it is to have,"
    " `shards: [BEFORE, NOW]`"
)


def rows_bound(parts: Sequence[Part]) -> int:
    """Return the maximum number of records of a run that is taken from ``parts`` (DE6)."""
    rows = sum(part.rows for part in parts)
    size_bytes = sum(part.size_bytes for part in parts)
    return max(1, min(DELIVERY_ROWS_MAX, DELIVERY_BYTES_MAX * rows // max(1, size_bytes)))


def may_reject(*, others_write: bool, is_former: bool | None) -> bool:
    """Return whether results of a stage for whose columns its output has no form are rejected
    (DE15): another participant may have written them, or they are of a former version of the stage.
    Otherwise the pipeline file contradicts its own stage, which a person corrects.

    Args:
        others_write: Whether another participant may write the stage's stream.
        is_former: Whether the columns differ from those that the stage writes now; None: it is not
            known what it writes.
    """
    return others_write or is_former is True


def begin_of(progress: DeliveryProgress) -> RecordId:
    """Return the first record of the run that ``progress`` records."""
    return RecordId(progress.first_bucket, progress.first_position)


def end_of(progress: DeliveryProgress) -> RecordId:
    """Return the record after the last of the run that ``progress`` records."""
    return RecordId(progress.last_bucket + 1, progress.next_position)


@dataclass(frozen=True, slots=True)
class Left:
    """State that earlier shards left in a partition."""

    written: RecordId
    """Id before which every record of the partition is written, or was before retention."""
    position: int
    """Offset from which records of the other runs may be found."""
    runs: tuple[tuple[int, RecordId], ...]
    """Runs of earlier shards: the lowest offset of each, and the id after its last record."""

    def bound(self, start: int) -> RecordId:
        """Return the id before which records count as written (DE13), if retention has removed
        everything below offset ``start``.
        """
        return max(self.written, *(upto for at, upto in self.runs if start > at), BEGINNING)


@dataclass(frozen=True, slots=True)
class Inherited:
    """Partitions that a shard takes over from earlier shards, and their state."""

    partitions: Mapping[int, Left]
    """State of each of the shard's partitions."""
    rejected: Mapping[int, int]
    """Offset by partition of the topic of rejected results, from which records of earlier shards
    and of this one that may belong to these partitions can be found.
    """

    @property
    def begin(self) -> RecordId:
        """Return the id at which the shard begins."""
        return min(left.written for left in self.partitions.values())


def has_run(progress: DeliveryProgress | None) -> bool:
    """Return whether anything was delivered. An empty run only records where an output
    begins (DE12).
    """
    return progress is not None and begin_of(progress) != end_of(progress)


def shard_begins_after(
    output: str, beginning: DeliveryProgress | None, partitions: int, shard: Shard
) -> int | None:
    """Return the bucket after which ``shard`` begins that has delivered nothing (DE12); None if it
    is for this one to decide.

    Args:
        output: Name of the output, for messages.
        beginning: Progress recorded for all shards together.
        partitions: Number of partitions of the output's topic.
        shard: Shard that begins.

    Raises:
        ConfigurationError: the bucket was recorded under another number of partitions or shards.
        Unavailable: the bucket is not recorded yet, and another shard decides it.
    """
    if beginning is None:
        if shard.index:
            first = members(output, shard.count)[0]
            message = f"{first} has not recorded yet where output {output} begins"
            raise Unavailable(message)
        return None
    check_progress(output, beginning, partitions, Shard(0, shard.count))
    return begin_of(beginning).bucket - 1


def is_of(progress: DeliveryProgress, partitions: int) -> bool:
    """Return whether ``progress`` is of a topic with so many ``partitions``."""
    places = {place for place, _ in progress.positions}
    return places - {REJECTED} == set(range(partitions))


def check_progress(
    output: str, progress: DeliveryProgress, partitions: int, shard: Shard
) -> dict[int, int]:
    """Return the positions of the partitions of ``shard`` that ``progress`` records.

    Raises:
        ConfigurationError: the progress is not that of ``shard``, or of a topic with another number
            of ``partitions``.
    """
    positions = dict(progress.positions)
    positions.pop(REJECTED, None)
    if not is_of(progress, partitions):
        raise ConfigurationError(
            f"output {output}: its topic has {partitions} partitions, delivery began with"
            f" {len(positions)}; records of a key would move to another partition: deliver to a"
            " new topic, under a new output name"
        )
    for partition, position in positions.items():
        had = position != OTHERS
        if had != shard.has(partition):
            what = (
                f"partition {partition} was {'' if had else 'not '}written by shard {shard.index}"
            )
            raise had_another_number(output, shard.count, what)
    return {partition: at for partition, at in positions.items() if at != OTHERS}


def had_another_number(output: str, shards: int, what: str) -> ConfigurationError:
    """Return the error where ``what`` exists, which does not with the file's number of shards."""
    return ConfigurationError(
        f"{another_number(f'output {output}', shards)}: {what}: {ALL_NUMBERS}; or deliver to a new"
        " topic, under a new output name"
    )


def check_end(output: str, partition: int, position: int, end: int) -> None:
    """Check that a partition of the output's topic does not end before a ``position`` that progress
    names, and raise ConfigurationError otherwise.
    """
    if position > end:
        raise ConfigurationError(
            f"output {output}: partition {partition} of its topic ends at {end}, delivery has"
            f" written it up to {position}: the topic was cut or made anew; use a new output name"
            " to deliver everything again"
        )


def output_begins_after(gone: Callable[[], int], *, has_delivered: bool) -> int:
    """Return the bucket after which a corrected topic begins; 0 if nothing is left out, or may be.

    Args:
        gone: Last bucket of which no replica has all blocks.
        has_delivered: True if any process has written to the corrected or the live topic.
    """
    return 0 if has_delivered else gone()


@dataclass(frozen=True, slots=True)
class Slice:
    """Range of rows of a bucket: those at the positions ``start`` to ``stop - 1``."""

    bucket: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Run:
    """Range of one transaction: the records from ``first`` up to, not including, ``next``. Buckets
    without a slice are empty.
    """

    first: RecordId
    next: RecordId
    slices: tuple[Slice, ...]

    @property
    def rows(self) -> int:
        """Number of records that the run covers, including those that are already in the topic."""
        return sum(s.stop - s.start for s in self.slices)


class Form(Enum):
    """Way of writing the next run (DE8)."""

    RECORDS = "to the output topic"
    REJECTED = "its one record, or its notices, to the topic of rejected results"
    CUT = "the same, cut"


class Lack(Enum):
    """Consequence where no replica has the blocks of the next run (DE9)."""

    REPLACED = "another process delivers, and has delivered what was in them"
    DAMAGED = "they are there, but not as the boundary log says: delivery waits, and a person acts"
    LEFT_OUT = "the output begins after them"
    AWAITED = "delivery requests them, and waits"


def live_asks(delivered: int | None, passed: int, *, has_any: bool) -> bool:
    """Return whether the delivery to a live topic requests missing blocks itself. It does not if
    the delivery to the corrected topic will reach the same blocks, and request them for both, or if
    the output may still begin after them, since nothing was delivered (DE9).

    Args:
        delivered: Last bucket that is whole in the corrected topic; None while no process delivers
            to it.
        passed: Last bucket that the live topic no longer needs. Blocks after it are missing.
        has_any: True if the live topic has any record.
    """
    return has_any if delivered is None else passed < delivered


class CorrectedDelivery:
    """Delivery to a corrected topic between two failovers: created after the older writer was
    fenced, discarded when the outcome of a transaction is unknown.

    Order of calls: ``inherit`` where there are earlier shards, ``found`` for every id between
    ``read_from`` and the topics' ends, ``recovered``, then ``plan``, and ``advance`` or
    ``rejected``, for ever.
    """

    def __init__(
        self,
        output: str,
        progress: DeliveryProgress | None,
        starts: Sequence[int],
        ends: Sequence[int],
        *,
        after: int = 0,
        shard: Shard = ALONE,
    ) -> None:
        """Begin after the last recorded run. ``output``: name of the output, or of its shard.
        ``starts`` and ``ends``: first and end offset of every place, read after fencing: the
        output's partitions, then the rejected results.

        ``after``: an output that has delivered nothing yet leaves out the buckets up to here, since
            their blocks are deleted.

        Raises:
            ConfigurationError: the topic's partitions, or the shard's, are not those that delivery
                began with, or the topic was cut or made anew.
        """
        self._output = output
        self._shard = shard
        self._ends = list(ends)
        self._found: dict[int, set[int]] = {}
        self._found_count = 0
        self._found_last: RecordId | None = None
        self._recovered = False
        self._rejected_rows: int | None = None
        self._form = Form.RECORDS
        self._inherited: Inherited | None = None
        self._bounds: dict[int, RecordId] = {}
        """Id by partition up to which ids count as written although they cannot be found (DE13)."""
        self._cut: dict[int, int] = {}
        """Position of each partition above which retention has removed records."""
        self._cursor = self._confirmed = BEGINNING
        self._read_from = [
            start if shard.has(place) else self._ends[place]
            for place, start in enumerate(starts[:REJECTED])
        ] + [starts[REJECTED]]
        if progress is not None and self._is_of_former_topic(progress):
            # No result is known to be written. Those of a torn transaction are found by their ids.
            after, progress = max(after, begin_of(progress).bucket - 1), None
        if progress is not None:
            self._go_on(progress, starts)
        self._recorded = BEGINNING if progress is None else self._cursor
        self._is_new = progress is None
        self._has_run = has_run(progress)
        if not self._has_run:
            self._cursor = self._confirmed = max(self._cursor, RecordId(after + 1, 0))
        self._passed = self._cursor.bucket - 1

    def _is_of_former_topic(self, progress: DeliveryProgress) -> bool:
        """Return whether ``progress`` records only where an output begins, and its topic got more
        partitions since, or was made anew. With several shards each would have to notice that.
        """
        positions, ends = dict(progress.positions), self._ends[:REJECTED]
        return (
            self._shard.count == 1
            and not has_run(progress)
            and (
                not is_of(progress, len(ends))
                or any(positions[partition] > end for partition, end in enumerate(ends))
            )
        )

    def _go_on(self, progress: DeliveryProgress, starts: Sequence[int]) -> None:
        own = check_progress(self._output, progress, len(starts) - 1, self._shard)
        self._cursor, self._confirmed = begin_of(progress), end_of(progress)
        for partition, position in own.items():
            check_end(self._output, partition, position, self._ends[partition])
            if starts[partition] > position:
                self._bounds[partition], self._cut[partition] = self._confirmed, position
            self._read_from[partition] = max(position, starts[partition])
        rejected = dict(progress.positions).get(REJECTED, starts[REJECTED])
        self._read_from[REJECTED] = max(
            min(rejected, self._ends[REJECTED]), starts[REJECTED]
        )  # the topic may be new, or made anew by a person

    def inherit(self, inherited: Inherited, starts: Sequence[int]) -> None:
        """Take what earlier shards have left, which may be ahead. ``starts`` is as at first.

        Raises:
            ConfigurationError: the topic was cut or made anew.
        """
        self._inherited = inherited
        for partition, left in inherited.partitions.items():
            bound = self._bounds.get(partition, BEGINNING)
            self._bounds[partition] = max(bound, left.bound(starts[partition]))
            if self._is_new:
                check_end(self._output, partition, left.position, self._ends[partition])
                self._read_from[partition] = max(left.position, starts[partition])
        if self._is_new:
            rejected = min(inherited.rejected[self._shard.index], self._ends[REJECTED])
            self._read_from[REJECTED] = max(rejected, starts[REJECTED])
            self._cursor = self._confirmed = inherited.begin
            self._passed = self._cursor.bucket - 1

    @property
    def cursor(self) -> RecordId:
        """The next record to go through."""
        return self._cursor

    @property
    def passed(self) -> int:
        """Buckets up to this one are not read again (DE10)."""
        return self._passed

    def is_overtaken(self, progress: DeliveryProgress | None) -> bool:
        """Return whether ``progress``, the newest in the log, is beyond everything that this
        delivery wrote: another process has replaced it meanwhile.
        """
        return progress is not None and end_of(progress) > self._confirmed

    def without_blocks(
        self,
        progress: DeliveryProgress | None,
        gone: tuple[int, int] | None,
        gone_upto: Callable[[], int],
        *,
        live_has_any: bool = False,
    ) -> Lack:
        """Return what follows if no replica has the blocks of the next run (DE9).

        Args:
            progress: Newest progress in the log.
            gone: First and last bucket, from ``cursor`` on, of which blocks are deleted.
            gone_upto: Function that returns the last bucket of which no replica has all blocks.
            live_has_any: Whether anything was delivered to the live topic.
        """
        if self.is_overtaken(progress):
            return Lack.REPLACED
        if gone is None:
            return Lack.DAMAGED
        has_delivered = (
            live_has_any
            or has_run(progress)
            or self._shard.count > 1
            or self._inherited is not None
        )
        begins_after = output_begins_after(gone_upto, has_delivered=has_delivered)
        return Lack.LEFT_OUT if begins_after >= self._cursor.bucket else Lack.AWAITED

    def beginning(self) -> Run | None:
        """Return the run to record before anything is delivered, so that the beginning of the
        output is known (DE12); None if it is recorded. Of an output with shards the first shard
        alone records it; an inherited one knows it.
        """
        if self._shard.index or self._inherited is not None:
            return None
        is_new = self._is_new or self._cursor > self._recorded
        return Run(self._cursor, self._cursor, ()) if is_new else None

    @property
    def read_from(self) -> tuple[int, ...]:
        """Return the offset to read back from, by partition."""
        return tuple(self._read_from)

    def rejected_from(self, starts: Sequence[int], ends: Sequence[int]) -> list[int]:
        """Return the offset to read the topic of rejected results back from, by partition; its end
        if nothing is read. ``starts`` and ``ends`` are its offsets.
        """
        looks = {} if self._inherited is None else dict(self._inherited.rejected)
        looks[self._shard.index] = self._read_from[REJECTED]
        return [
            max(start, min(end, looks.get(partition, end)))
            for partition, (start, end) in enumerate(zip(starts, ends, strict=True))
        ]

    def found(self, ident: RecordId) -> bool:
        """Take an id that was read back from the topic. Return whether it is new.

        Raises:
            ConfigurationError: there are more ids than memory should hold.
        """
        if ident < self._cursor:
            return False
        positions = self._found.setdefault(ident.bucket, set())
        if ident.position in positions:
            return False
        positions.add(ident.position)
        self._found_count += 1
        if self._found_count > RECOVERY_IDS_MAX:
            raise ConfigurationError(
                f"output {self._output}: more than {RECOVERY_IDS_MAX} records stand after the last"
                " progress record: its progress topic was lost; restore it, or use a new output"
                " name to deliver everything again"
            )
        return True

    def recovered(self, upto: int) -> int:
        """Finish reading back: every bucket up to ``upto`` is stable, read from the log after
        fencing. Return the number of ids rejected by DE7.
        """
        foreign = [bucket for bucket in self._found if bucket > upto]
        rejected = sum(len(self._found.pop(bucket)) for bucket in foreign)
        if self._found:
            bucket = max(self._found)
            self._found_last = RecordId(bucket, max(self._found[bucket]))
        self._recovered = True
        return rejected

    @property
    def comparing(self) -> bool:
        """Whether the topic may already have some of the next records: ``there`` must be called for
        every record.
        """
        return (self._found_last is not None and self._cursor <= self._found_last) or (
            self._cursor < max(self._bounds.values(), default=BEGINNING)
        )

    def there(self, ident: RecordId, partition: int) -> bool:
        """Return whether the record ``ident`` of ``partition`` is already written (DE1, DE13)."""
        if ident.position in self._found.get(ident.bucket, ()):
            return True
        return ident < self._bounds.get(partition, BEGINNING)

    def plan(self, upto: int, sizes: Iterable[tuple[int, int]], rows_max: int) -> Run | None:
        """Return the next run (DE6); None if nothing is stable that was not gone through.

        Args:
            upto: Every bucket up to this one is stable.
            sizes: (bucket, rows) of all non-empty buckets from ``cursor.bucket`` to ``upto``,
                ascending.
            rows_max: Rows that it may have.

        Raises:
            LocalProtocolError: called before ``recovered``.
            RemoteProtocolError: a bucket has fewer records than were written of it.
        """
        run = self._whole(upto, sizes, rows_max)
        return None if run is None else self._up_to_bounds(run)

    def _whole(self, upto: int, sizes: Iterable[tuple[int, int]], rows_max: int) -> Run | None:
        """Return the next run, with whole buckets unless the first one alone is too large (DE6)."""
        if not self._recovered:
            raise LocalProtocolError("delivery plans before it has read back")
        if upto < self._cursor.bucket:
            return None
        slices: list[Slice] = []
        left = rows_max if self._rejected_rows is None else min(rows_max, self._rejected_rows)
        for bucket, rows in sizes:
            start = self._cursor.position if bucket == self._cursor.bucket else 0
            if start > rows:
                raise RemoteProtocolError(
                    f"output {self._output}: bucket {bucket} has {rows} records, of which {start}"
                    " were written"
                )
            if rows - start <= left and len(slices) < DELIVERY_BUCKETS_MAX:
                if rows > start:
                    slices.append(Slice(bucket, start, rows))
                left -= rows - start
                continue
            if slices:
                return Run(self._cursor, RecordId(slices[-1].bucket + 1, 0), tuple(slices))
            return Run(
                self._cursor, RecordId(bucket, start + left), (Slice(bucket, start, start + left),)
            )
        return Run(self._cursor, RecordId(upto + 1, 0), tuple(slices))

    def _up_to_bounds(self, run: Run) -> Run:
        """Return ``run``, cut at the id up to which records count as written (DE14), or before its
        bucket if that is not the first one (DE6).
        """
        bound = max(self._bounds.values(), default=BEGINNING)
        if not self._cursor < bound < run.next:
            return run
        if run.slices and run.slices[0].bucket < bound.bucket:
            bound = RecordId(bound.bucket, 0)
        slices = (
            Slice(s.bucket, s.start, s.stop if s.bucket < bound.bucket else bound.position)
            for s in run.slices
            if RecordId(s.bucket, s.start) < bound
        )
        return Run(run.first, bound, tuple(slices))

    def progress(self, run: Run, written_ms: int, life: str = "") -> DeliveryProgress:
        """Return the progress record of ``run``, which is the next (DE4), in the stream's ``life``.

        Its end never goes back: a run that repairs the last one covers less than was confirmed, but
        begins where that began.
        """
        end = max(run.next, self._confirmed)
        comparing = self.comparing
        positions = list(self._read_from if comparing else self._ends)
        for partition, position in self._cut.items():
            if run.first < self._bounds[partition]:
                positions[partition] = position
        inherited = self._inherited.rejected if self._inherited and comparing else {}
        return DeliveryProgress(
            output=self._output,
            first_bucket=run.first.bucket,
            last_bucket=end.bucket - 1,
            positions=(
                *(
                    (place, position if self._shard.has(place) else OTHERS)
                    for place, position in enumerate(positions[:REJECTED])
                ),
                (REJECTED, positions[REJECTED]),
            ),
            written_ms=written_ms,
            first_position=run.first.position,
            next_position=end.position,
            inherited=tuple(sorted(inherited.items())),
            life=life,
        )

    @property
    def form(self) -> Form:
        """Way of writing the next run."""
        return self._form

    def rejected(
        self, run: Run, sizes: Mapping[int, int], notices: Collection[int] = frozenset()
    ) -> bool:
        """Choose another way of writing ``run``, which was rejected for the size of a record, or
        for a notice, with none of its records written. Return whether there is one (DE8).

        ``sizes``: bytes of each record that was sent, by its place in the run. ``notices``: the
        places of those that are notices.
        """
        if 0 < len(notices) < len(sizes):
            first, *others = sorted(sizes)
            self._rejected_rows = next(
                place for place in others if (place in notices) != (first in notices)
            )
            return True
        if len(sizes) > 1 and not notices:
            largest = max(sizes, key=lambda place: sizes[place])
            self._rejected_rows = max(1, min(largest, run.rows // 2))
            return True
        self._rejected_rows = run.rows
        ways = list(Form)
        at = ways.index(self._form) + 1
        self._form = ways[min(at, len(ways) - 1)]
        return at < len(ways)

    def advance(self, run: Run, ends: Mapping[int, int] | None) -> None:
        """Move past ``run``, which is committed, or was in the topic already. ``ends``: offset
        after the last record written, for the places written to; empty if only the progress record
        was written; None if nothing was.
        """
        self._cursor = run.next
        if ends is not None:
            self._passed = run.first.bucket - 1
        self._rejected_rows, self._form = None, Form.RECORDS
        self._confirmed = max(self._confirmed, run.next)
        for partition, end in (ends or {}).items():
            self._ends[partition] = max(self._ends[partition], end)
        for bucket in [b for b in self._found if b < run.next.bucket]:
            del self._found[bucket]
