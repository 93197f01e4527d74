"""Boundary logs for tests: their records, a slow reading that states the rules bucket by
bucket, and random logs.
"""

from __future__ import annotations

from collections.abc import Iterable

from hypothesis import strategies as st

from anabranch.protocol.identifiers import BatchId
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    BranchEnded,
    BranchNumber,
    EpochStarted,
    LogEntry,
    Part,
)

LAST = 12
"""Random logs and the reference know the buckets 1..LAST."""
WRITERS = ("0", "1")


def part(bucket: int, attempt: str = "a", rows: int = 1) -> Part:
    return Part(bucket, 0, attempt, 1, 0, 1, rows, 7)


def started(replica: str = "0", token: str = "t", version: int = 1) -> EpochStarted:
    return EpochStarted(
        replica, f"plan of {replica}", token, schema=f"schema of {replica}", version=version
    )


def record(
    epoch: int,
    batch: int,
    closed: int,
    parts: tuple[Part, ...] = (),
    *,
    replica: str = "0",
    timeline: str = "l",
    prev: BatchId | str | None = "",
    base: int | None = None,
    kind: BoundaryKind = BoundaryKind.STABLE,
    branch: BranchNumber | None = None,
    missing: tuple[str, ...] = (),
    past: int = 0,
) -> BoundaryRecord:
    """``prev``: left out means the batch before in the same timeline, or None for the first.
    With a ``branch`` it is tentative.
    """
    if isinstance(prev, str):
        prev = BatchId(timeline, batch - 1) if batch else None
    if branch is not None:
        kind = BoundaryKind.TENTATIVE
    return BoundaryRecord(
        replica,
        epoch,
        BatchId(timeline, batch),
        prev,
        closed,
        parts,
        base,
        kind,
        branch,
        missing,
        past=past,
    )


def state_after(*entries: LogEntry, writers: Iterable[str] = WRITERS) -> LogState:
    log_state = LogState(writers)
    for offset, entry in enumerate(entries):
        log_state.apply(offset, entry)
    return log_state


