"""A run whose sources have shards, as its checkers judge it: each shard is a source of its own.

Where the number of shards changes, so is each shard of each number. The record that ends a stream
says how far it has read. What comes after that in a partition is the next number's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from weakref import WeakKeyDictionary

from anabranch.protocol.log.records import BoundaryRecord
from checkers import ingestion, streams
from simulation.options import Options
from simulation.raw_logs import boundary_log
from simulation.workload import Sent
from simulation.world import Run


def by_shard(run: Run) -> Run:
    """``run`` with a source for each shard, which stages read by its own name; what was sent was
    sent to the shard that reads it.
    """
    options = run.options
    if options.numbers == (1,):
        return run
    return replace(run, options=_options(options), sent=list(_dealt(run)))


def _dealt(run: Run) -> Iterator[Sent]:
    counts: Counter[tuple[str, int]] = Counter()
    readers = {name: _readers(run, name) for name in run.options.sources}
    for each in run.sent:
        place = each.source, each.partition
        stream = next(
            stream
            for stream, upto in readers[each.source][each.partition]
            if upto is None or counts[place] < upto
        )
        counts[place] += 1
        yield replace(each, source=stream)


def _readers(run: Run, source: str) -> dict[int, list[tuple[str, int | None]]]:
    """Return the readers of each partition, one after the other, with the offset up to which each
    reads; None: to its end.
    """
    found: dict[int, list[tuple[str, int | None]]] = {}
    for stream in run.options.streams_of(source):
        end = end_of(run, stream)
        uptos = {} if end is None else {p.partition: p.offset_next for p in end.positions}
        for partition in run.options.partitions_of(stream):
            upto = None if end is None else uptos.get(partition, 0)
            found.setdefault(partition, []).append((stream, upto))
    return found


def end_of(run: Run, stream: str) -> BoundaryRecord | None:
    """Return the record that ends ``stream``; None if it continues."""
    accepted = _accepted(run, stream)
    return accepted[-1] if accepted and accepted[-1].heirs else None


_READ: WeakKeyDictionary[object, dict[str, list[BoundaryRecord]]] = WeakKeyDictionary()
"""Ending records by the history of a run, which are asked for often."""


def _accepted(run: Run, stream: str) -> list[BoundaryRecord]:
    known = _READ.setdefault(run.history, {})
    if stream not in known:
        reading = streams.read(boundary_log(run, stream), ["0"])
        known[stream] = [record for _, record in reading.writers["0"].accepted]
    return known[stream]


def begins(run: Run, stream: str) -> ingestion.Beginning:
    """Return where ``stream`` must begin: by what the streams of the previous number had closed
    before their ends, and had read in its own partitions.
    """
    place, _, _ = run.options.shard_of(stream)
    if not place:
        return ingestion.Beginning()
    source = stream.partition(".")[0]
    before = [
        each for each in _streams_of(run, source) if run.options.shard_of(each)[0] == place - 1
    ]
    closed, positions = [], {}
    for each in before:
        accepted = _accepted(run, each)
        upto = [record.closed for record in accepted if not record.heirs]
        closed.append(max(upto, default=begins(run, each).closed))
        for position in accepted[-1].positions if accepted else ():
            if position.partition in run.options.partitions_of(stream):
                positions[position.partition] = (
                    position.offset_next,
                    position.event_time_max_ms,
                    position.found_after,
                )
    return ingestion.Beginning(min(closed, default=0), positions)


def _streams_of(run: Run, source: str) -> list[str]:
    """``run`` may have a source for each shard by now."""
    whole = replace(run.options, sources=(source,))
    return whole.streams


def check_ends(run: Run) -> list[str]:
    """All streams of a number that is no more have ended, each for the next number."""
    wrong = []
    for stream in run.options.sources if run.options.changes else ():
        place, _, _ = run.options.shard_of(stream)
        end, accepted = end_of(run, stream), _accepted(run, stream)
        heirs = 0 if end is None else end.heirs
        due = (*run.options.numbers, 0)[place + 1]
        if heirs != due and (run.is_complete or heirs):
            wrong.append(f"{stream} has {heirs} heirs, due are {due}")
        if any(record.heirs for record in accepted[:-1]):
            wrong.append(f"{stream} goes on after its end")
    return wrong


def _options(options: Options) -> Options:
    def streams_of(reads: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            each
            for name in reads
            for each in (options.streams_of(name) if name in options.sources else [name])
        )

    stages = tuple(replace(stage, reads=streams_of(stage.reads)) for stage in options.stages)
    return replace(options, sources=tuple(options.streams), stages=stages)
