"""Results of stages that read what an overloaded stage shows, for ``branches``.

The reader takes each bucket as one replica of the stage before has it: stable, or as one of its
branches showed it. So what the reader shows of a bucket must be the answer to one version of each
bucket that it is made from, and the share that its record claims must be that of these versions,
times what the reader itself kept. The module computes this from the boundary logs and blocks alone;
which version a plan took is not asked.

Rules:
    TC1 the rows of a bucket are those of the stage's function, applied to the rows that the reader
        kept of one version of each input bucket; up to the fork of the stable one.
    TC2 a record claims at least the share that the versions of its own buckets lack, and no more
        than the largest that any version of a bucket within the state horizon lacks; of a stage
        without state, of a bucket of its batch.

Rows that lie on a bucket which the stage before neither closed nor showed are not judged: the
record names that stage as missing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from anabranch.protocol.stage.kept_rows import KEPT_ALL
from checkers.streams import Reading, ReadPart, Tentative
from simulation import workload
from simulation.options import WINDOW_BUCKETS, Options, StageOptions

Branch = tuple[int, int]
KeptIn = Callable[[Branch, workload.Buckets], workload.Buckets]
"""(branch, rows of input buckets) -> the rows that its plans kept."""
KeptOf = Callable[[Branch, int, int], list[int]]
"""(branch, first and last bucket) -> per mille that its plans of these buckets kept."""


@dataclass(frozen=True)
class Log:
    """Boundary log of a stream, and its blocks."""

    reading: Reading
    rows_of: ReadPart


@dataclass(frozen=True)
class _Version:
    """Bucket of the stage before, as a replica has it."""

    shed: int
    """Per mille of the rows that its record claims to lack."""
    rows: list[workload.Row]


def check(
    options: Options,
    stage: StageOptions,
    mine: Log,
    before: Log,
    answer: workload.Buckets,
    kept_in: KeptIn,
    kept_of: KeptOf,
) -> Iterator[str]:
    """Yield what is wrong with the tentative buckets of ``stage``.

    Args:
        options: The pipeline.
        stage: Stage that reads one other stage, and nothing else.
        mine: Its stream.
        before: Stream of the stage that it reads.
        answer: Rows of that stream as they must be at last.
        kept_in: Rows that the reader's plans kept.
        kept_of: Share of the rows that they kept.
    """
    versions = _versions(before)
    (name,) = stage.reads
    for replica, writer in mine.reading.writers.items():
        highest: dict[Branch, list[tuple[int, int]]] = {}
        for made in writer.tentative:
            if name in made.missing:
                continue
            at = f"{stage.name}.{replica}: branch {made.branch}, buckets {made.first}..{made.last}"
            reader = _Reader(options, stage, answer, versions, made, kept_in)
            least = 0
            for bucket in reader.buckets():
                rows = [
                    row for part in made.parts.get(bucket, ()) for row in _rows(mine, replica, part)
                ]
                shed = reader.least_shed(bucket, rows)
                if shed is None:
                    yield f"{at}: bucket {bucket} is {rows}, of no version of its input (TC1)"
                # A batch before may have kept its input, and more of it.
                inputs = reader.inputs(bucket) or [bucket]
                taken = kept_of(made.branch, min(inputs), max(inputs)) or [KEPT_ALL]
                least = max(least, _product(max(taken), shed or 0))
            own = kept_of(made.branch, made.first, made.last) or [KEPT_ALL]
            of_branch = highest.setdefault(made.branch, [])
            of_branch.append((made.last, _product(min(own), reader.most_shed())))
            since = made.first - _horizon(options, stage)
            most = max(lacked for last, lacked in of_branch if last >= min(since, made.last))
            if not least <= made.shed <= most:
                yield (
                    f"{at}: claim that {made.shed} per mille of the rows are left out, it is"
                    f" {least} to {most} (TC2)"
                )


def _horizon(options: Options, stage: StageOptions) -> float:
    """Return how many buckets back a record may claim what was lacking."""
    if options.declares_horizon(stage) or stage.operator == "map":
        return stage.horizon_buckets
    return math.inf


def _product(kept: int, shed: int) -> int:
    """Return the per mille that is lacking of what lacked ``shed``, of which ``kept`` is kept."""
    return KEPT_ALL - kept * (KEPT_ALL - shed) // KEPT_ALL


def _rows(log: Log, replica: str, part: object) -> list[workload.Row]:
    return [workload.typed(row[:4]) for row in log.rows_of(replica, part) or ()]  # type: ignore[arg-type]


def _versions(log: Log) -> dict[int, list[_Version]]:
    """Return each version of each bucket that branches showed."""
    found: dict[int, list[_Version]] = {}
    for replica, writer in log.reading.writers.items():
        for made in writer.tentative:
            for bucket in range(made.first, made.last + 1):
                rows = [
                    row for part in made.parts.get(bucket, ()) for row in _rows(log, replica, part)
                ]
                found.setdefault(bucket, []).append(_Version(made.shed, sorted(rows)))
    return found


@dataclass(frozen=True)
class _Reader:
    """What a record of the reader can be made from."""

    options: Options
    stage: StageOptions
    answer: workload.Buckets
    versions: Mapping[int, list[_Version]]
    made: Tentative
    kept_in: KeptIn

    def buckets(self) -> range:
        """Return the buckets that it closes, as far as there is data."""
        first, last = workload.first_bucket(self.options), 2 * workload.last_bucket(self.options)
        return range(max(self.made.first, first), min(self.made.last, last) + 1)

    def least_shed(self, bucket: int, rows: list[workload.Row]) -> int | None:
        """Return the least share that input lacks of which ``rows`` are the results; None if they
        are those of none.
        """
        inputs = self.inputs(bucket)
        shown = sorted(rows)
        found = None
        for chosen in itertools.product(*(self._of(each) for each in inputs)):
            data = dict(zip(inputs, (each.rows for each in chosen), strict=True))
            kept = self.kept_in(self.made.branch, {at: each for at, each in data.items() if each})
            made = workload.apply(self.stage.operator, kept, self.options.bucket_ms)
            if made.get(bucket, []) == shown:
                shed = max((each.shed for each in chosen), default=0)
                found = shed if found is None else min(found, shed)
        return found

    def most_shed(self) -> int:
        """Return the largest share that a version of the buckets of this batch lacks."""
        inputs = {each for bucket in self.buckets() for each in (bucket, *self.inputs(bucket))}
        return max((each.shed for bucket in inputs for each in self._of(bucket)), default=0)

    def _of(self, bucket: int) -> list[_Version]:
        stable = _Version(0, self.answer.get(bucket, []))
        return [stable] if bucket <= self.made.base else [stable, *self.versions.get(bucket, ())]

    def inputs(self, bucket: int) -> list[int]:
        """Return the input buckets that results of ``bucket`` are made from."""
        if self.stage.operator == "later":
            return [bucket - 1]
        if self.stage.operator == "sum":
            return [*range(bucket - WINDOW_BUCKETS + 1, bucket + 1)] if bucket % 2 == 0 else []
        return [bucket]