class Reference:
    """Rules 1, 3, 4, 5, 6 and 16 over a short range of buckets, one bucket at a time,
    remembering everything; and whether branches run.
    """

    def __init__(self) -> None:
        self.epoch: dict[str, int] = {}
        self.chain: dict[str, list[BatchId]] = {w: [] for w in WRITERS}
        self.newest: dict[tuple[str, int, str], int] = {}
        self.pending: dict[str, list[tuple[BatchId, Part]]] = {w: [] for w in WRITERS}
        self.own: dict[str, dict[int, tuple[Part, ...] | None]] = {w: {} for w in WRITERS}
        self.disowned: dict[str, dict[int, tuple[Part, ...]]] = {w: {} for w in WRITERS}
        """Parts that the writer closed and that no longer count as its own (rule 6, BL15)."""
        self.stable: dict[int, tuple[str, tuple[Part, ...]]] = {}
        self.branch: dict[str, BranchNumber] = {}
        self.branch_tip: dict[str, BatchId] = {}
        self.branch_closed: dict[str, int] = {}
        self.branch_pending: dict[str, list[Part]] = {}
        self.branch_own: dict[
            str, dict[int, tuple[BranchNumber, tuple[Part, ...], tuple[str, ...]]]
        ] = {w: {} for w in WRITERS}
        self.running: dict[str, bool] = {}
        """The writers whose branch runs; whether one without has made all that it has shown."""
        self.ended: dict[str, BranchNumber] = {}
        self.past = 0
        self.version = (0, 0)
        self.version_of = dict.fromkeys(WRITERS, 1)

    def apply(self, offset: int, entry: LogEntry) -> bool:
        """Whether the record counts."""
        if isinstance(entry, EpochStarted):
            return self._begin(offset, entry)
        assert isinstance(entry, BoundaryRecord | BranchEnded)
        r = entry.replica
        if isinstance(entry, BranchEnded):
            return self._end(entry)
        if self.version_of[r] < self.version[0]:
            return False
        if self.epoch.get(r) != entry.epoch or entry.id.batch <= self.newest.get(
            (r, entry.epoch, entry.id.timeline), -1
        ):
            return False
        if not (
            self._tentative(entry) if entry.kind is BoundaryKind.TENTATIVE else self._stable(entry)
        ):
            return False
        self.newest[r, entry.epoch, entry.id.timeline] = entry.id.batch
        tentative = [n for own in self.branch_own.values() for n in own]
        self.past = max([self.past, len(self.stable), *tentative, entry.past])
        return True

    def _begin(self, offset: int, entry: EpochStarted) -> bool:
        r = entry.replica
        if entry.version < self.version[0]:
            return False
        if entry.version != self.version_of[r]:
            self._disown(r, max(self.own[r], default=0))
        self.epoch[r], self.version_of[r] = offset, entry.version
        self.running.pop(r, None)
        return True

    def _disown(self, replica: str, upto: int) -> None:
        """Open again what the writer closed up to a bucket and what is not stable; it is not its
        own.
        """
        own = self.own[replica]
        for n in range(1, upto + 1):
            if n not in self.stable:
                self.disowned[replica][n] = own[n] or self.disowned[replica].get(n, ())
                own[n] = None

    def _end(self, entry: BranchEnded) -> bool:
        r = entry.replica
        if self.epoch.get(r) != entry.epoch or entry.branch <= self.ended.get(r, (-1, -1)):
            return False
        self.ended[r] = entry.branch
        if entry.branch >= self.branch.get(r, (-1, -1)):
            self.running.pop(r, None)
        return True

    def has_branch(self, replica: str) -> bool:
        """Return whether a branch runs; one of a version that no longer counts is none."""
        return replica in self.running and self.version_of[replica] >= self.version[0]

    def _stable(self, entry: BoundaryRecord) -> bool:
        r, chain = entry.replica, self.chain[entry.replica]
        if entry.base is not None:
            chain[:] = [entry.prev] if entry.prev else []
            self.pending[r] = []
            for n in range(1, entry.base + 1):
                self.own[r].setdefault(n, None)
            self._disown(r, entry.base)
        elif entry.prev is None:
            chain.clear()
            self.pending[r] = []
        elif entry.prev in chain:
            del chain[chain.index(entry.prev) + 1 :]
            self.pending[r] = [(i, p) for i, p in self.pending[r] if i in chain]
        else:
            return False
        chain.append(entry.id)
        self.pending[r] += [(entry.id, p) for p in entry.parts]
        closes = entry.closed > max(self.own[r], default=0)
        for n in range(1, entry.closed + 1):
            self.own[r].setdefault(n, tuple(p for _, p in self.pending[r] if p.bucket == n))
        if r not in self.running:
            for w in self.running:
                self.running[w] |= max(self.branch_own[w], default=0) <= max(self.own[r], default=0)
        is_reached = (
            max((n for n, parts in self.own[r].items() if parts is None), default=0)
            <= len(self.stable)
            <= entry.closed
        )
        if closes and is_reached and self.version_of[r] > self.version[0]:
            self.version = (self.version_of[r], len(self.stable))
        while True:
            n = len(self.stable) + 1
            counting = [
                w
                for w in (r, *(w for w in self.own if w != r))
                if self.version_of[w] >= self.version[0]
            ]
            own = {w: self.own[w].get(n) for w in counting}
            giver = next((w for w, parts in own.items() if parts is not None), None)
            if giver is None:
                return True
            self.stable[n] = (giver, own[giver] or ())

    def _tentative(self, entry: BoundaryRecord) -> bool:
        r = entry.replica
        number = entry.branch
        newest = self.branch.get(entry.replica, (-1, -1))
        if number is None or number[0] != entry.epoch or number < newest:
            return False
        if number <= self.ended.get(r, (-1, -1)):
            return False
        if number == newest:
            if entry.base is not None or entry.prev != self.branch_tip[r]:
                return False
        else:
            if entry.base is None:
                return False
            self.branch[r] = number
            self.branch_closed[r] = entry.base
            self.branch_pending[r] = []
            self.running[r] = False
        self.branch_tip[r] = entry.id
        self.branch_pending[r] += [p for p in entry.parts if p.bucket > self.branch_closed[r]]
        for n in range(self.branch_closed[r] + 1, entry.closed + 1):
            self.branch_own[r][n] = (
                number,
                tuple(p for p in self.branch_pending[r] if p.bucket == n),
                entry.missing,
            )
        self.branch_closed[r] = max(self.branch_closed[r], entry.closed)
        return True

    def tentative(
        self, replica: str, bucket: int
    ) -> tuple[BranchNumber, tuple[Part, ...], tuple[str, ...]] | None:
        """Rule 16: stable beats tentative, the newest branch the older ones."""
        return None if bucket in self.stable else self.branch_own[replica].get(bucket)

    def open_parts(self, bucket: int) -> dict[str, tuple[Part, ...]]:
        """Return the parts of a bucket that is not stable, by writer."""
        if bucket in self.stable:
            return {}
        found = {}
        for w in WRITERS:
            named = tuple(p for _, p in self.pending[w] if p.bucket == bucket)
            closed = self.own[w].get(bucket) or self.disowned[w].get(bucket, ())
            found[w] = closed if bucket in self.own[w] else named
        return {w: parts for w, parts in found.items() if parts}


