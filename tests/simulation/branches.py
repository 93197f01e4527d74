"""Results that branches showed, for ``checkers.tentative``: bucket by bucket, with the streams that
they named and the bucket from which on these may be missing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import cache, partial
from typing import Final

import pyarrow as pa

from anabranch.codec.blocks import row_hashes
from anabranch.pipeline.source_columns import source_schema
from anabranch.protocol.stage.kept_rows import KEPT_ALL, is_kept, salt_of
from checkers import tentative
from checkers.streams import Reading, ReadPart, Row
from simulation import chains, halves, workload
from simulation.engine import SCHEMA
from simulation.options import Options, StageOptions
from simulation.world import Run

_MANY_ROWS: Final = 10
"""Number of rows of a batch that could keep one."""
_NOTHING_KEPT_MAX: Final = 8
"""Number of batches after which one must have kept a row: from 10 per mille, twice as many each."""

Keeps = tuple[tuple[int, int, int], ...]
"""(first bucket, last bucket, per mille of the rows of these that a plan keeps), by bucket, of one
branch of a stage; empty if it keeps all.
"""


class Shedding:
    """Rows that the plans of branches kept, as the processes noted when their batches began."""

    def __init__(self, run: Run) -> None:
        """Take the notes of ``run``."""
        self._run = run
        self.keeps: dict[tuple[str, tuple[int, int]], Keeps] = {}
        """Shares kept, by stage and branch."""
        for event in run.history.events:
            if event.what == "keeps":
                stage, *numbers = event.facts
                epoch, counter, first, last, kept, _ = (int(each or 0) for each in numbers)
                place = str(stage), (epoch, counter)
                self.keeps[place] = (*self.keeps.get(place, ()), (first, last, kept))
        for place, keeps in self.keeps.items():
            if all(kept == KEPT_ALL for _, _, kept in keeps):
                self.keeps[place] = ()

    def left(
        self, stage: StageOptions, keeps: Keeps, sources: Mapping[str, workload.Buckets]
    ) -> dict[str, workload.Buckets]:
        """Return the rows of ``sources`` that ``stage``, which reads them, keeps."""
        return {
            name: self._kept(
                stage, keeps, buckets, source_schema(self._run.pipeline, name.partition(".")[0])
            )
            for name, buckets in sources.items()
        }

    def kept_by(
        self, stage: StageOptions, branch: tuple[int, int], buckets: workload.Buckets
    ) -> workload.Buckets:
        """Return the rows of ``buckets``, of another stage's stream, that ``branch`` of ``stage``
        kept.
        """
        keeps = self.keeps.get((stage.name, branch), ())
        return self._kept(stage, keeps, buckets, SCHEMA) if keeps else buckets

    def kept_of(self, stage: str, branch: tuple[int, int], first: int, last: int) -> list[int]:
        """Return the shares that plans of ``branch`` kept of the buckets ``first`` to ``last``."""
        keeps = self.keeps.get((stage, branch), ())
        return [kept for begun, ended, kept in keeps if begun <= last and first <= ended]

    @staticmethod
    def _kept(
        stage: StageOptions, keeps: Keeps, buckets: workload.Buckets, schema: pa.Schema
    ) -> workload.Buckets:
        """Return the rows of ``buckets``, of a stream with ``schema``, that ``stage`` keeps."""
        is_kept_at = partial(is_kept, salt=salt_of(stage.name))
        columns = {"time": 0, "id": 1, "key": 2, "v": 3, "event_time": 0}
        found = dict(buckets)
        for first, last, kept in keeps:
            for bucket in {*buckets} & {*range(first, last + 1)}:
                rows = buckets[bucket]
                table = pa.Table.from_arrays(
                    [
                        pa.array([row[columns[field.name]] for row in rows], field.type)
                        for field in schema
                    ],
                    schema=schema,
                )
                counts = table.select(list(stage.shed_key)) if stage.shed_key else table
                found[bucket] = [
                    row
                    for row, identity in zip(rows, row_hashes(counts).tolist(), strict=True)
                    if is_kept_at(identity, kept=kept)
                ]
        return found

    def nothing_kept(self) -> Iterator[str]:
        """Check that of some batches in a row that have enough rows, one keeps a row (KK3 of
        ``protocol.stage.key_shares``).
        """
        in_a_row = dict[tuple[object, ...], int]()
        for event in self._run.history.events:
            if event.what != "kept":
                continue
            *branch, rows, per_mille, kept = event.facts
            place = (event.who, *branch)
            if int(kept or 0):
                in_a_row[place] = 0
            elif int(rows or 0) >= _MANY_ROWS:
                in_a_row[place] = in_a_row.get(place, 0) + 1
                if in_a_row[place] == _NOTHING_KEPT_MAX:
                    yield (
                        f"{event.who}: {_NOTHING_KEPT_MAX} batches with {_MANY_ROWS} rows or more"
                        f" keep none, the last one at {per_mille} per mille"
                    )

    def wrong_claims(self, stage: StageOptions, reading: Reading) -> Iterator[str]:
        """Check that records claim the largest share that the plans of the buckets left out from
        which their results are made; without a declared state horizon, of all since the fork.
        """
        options = self._run.options
        is_declared = options.declares_horizon(stage) or stage.operator == "map"
        for replica, writer in reading.writers.items():
            for made in writer.tentative:
                keeps = self.keeps.get((stage.name, made.branch), ())
                since = made.first - stage.horizon_buckets
                before = [
                    kept
                    for first, last, kept in keeps
                    if first <= made.last and (last >= since or not is_declared)
                ]
                own = [kept for first, last, kept in keeps if made.first <= last <= made.last]
                least = KEPT_ALL - min(own, default=KEPT_ALL)
                most = KEPT_ALL - min(before, default=KEPT_ALL)
                if is_declared or stage.operator != "later":
                    least = most
                if not least <= made.shed <= most:
                    yield (
                        f"{stage.name}.{replica}: buckets {made.first}..{made.last} of branch"
                        f" {made.branch} claim that {made.shed} per mille of the rows are left out,"
                        f" their plans left out {least} to {most}"
                    )


def check(
    options: Options,
    sources: dict[str, workload.Buckets],
    readings: Mapping[str, Reading],
    blocks: Mapping[str, ReadPart],
    silent: Iterable[str] | None,
    gaps: Mapping[str, Collection[int]],
    shedding: Shedding,
) -> list[str]:
    """Check the tentative buckets of all stages. Return what is wrong.

    Args:
        options: The pipeline.
        sources: The streams of the sources as they must be.
        readings: Of the boundary logs of all stages.
        blocks: What reads a part, of each of them.
        silent: Where nothing else can be missing: the sources that fell silent. None: anything may
            be.
        gaps: What was given up, by stream: before that it may have been shown.
        shedding: What the plans of branches left out.
    """

    @cache
    def without(
        missing: frozenset[str], since: int, keeps: Keeps = (), stage: StageOptions | None = None
    ) -> dict[str, workload.Buckets]:
        left = shedding.left(stage, keeps, sources) if keeps and stage else sources
        return workload.answers(options, left, missing, since, gaps=gaps if missing else None)

    wrong = [*shedding.nothing_kept()]
    since_of: dict[str, dict[int, int]] = {}
    for stage in options.stages:
        mine = list(
            _shown(
                options, stage.name, stage.reads, readings[stage.name], blocks[stage.name], since_of
            )
        )
        can_be = options.made_from(stage.name)
        if silent is not None:  # a stage before may be behind for a moment
            can_be = {*silent} | (can_be - set(options.sources))
        wrong += _shown_though_given_up(stage.name, readings[stage.name])
        if options.reads_what_is_shed(stage):
            wrong += chains.check(
                options,
                stage,
                chains.Log(readings[stage.name], blocks[stage.name]),
                chains.Log(readings[stage.reads[0]], blocks[stage.reads[0]]),
                without(frozenset(), 0)[stage.reads[0]],
                partial(shedding.kept_by, stage),
                partial(shedding.kept_of, stage.name),
            )
            continue
        wrong += shedding.wrong_claims(stage, readings[stage.name])
        for keeps, shown in _by_what_they_keep(mine, shedding, stage.name).items():
            wrong += tentative.check(
                shown,
                lambda missing, since, keeps=keeps, stage=stage: without(  # type: ignore[misc]
                    missing, since, keeps, stage
                )[stage.name],
                can_be,
                split,
            )
    return wrong


def _by_what_they_keep(
    shown: Iterable[tuple[tuple[int, int], tentative.Shown]], shedding: Shedding, stage: str
) -> dict[Keeps, list[tentative.Shown]]:
    """Sort what branches showed by the rows that their plans kept."""
    found: dict[Keeps, list[tentative.Shown]] = {}
    for branch, each in shown:
        found.setdefault(shedding.keeps.get((stage, branch), ()), []).append(each)
    return found


def _shown_though_given_up(name: str, reading: Reading) -> Iterator[str]:
    """Check that a process shows nothing of buckets that it gives up itself: their results would be
    partial (RX4). An earlier process may have shown them.
    """
    for replica, writer in reading.writers.items():
        closed, given_up = 0, set[tuple[int, int]]()
        for _, record in writer.accepted:
            if record.missing:
                given_up |= {(record.epoch, each) for each in range(closed + 1, record.closed + 1)}
            closed = max(closed, record.closed)
        for made in writer.tentative:
            epoch, _ = made.branch
            for bucket in sorted(made.parts):
                if (epoch, bucket) in given_up:
                    yield f"{name}.{replica}: bucket {bucket} is shown in epoch {epoch}, given up"


def _shown(
    options: Options,
    name: str,
    reads: Iterable[str],
    reading: Reading,
    rows_of: ReadPart,
    since_of: dict[str, dict[int, int]],
) -> Iterator[tuple[tuple[int, int], tentative.Shown]]:
    """Yield each bucket that a branch of stage ``name`` closed, with the branch. ``since_of``: of
    streams and buckets that branches made, the least ``since``; added to.
    """
    first, last = workload.first_bucket(options), 2 * workload.last_bucket(options)
    mine = since_of.setdefault(name, {})
    for replica, writer in reading.writers.items():
        for made in writer.tentative:
            buckets = range(max(made.base + 1, first), min(made.last, last) + 1)
            before_it = [
                since_of[stream][bucket]
                for stream in reads
                if stream in since_of
                for bucket in buckets
                if bucket in since_of[stream]
            ]
            since = min([made.base, *before_it])
            for bucket in range(max(made.first, first), min(made.last, last) + 1):
                mine[bucket] = min(since, mine.get(bucket, since))
                rows = [
                    row
                    for part in made.parts.get(bucket, ())
                    for row in rows_of(replica, part) or ()
                ]
                yield (
                    made.branch,
                    tentative.Shown(
                        f"{name}.{replica}: tentative bucket {bucket} of branch {made.branch}",
                        bucket,
                        halves.as_shards(options, options.with_later(made.missing)),
                        rows,
                        since,
                    ),
                )


def split(row: Row) -> tuple[Row, tuple[float, ...]]:
    """Time, id and key of a row are the same whatever is missing; its value, a sum or a count
    or made of one, only grows.
    """
    return row[:3], (float(str(row[3])),)
