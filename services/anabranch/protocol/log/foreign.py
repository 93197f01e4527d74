"""What the log of another pipeline's stream says, in words of one's own.

Theory of operation. A participant reads a stream of another one under a name of its own. The
records of that stream name what they lack by the names of streams there, which nobody here knows,
and which may be those of other streams here. To a reader here one thing counts: that the stream
which it reads was made without some of its input. So that stream is what it names as missing, to
its own readers and users.

Invariants:
    FN1 a record lacks something under one name or the other, or under neither.
    FN2 nothing else of a record changes: buckets, parts, chain and epochs are those of its writer.
"""

from __future__ import annotations

from dataclasses import replace

from anabranch.protocol.log.records import (
    BoundaryRecord,
    GivenUp,
    LogEntry,
    LogSnapshot,
    ReplicaSnapshot,
)


def as_known_here(entry: LogEntry, name: str) -> LogEntry:
    """``entry`` of a stream that is called ``name`` here."""
    if isinstance(entry, BoundaryRecord):
        return _record(entry, name)
    if isinstance(entry, LogSnapshot):
        replicas = tuple(_replica(replica, name) for replica in entry.replicas)
        return replace(entry, replicas=replicas, given_up=_given_up(entry.given_up, name))
    return entry


def _record(record: BoundaryRecord, name: str) -> BoundaryRecord:
    if not record.missing and not record.given_up:
        return record
    return replace(
        record,
        missing=_missing(record.missing, name),
        given_up=_given_up(record.given_up, name),
    )


def _replica(replica: ReplicaSnapshot, name: str) -> ReplicaSnapshot:
    branches = replica.branches
    if branches is not None:
        ranges = tuple(
            replace(each, missing=_missing(each.missing, name)) for each in branches.ranges
        )
        branches = replace(branches, ranges=ranges)
    last = None if replica.last is None else _record(replica.last, name)
    return replace(replica, last=last, branches=branches)


def _missing(missing: tuple[str, ...], name: str) -> tuple[str, ...]:
    return (name,) if missing else ()


def _given_up(ranges: tuple[GivenUp, ...], name: str) -> tuple[GivenUp, ...]:
    return tuple(dict.fromkeys(replace(each, source=name) for each in ranges))