class _Writer:
    """Memory of a random writer about what it appended."""

    def __init__(self, replica: str, epoch: int) -> None:
        self.replica = replica
        self.epochs = [epoch]
        self.ids: list[BatchId] = []
        self.timeline = f"{epoch}"
        self.closed = 0
        self.branch: tuple[BranchNumber, str, BatchId] | None = None
        """(number, timeline, tip) of the newest branch."""
        self.older: list[tuple[BranchNumber, str, BatchId]] = []
        self.branch_closed = 0
        self.forks = 0


_STABLE = ("next",) * 6 + ("epoch", "repeat", "rewind", "zombie", "base", "scratch", "lost")
_TENTATIVE = (
    ("branch",) * 6
    + ("fork",) * 3
    + (
        "branch of an older number",
        "branch zombie",
        "branch lost",
        "branch without base",
        "branch with base",
    )
    + ("end",) * 2
    + ("end of an older number", "end zombie")
)


@st.composite
def logs(
    draw: st.DrawFn,
    *,
    tentative: bool = True,
    steps: int = 25,
    parts_max: int = 2,
    faults: bool = True,
) -> list[LogEntry]:
    """Draw logs of two writers with restarts, rewinds, bases, zombies, repeats and branches; mostly
    sensible, so that much is accepted. Without ``faults`` there are exactly ``steps`` records that
    continue each other, fork or belong to branches, each with parts, and little is closed: much is
    open or tentative.
    """
    entries: list[LogEntry] = [started("0"), started("1")]
    writers = {w: _Writer(w, int(w)) for w in WRITERS}
    kinds = (
        *(_STABLE if faults else ("slow",)),
        *((_TENTATIVE if faults else ("fork", "branch", "branch")) if tentative else ()),
    )
    for step in range(draw(st.integers(0 if faults else steps, steps))):
        w = writers[draw(st.sampled_from(WRITERS))]
        what = draw(st.sampled_from(kinds))
        parts = tuple(
            part(draw(st.integers(1, LAST)), f"attempt {step}.{i}", draw(st.integers(0, 3)))
            for i in range(draw(st.integers(0 if faults else 1, parts_max)))
        )
        if what == "epoch":
            w.epochs.append(len(entries))
            w.timeline, w.forks = f"{len(entries)}", 0
            entries.append(started(w.replica, version=draw(st.sampled_from((1, 1, 1, 2)))))
        elif what == "repeat" and len(entries) > len(WRITERS):
            entries.append(entries[draw(st.integers(len(WRITERS), len(entries) - 1))])
        elif what.startswith("end"):
            entries.append(_end_record(draw, w, what))
        elif what == "fork" or what.startswith("branch"):
            entries.append(_branch_record(draw, w, what, step, parts))
        else:
            other = writers["1" if w.replica == "0" else "0"]
            entries.append(_stable_record(draw, w, what, step, parts, other.closed))
    return entries


