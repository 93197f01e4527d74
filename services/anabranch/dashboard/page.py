"""What the page shows, as plain values: whole for who has just come, and what has changed for who
looks on.

Theory of operation. The followers feed it what they read from the logs and hear from the processes;
it keeps the last word of each and the newest cells of each stream. A message names only sections
that are not as they were in the message before, and each is whole, or (cells, events) names what it
replaces: to take a message twice, or after a newer whole one, changes nothing.

A crash loses nothing but what happened (events): all else is read again.

Invariants:
    PG1 memory is bounded: by the streams and processes of the pipeline file, CELLS_MAX, EVENTS_MAX,
        and TEXT_MAX for each text from outside.
    PG2 nothing of a record's content is in a message but counts and times; the browser requests the
        content of a dead letter separately.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from anabranch.dashboard.delays import BOUNDS_MS, delays_of, quantiles_s
from anabranch.dashboard.layout import Place, places
from anabranch.dashboard.states import (
    GONE,
    NOT_HEARD,
    State,
    Tone,
    of_replicas,
    process_state,
    replica_state,
)
from anabranch.dashboard.strips import Strip
from anabranch.pipeline.shape import normal_ms
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE
from anabranch.protocol.control.records import Alarm, ControlRecord, Fence, Heartbeat
from anabranch.protocol.errors import headline
from anabranch.protocol.federation.costs import marginal
from anabranch.protocol.limits import HEARTBEAT_LIFETIME_MS
from anabranch.protocol.log.records import EpochStarted, LogSnapshot

if TYPE_CHECKING:
    from anabranch.dashboard.exposition import Bars, Figures
    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.log.boundary_log import LogState, Outcome
    from anabranch.protocol.log.records import LogEntry

CELLS_MAX: Final = 36_000
"""Of all strips together: the largest message is some megabytes."""
STRIP_CELLS_MAX: Final = 1_200
"""Of one: at a bucket of 250 ms the last five minutes."""
STRIP_MS_MAX: Final = 600_000
STRIP_CELLS_MIN: Final = 120
EVENTS_MAX: Final = 200
TEXT_MAX: Final = 300
_TASKS_MAX: Final = 200
_NOT_OF_NOW_MS: Final = 3_600_000
"""Event times further from the clock are simulated, or a backlog."""
_RATE_MS: Final = 10_000
_HOPS_EVERY_MS: Final = 2_000
_SHARES: Final = (0.5, 0.95, 0.99)
_NEWS: Final = ("cleared", "cells", "events")
"""Sections of which a message names what is new. ``cleared``: streams of which all earlier cells
are void.
"""

Section = Any
"""Of JSON."""


@dataclass(frozen=True, slots=True)
class Event:
    """Something happened. ``number`` grows; ``bucket`` is the one that was due, or of simulated
    time the newest.
    """

    number: int
    at_ms: int
    bucket: int
    kind: str
    target: str
    """A stream, or SERVICE/NAME."""
    stream: str
    """On whose strip it is marked; empty: on all."""
    text: str


class Page:
    """The page of one pipeline. Not thread-safe."""

    def __init__(self, pipeline: Pipeline) -> None:
        self._pipeline = pipeline
        self._width_ms = pipeline.bucket_ms
        self.streams = [*pipeline.source_streams(), *pipeline.bindings, *pipeline.order()]
        self.cells_max = max(
            STRIP_CELLS_MIN,
            min(
                STRIP_CELLS_MAX,
                STRIP_MS_MAX // pipeline.bucket_ms,
                CELLS_MAX // max(1, len(self.streams)),
            ),
        )
        self._strips = {stream: self._strip() for stream in self.streams}
        self._places = places(pipeline)
        self._deliveries = pipeline.deliveries()
        self._beats: dict[tuple[str, str, str], tuple[Heartbeat, int]] = {}
        self._nodes: dict[tuple[str, str], str] = {}
        self._rows: list[dict[str, Any]] | None = None
        self._figures: dict[str, Figures] = {}
        self._before: dict[str, Figures] = {}
        self._samples: dict[str, list[dict[str, Any]]] = {}
        self._market: Section = None
        self._contact = "not connected yet"
        self._events: deque[Event] = deque(maxlen=EVENTS_MAX)
        self._number = 0
        self._cleared: set[str] = set()
        self._hops: list[Section] = []
        self._hops_ms = 0
        self._sent: dict[str, Section] = {}
        self._sent_event = 0
        self._seq = 0

    # -- what is fed
    # ----------------------------------------------------------------------------------------------

    def begin_stream(self, stream: str) -> None:
        """Its log is read anew."""
        if self._strips[stream].cells:
            self._cleared.add(stream)
        self._strips[stream] = self._strip()

    def take(
        self,
        stream: str,
        entry: LogEntry,
        outcome: Outcome,
        log_state: LogState,
        now_ms: int | None,
    ) -> None:
        """A record of a stream's boundary log. ``now_ms``: None while history is read."""
        self._strips[stream].take(entry, outcome, log_state)
        if isinstance(entry, LogSnapshot):
            self._nodes |= {(stream, each.replica): each.node for each in entry.replicas}
        elif isinstance(entry, EpochStarted) and outcome.accepted:
            self._nodes[stream, entry.replica] = entry.node
            if now_ms is not None:
                where = f" on {entry.node}" if entry.node else ""
                self.happened(
                    now_ms, "restart", stream, f"replica {entry.replica} began{where}", stream
                )

    def hear(self, record: ControlRecord, now_ms: int, monotonic_ms: int) -> None:
        """A record of a control topic."""
        if isinstance(record, Heartbeat):
            key = (record.service, record.name, record.replica)
            old = self._beats.get(key)
            self._beats[key] = record, monotonic_ms
            if (
                record.service == REPLICA_SERVICE
                and old is not None
                and old[0].replica_state != record.replica_state
            ):
                self.happened(
                    now_ms,
                    "state",
                    record.name,
                    f"replica {record.replica}: {old[0].replica_state or 'starting'} to"
                    f" {record.replica_state or 'starting'}",
                    record.name,
                )
        elif isinstance(record, Alarm):
            self.happened(now_ms, "alarm", record.stream, f"{record.kind}: {record.text}")
        elif isinstance(record, Fence):
            self.happened(
                now_ms, "alarm", record.stage, f"replica {record.replica} fenced: {record.reason}"
            )

    def show_processes(
        self,
        rows: list[dict[str, Any]] | None,
        figures: Mapping[str, Figures],
        before: Mapping[str, Figures],
        now_ms: int,
    ) -> None:
        """What the processes say of themselves; None: nothing is known of them. ``before``: their
        figures a while ago; times of batches and ages are those since.
        """
        known = {_label(row): row for row in self._rows or ()}
        for row in rows or ():
            old = known.get(_label(row))
            if old is not None:
                for text in _differences(old, row):
                    kind = "drill" if row.get("cut") != old.get("cut") else "failure"
                    if row["state"] == "paused" or old["state"] == "paused":
                        kind = "drill"
                    self.happened(now_ms, kind, _label(row), text, self._stream_of(row))
        self._rows = rows
        self._figures, self._before = dict(figures), dict(before)

    def show_rejected(self, source: str, samples: list[dict[str, Any]]) -> None:
        """The newest dead letters of a source, without what they hold (PG2)."""
        self._samples[source] = samples

    def show_market(self, market: Section) -> None:
        """Contracts, movements, ledgers."""
        self._market = market

    def show_contact(self, why_not: str) -> None:
        """Whether the broker answers; ``why_not`` is empty then."""
        self._contact = why_not[:TEXT_MAX]

    def happened(self, now_ms: int, kind: str, target: str, text: str, stream: str = "") -> None:
        """Note an event."""
        self._number += 1
        bucket = now_ms // self._width_ms if self._is_of_now(now_ms) else self._newest()
        known = stream if stream in self._strips else ""
        self._events.append(
            Event(self._number, now_ms, bucket, kind, target[:TEXT_MAX], known, text[:TEXT_MAX])
        )

    # -- what is shown
    # ----------------------------------------------------------------------------------------------

    def whole(self, now_ms: int, monotonic_ms: int) -> dict[str, Section]:
        """Everything, as of the last message."""
        return {
            "seq": self._seq,
            "now_ms": now_ms,
            "whole": True,
            "pipeline": self._about(),
            "cells": {
                name: [_cell(bucket, strip) for bucket in sorted(strip.cells)]
                for name, strip in self._strips.items()
            },
            "events": [asdict(each) for each in self._events],
            **self._sections(now_ms, monotonic_ms),
        }

    def message(self, now_ms: int, monotonic_ms: int) -> dict[str, Section]:
        """What has changed since the last message."""
        self._seq += 1
        cells = {
            name: [_cell(bucket, strip) for bucket in buckets]
            for name, strip in self._strips.items()
            if (buckets := strip.changes())
        }
        events = [asdict(each) for each in self._events if each.number > self._sent_event]
        self._sent_event = self._number
        sections = self._sections(now_ms, monotonic_ms)
        changed = {
            name: section for name, section in sections.items() if self._sent.get(name) != section
        }
        self._sent = sections
        news: dict[str, Section] = {
            "cleared": sorted(self._cleared),
            "cells": cells,
            "events": events,
        }
        self._cleared.clear()
        return {
            "seq": self._seq,
            "now_ms": now_ms,
            **{name: news[name] for name in _NEWS if news[name]},
            **changed,
        }

    def _about(self) -> Section:
        """What does not change."""
        pipeline = self._pipeline
        return {
            "name": pipeline.name,
            "bucket_ms": pipeline.bucket_ms,
            "max_delay_ms": pipeline.max_delay_ms,
            "cells_max": self.cells_max,
            "delay_bounds_ms": list(BOUNDS_MS),
            "streams": self.streams,
            "federation": None if pipeline.federation is None else pipeline.federation.name,
            "places": [asdict(each) for each in self._places],
            "nodes": self._nodes_by_owner(),
        }

    def _nodes_by_owner(self) -> dict[str, list[str]]:
        """Of each participant the nodes that run its stages, as the pipeline file says."""
        found: dict[str, list[str]] = {}
        for node, replicas in self._pipeline.nodes().items():
            for owner in sorted(
                {self._pipeline.stages[r.rpartition(".")[0]].participant for r in replicas}
            ):
                found.setdefault(owner, []).append(node)
        return found

    def _sections(self, now_ms: int, monotonic_ms: int) -> dict[str, Section]:
        return {
            "contact": self._contact,
            "edge": self._edge(now_ms),
            "is_of_now": self._is_of_now(now_ms),
            "cards": {place.key: self._card(place, monotonic_ms) for place in self._places},
            "hops": self._all_hops(monotonic_ms),
            "processes": self._processes(),
            "rejected": self._rejected(),
            "market": self._market,
            "agent": self._agent(),
        }

    def _newest(self) -> int:
        return max((strip.newest for strip in self._strips.values()), default=0)

    def _is_of_now(self, now_ms: int) -> bool:
        """Whether event times are those of the clock."""
        newest_ms = self._newest() * self._width_ms
        return not newest_ms or abs(now_ms - newest_ms) < _NOT_OF_NOW_MS

    def _edge(self, now_ms: int) -> int:
        """The bucket at the right end of the strips."""
        newest = self._newest()
        return max(newest, now_ms // self._width_ms) if self._is_of_now(now_ms) else newest

    def _card(self, place: Place, monotonic_ms: int) -> Section:
        """One box of the graph."""
        stream = place.name if place.kind != "output" else self._deliveries[place.name].stage
        strip = self._strips[stream]
        replicas: list[Section] = []
        if place.kind == "stage":
            states = []
            for replica in self._pipeline.stages[stream].replica_ids():
                beat = self._heard(REPLICA_SERVICE, stream, replica, monotonic_ms)
                state = beat if isinstance(beat, State) else replica_state(beat)
                states.append(state)
                replicas.append(
                    {
                        "replica": replica,
                        "tone": state.tone,
                        "word": state.word,
                        "node": self._nodes.get((stream, replica), ""),
                        "is_read": strip.read_from == replica,
                    }
                )
            state = of_replicas(states)
        elif place.kind == "binding":
            state = State(Tone.GOOD, "another pipeline's") if strip.newest else NOT_HEARD
        else:
            service = "ingestion" if place.kind == "source" else "delivery"
            heard = self._heard(service, place.name, "0", monotonic_ms)
            state = heard if isinstance(heard, State) else process_state(heard)
        without = self._readers_without(stream) if place.kind in ("source", "binding") else []
        if without and state.tone is Tone.GOOD:
            state = State(Tone.WARN, f"{state.word}, missing")
        if place.kind == "output" and strip.missing and state.tone is Tone.GOOD:
            state = State(Tone.WARN, "tentative")
        return {
            "tone": state.tone,
            "word": state.word,
            "missing": list(strip.missing) if place.kind == "stage" else [],
            "missed_by": without,
            "replicas": replicas,
            "newest_ms": strip.newest * self._width_ms if strip.newest else None,
            "bound_ms": self._bound_ms(stream),
            "rows_per_s": self._rate(strip),
        }

    def _bound_ms(self, stream: str) -> int | None:
        """How old new results of a stage may be, whatever is missing; None: a source has no
        bound.
        """
        pipeline = self._pipeline
        return (
            normal_ms(pipeline, stream) + pipeline.max_delay_ms
            if stream in pipeline.stages
            else None
        )

    def _heard(
        self, service: str, name: str, replica: str, monotonic_ms: int
    ) -> Heartbeat | State | None:
        """The last heartbeat, or that it is long ago; None: there was none."""
        found = self._beats.get((service, name, replica))
        if found is None:
            return None
        beat, heard_ms = found
        silent = monotonic_ms - heard_ms > HEARTBEAT_LIFETIME_MS / 2 and beat.state != "ended"
        return GONE if silent else beat

    def _readers_without(self, stream: str) -> list[str]:
        """The stages whose newest results are made without ``stream``."""
        return [
            reader
            for reader in self._pipeline.readers(stream)
            if stream in self._strips[reader].missing
        ]

    def _rate(self, strip: Strip) -> float | None:
        """Rows a second over the last buckets; None: it has none."""
        span = max(1, _RATE_MS // self._width_ms)
        found = [
            cell.rows
            for bucket in range(strip.newest - span + 1, strip.newest + 1)
            if (cell := strip.cells.get(bucket)) is not None
        ]
        return round(sum(found) * 1_000 / (len(found) * self._width_ms), 1) if found else None

    def _all_hops(self, monotonic_ms: int) -> list[Section]:
        """They take the most to compute and to send, and nobody reads figures that change twice a
        second.
        """
        if not self._hops or monotonic_ms - self._hops_ms >= _HOPS_EVERY_MS:
            self._hops_ms = monotonic_ms
            self._hops = [
                *(self._hop(stream) for stream in self.streams),
                *map(self._output_hop, self._deliveries),
            ]
        return self._hops

    def _hop(self, stream: str) -> Section:
        """How late the results of a stream come, from its boundary log."""
        found_ms = [
            first_ms
            for cell in self._strips[stream].cells.values()
            if (first_ms := cell.first_ms) is not None and abs(first_ms) < _NOT_OF_NOW_MS
        ]
        delays = delays_of(found_ms)
        is_stage = stream in self._pipeline.stages
        batch = self._batch(stream) if is_stage else None
        return {
            "name": stream,
            "kind": "stage" if is_stage else "source",
            "bound_ms": self._bound_ms(stream),
            "delays": None if delays is None else asdict(delays),
            "rows_per_s": self._rate(self._strips[stream]),
            "batch_ms": batch,
        }

    def _output_hop(self, output: str) -> Section:
        """The same of an output, from the histogram of its process: upper bounds."""
        label = f"delivery/{output}"
        figures, before = self._figures.get(label), self._before.get(label)
        found = None
        if figures is not None and output in figures.ages:
            found = quantiles_s(
                figures.ages[output],
                {} if before is None else before.ages.get(output, {}),
                _SHARES,
            )
        return {
            "name": output,
            "kind": "output",
            "bound_ms": self._bound_ms(self._deliveries[output].stage),
            "upto_ms": None if found is None else [round(each * 1_000) for each in found],
            "rows_per_s": None,
            "batch_ms": None,
        }

    def _batch(self, stage: str) -> list[int] | None:
        """Median and 95th percentile of the time of a batch, of the slowest replica."""
        found = []
        for label, figures in self._figures.items():
            for replica, bars in figures.batches.items():
                if replica.rpartition(".")[0] == stage:
                    old: Bars = (
                        self._before[label].batches.get(replica, {})
                        if label in self._before
                        else {}
                    )
                    times = quantiles_s(bars, old, _SHARES[:2])
                    if times is not None:
                        found.append([round(each * 1_000) for each in times])
        return max(found, default=None)

    def _processes(self) -> Section:
        if self._rows is None:
            return None
        return [
            {
                key: row.get(key)
                for key in ("service", "name", "state", "lag_ms", "restarts", "cut", "address")
            }
            | {
                "reported": _cut(row.get("error") or row.get("reported")),
                "waiting_for": _cut(row.get("waiting_for")),
            }
            for row in self._rows
        ]

    def _rejected(self) -> Section:
        """By source: how many, by reason, and the newest ones."""
        found = {}
        for source in self._pipeline.sources.values():
            counts: dict[str, float] = {}
            for stream in source.streams():
                figures = self._figures.get(f"ingestion/{stream}")
                for reason, count in [] if figures is None else figures.rejected.items():
                    counts[reason] = counts.get(reason, 0) + count
            found[source.name] = {
                "topic": source.dead_letter,
                "by_reason": {
                    reason[:TEXT_MAX]: int(count)
                    for reason, count in sorted(counts.items())
                    if count
                },
                "samples": self._samples.get(source.name, []),
            }
        return found

    def _agent(self) -> Section:
        """What this participant's own agent says, and what one more unit of load would cost it;
        None: it has none, or that does not answer. Nobody knows the costs of the others.
        """
        federation = self._pipeline.federation
        policy = None if federation is None else federation.agent
        row = next((each for each in self._rows or () if each["service"] == "agent"), None)
        detail = None if row is None else row.get("detail")
        if policy is None or not isinstance(detail, dict):
            return None
        level = detail.get("load_units")
        if not isinstance(level, int):
            return None
        cost = policy.cost()
        tasks = detail.get("tasks")
        return {
            "phase": _cut(detail.get("phase")),
            "load_units": level,
            "capacity_units": policy.capacity_units,
            "next_unit_micro": marginal(cost, max(0, level), 1),
            "tasks": [
                [_cut(name), _cut(task.get("place")), task.get("units")]
                for name, task in list(tasks.items())[:_TASKS_MAX]
                if isinstance(task, dict)
            ]
            if isinstance(tasks, dict)
            else [],
        }

    def _stream_of(self, row: Mapping[str, Any]) -> str:
        """The stream that a process writes, if it is one."""
        return str(row["name"]) if row["service"] == "ingestion" else ""

    def _strip(self) -> Strip:
        return Strip(self._width_ms, self.cells_max)


def _cell(bucket: int, strip: Strip) -> list[Any]:
    """As it is sent: bucket, phase, delays, rows, writer, missing."""
    cell = strip.cells[bucket]
    return [
        bucket,
        cell.phase,
        cell.tentative_ms,
        cell.stable_ms,
        cell.rows,
        cell.writer,
        list(cell.missing),
    ]


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['service']}/{row['name']}"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Sequence[str]:
    """What has happened to a process, in words."""
    found = []
    if old.get("cut") != new.get("cut"):
        found.append(str(new["cut"]) if new.get("cut") else "link to Kafka healed")
    if old["state"] != "paused" and new["state"] == "paused":
        found.append("paused")
    if old["state"] == "paused" and new["state"] != "paused":
        found.append("resumed")
    if int(new.get("restarts") or 0) > int(old.get("restarts") or 0):
        found.append(f"started again, number {new['restarts']}")
    if old["state"] != "failed" and new["state"] == "failed":
        found.append(f"failed: {new.get('error') or 'see its log'}")
    return found


def _cut(text: object) -> str | None:
    return None if text is None else headline(str(text))[:TEXT_MAX]
