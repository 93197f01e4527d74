"""Checker of the index: compares every entry with what the logs say (CX1, CX2). The index may be a
moment behind, may lack what a manager that begins now would not read, and may still hold what an
earlier one has written of that, until it expires. It never holds anything else.

What the logs say is derived here from their records, trimmed ones included. The log state decides
which records of a boundary log count, and up to where the stream is stable: other checkers judge
that.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from anabranch.consistency_manager.index_image import ENTRY_LIFETIME_MS
from anabranch.pipeline.topic_names import index_prefix
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.limits import HEARTBEAT_LIFETIME_MS
from anabranch.protocol.log.records import BoundaryKind, BoundaryRecord, LogSnapshot
from simulation.conduct import control_entries, manager_runs_since
from simulation.log_states import log_states
from simulation.world import INDEX_RESTORED_MS, Run

_WRITTEN_WITHIN_MS: Final = 1_500
"""Time after which a record is in the index, if a manager runs and nothing fails, in ms."""
_HEARD_MS: Final = 2_200
"""Age up to which a heartbeat is in the index for certain, in ms: those that a manager reads as it
begins may be old, and count for nothing.
"""


@dataclass
class _Truths:
    """Values that the logs give each key of the index, in the course of a run."""

    hashes: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    """(time from which they hold, fields) of each hash, in order."""
    beats: dict[str, list[tuple[int, dict[str, str]]]] = field(default_factory=dict)
    """(time, fields) of the heartbeats of each process, in order. The index may hold any of them: a
    manager ignores those of an epoch that was replaced.
    """
    known: dict[str, int] = field(default_factory=dict)
    """Number of the first values of a hash that the index may lack, since the manager may
    have begun at a log snapshot behind them.
    """

    def say(self, key: str, at_ms: int, fields: dict[str, str]) -> None:
        """Add that from ``at_ms`` on the hash at ``key`` has ``fields``."""
        self.hashes.setdefault(key, []).append((at_ms, fields))

    def forget(self, *keys: str) -> None:
        """Note that the index may lack what was said of ``keys`` so far."""
        self.known |= {key: len(self.hashes[key]) for key in keys if key in self.hashes}


def check(run: Run) -> list[str]:
    """Return what is wrong with the index at the end of ``run``, in words."""
    prefix, truths = index_prefix(run.managed.name), _truths(run)
    late_ms = run.ended_ms - _WRITTEN_WITHIN_MS
    heard_ms = run.ended_ms - _HEARD_MS
    since_ms = max(manager_runs_since(run), _struck_until_ms(run))
    is_whole = run.is_complete and since_ms <= run.ended_ms - INDEX_RESTORED_MS
    held = _held(run, prefix, since_ms)
    unknown = held.keys() - {*truths.hashes, *truths.beats}
    wrong = [f"{key}: is in the index, and in no log" for key in sorted(unknown)]
    for key, said in truths.hashes.items():
        found = held.get(key)
        if found:
            newest = max((n for n, (at_ms, _) in enumerate(said) if at_ms <= late_ms), default=0)
            true = said[newest:] if is_whole else said
            if not any(_is(found, fields) for _, fields in true):
                wrong.append(f"{key}: is {found}, the logs say {said[-1][1]}")
        elif is_whole and any(at_ms <= late_ms for at_ms, _ in said[truths.known.get(key, 0) :]):
            wrong.append(f"{key}: is not in the index, the logs say {said[-1][1]}")
    for key, beats in truths.beats.items():
        found = held.get(key)
        if found and not any(found == fields for _, fields in beats):
            wrong.append(f"{key}: is {found}, which is no heartbeat of it")
        since_heard_ms = max(heard_ms, _hidden_until_ms(beats))
        if not found and is_whole and any(since_heard_ms <= at_ms <= late_ms for at_ms, _ in beats):
            wrong.append(f"{key}: is not in the index, and its process is heard")
    if is_whole:
        run.history.reached("index compared as a whole")
    return wrong


def _hidden_until_ms(beats: list[tuple[int, dict[str, str]]]) -> int:
    """Return until when the index may lack the process that sent the last one of ``beats``, since
    somebody had said that a later epoch ran.
    """
    epoch = int(beats[-1][1]["epoch"])
    later_ms = (at_ms for at_ms, fields in beats if int(fields["epoch"]) > epoch)
    return max(later_ms, default=-HEARTBEAT_LIFETIME_MS) + HEARTBEAT_LIFETIME_MS


def _struck_until_ms(run: Run) -> int:
    """Return when the last fault ended that may have kept the manager from the logs or the index.
    Those of other services and of producers do not.
    """
    struck = [0]
    for at_ms, _, what, facts in run.history.events:
        if what == "fault":
            _, kind, target, _, duration_ms = facts
            is_elsewhere = str(target).startswith(("ingestion/", "processing/", "delivery/"))
            if not is_elsewhere and not str(kind).startswith("silent"):
                struck.append(max(at_ms, min(at_ms + int(duration_ms or 0), run.options.heal_ms)))
    return max(struck)


def _held(run: Run, prefix: str, since_ms: float) -> dict[str, dict[str, str]]:
    """Return the entries of the index, without those that nobody has written since ``since_ms``:
    an earlier manager may have left them, or a copy with which the index came back; they expire.
    """
    left_ms = since_ms + ENTRY_LIFETIME_MS
    return {
        key: run.index.fields(key)
        for key in run.index.keys(prefix)
        if run.index.until_ms(key) > left_ms
    }


def _is(found: dict[str, str], fields: dict[str, str]) -> bool:
    """Return whether ``found`` says the same as ``fields``. A log snapshot has the last record of a
    writer without its offset, and the fingerprint of the writer's newest epoch.
    """
    if found.get("offset") == "":
        fields = fields | {"offset": "", "fingerprint": found["fingerprint"]}
    return found == fields


def _truths(run: Run) -> _Truths:
    truths, prefix = _Truths(), index_prefix(run.managed.name)
    for stream in run.managed.streams():
        _read_boundaries(run, stream, prefix, truths)
    _read_control(run, prefix, truths)
    return truths


def _read_boundaries(run: Run, stream: str, prefix: str, truths: _Truths) -> None:
    for at_ms, offset, entry, outcome, log_state in log_states(run, stream):
        if isinstance(entry, LogSnapshot):
            truths.forget(
                *(
                    f"{prefix}{kind}:{stream}:{writer}"
                    for kind in ("boundary", "tentative")
                    for writer in log_state.writers
                )
            )
        if not (outcome.accepted and isinstance(entry, BoundaryRecord)):
            continue
        own = f"{stream}:{entry.replica}"
        if entry.kind is not BoundaryKind.STABLE:
            epoch, counter = entry.branch or (-1, -1)
            fields = {
                "bucket": str(entry.closed),
                "branch": f"{epoch}.{counter}",
                "missing": ",".join(entry.missing),
            }
            truths.say(f"{prefix}tentative:{own}", at_ms, fields)
            continue
        tip = {
            "offset": str(offset),
            "bucket": str(entry.closed),
            "epoch": str(entry.epoch),
            "timeline": entry.id.timeline,
            "batch": str(entry.id.batch),
            "fingerprint": log_state.fingerprint(entry.replica),
            "written_ms": str(entry.written_ms),
        }
        truths.say(f"{prefix}boundary:{own}", at_ms, tip)
        truths.say(f"{prefix}stream:{stream}", at_ms, {"upto": str(log_state.closed_upto)})


def _read_control(run: Run, prefix: str, truths: _Truths) -> None:
    """Read the heartbeats and trim points of those who may write them."""
    ids = run.log.topic_ids
    for at_ms, entry in control_entries(run, run.managed):
        if isinstance(entry, TrimPoint):
            key = f"{prefix}trim:{entry.stream}"
            truths.say(key, at_ms, {"bucket": str(entry.bucket)})
            if entry.life != ids.get(run.managed.topic_names.boundaries(entry.stream)):
                truths.forget(key)  # a manager that begins now counts none of an earlier life
        elif (
            isinstance(entry, Heartbeat)
            and at_ms >= run.ended_ms - 2 * HEARTBEAT_LIFETIME_MS - _WRITTEN_WITHIN_MS
        ):
            # A manager that begins counts a heartbeat's lifetime from when it read it.
            name = f"{entry.service}:{entry.name}:{entry.replica}"
            beats = truths.beats.setdefault(f"{prefix}process:{name}", [])
            beats.append((at_ms, _fields_of(entry)))


def _fields_of(beat: Heartbeat) -> dict[str, str]:
    return {
        "service": beat.service,
        "name": beat.name,
        "replica": beat.replica,
        "epoch": str(beat.epoch),
        "state": beat.state,
        "bucket": str(beat.bucket),
        "written_ms": str(beat.written_ms),
        "replica_state": beat.replica_state,
        "branch": "" if beat.branch is None else str(beat.branch),
        "checkpoint": beat.checkpoint,
        "checkpoint_bucket": str(beat.checkpoint_bucket),
        "corrects": "1" if beat.corrects else "",
    }