def _stable_record(
    draw: st.DrawFn, w: _Writer, what: str, step: int, parts: tuple[Part, ...], peer: int
) -> BoundaryRecord:
    epoch = draw(st.sampled_from(w.epochs)) if what == "zombie" else w.epochs[-1]
    prev = w.ids[-1] if w.ids else None
    if what in ("rewind", "scratch"):
        w.timeline = f"{epoch} of {step}"
    if what == "rewind" and w.ids:
        prev = draw(st.sampled_from(w.ids))
    if what == "scratch":
        prev = None
    if what == "lost":
        prev = BatchId("never", 1)
    base = (
        min(LAST, peer + draw(st.sampled_from((0, 0, 1, 3)))) if what == "base" else None
    )  # beyond the peer: a hole, for a while
    w.closed = min(
        LAST,
        max(
            w.closed + draw(st.integers(-1, 3) if what != "slow" else st.integers(0, 1)),
            base or 0,
            0,
        ),
    )
    past = draw(st.sampled_from((0, 0, min(LAST, w.closed + 2))))
    made = record(
        epoch,
        step,
        w.closed,
        parts,
        replica=w.replica,
        timeline=w.timeline,
        prev=prev,
        base=base,
        past=past,
    )
    w.ids.append(made.id)
    return made


def _end_record(draw: st.DrawFn, w: _Writer, what: str) -> BranchEnded:
    epoch = draw(st.sampled_from(w.epochs)) if what == "end zombie" else w.epochs[-1]
    counter = max(0, w.forks - (what == "end of an older number"))
    return BranchEnded(w.replica, epoch, counter)


def _branch_record(
    draw: st.DrawFn, w: _Writer, what: str, step: int, parts: tuple[Part, ...]
) -> BoundaryRecord:
    epoch = draw(st.sampled_from(w.epochs)) if what == "branch zombie" else w.epochs[-1]
    missing = draw(st.sampled_from(((), ("reports",), ("positions", "reports"))))
    if what in ("fork", "branch without base") or w.branch is None:
        if w.branch is not None:
            w.older.append(w.branch)
        w.forks += 1
        number, timeline = (epoch, w.forks), w.timeline
        w.timeline = f"{epoch} after {step}"  # the successor's
        prev, base = (
            w.ids[-1] if w.ids else None,
            None if what == "branch without base" else max(0, w.closed + draw(st.integers(-1, 1))),
        )
        w.branch_closed = base or 0
    else:
        number, timeline, prev = (
            draw(st.sampled_from(w.older))
            if what == "branch of an older number" and w.older
            else w.branch
        )
        base = w.branch_closed if what == "branch with base" else None
    if what == "branch lost":
        prev = BatchId("never", 1)
    if what == "branch zombie":
        number = (epoch, number[1])
    w.branch_closed = min(LAST, max(0, w.branch_closed + draw(st.integers(-1, 4))))
    made = record(
        epoch,
        step,
        w.branch_closed,
        parts,
        replica=w.replica,
        timeline=timeline,
        prev=prev,
        base=base,
        branch=number,
        missing=missing,
    )
    if what in ("fork", "branch", "branch without base") or w.branch is None:
        w.branch = (number, timeline, made.id)
    return made


def tentative(
    epoch: int,
    batch: int,
    closed: int,
    *parts: Part,
    counter: int = 1,
    replica: str = "0",
    prev: BatchId | str | None = "",
    base: int | None = None,
    missing: tuple[str, ...] = ("reports",),
) -> BoundaryRecord:
    """Return a record of branch ``counter``."""
    return record(
        epoch,
        batch,
        closed,
        parts,
        replica=replica,
        timeline=f"branch {counter}",
        prev=prev,
        base=base,
        branch=(epoch, counter),
        missing=missing,
    )
