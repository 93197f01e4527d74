"""State of the page as plain values: the full state for new clients, deltas for connected ones.

Theory of operation. The followers feed the page with what they read from logs and processes. It
keeps the last report of each process and the newest cells of each stream. A message has only the
sections that differ from the message before. Each section is complete, except cells and events,
whose items say by their numbers what they replace. So applying a message twice, or after a newer
full state, changes nothing.

A crash loses only the list of events: everything else is read again.

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
from anabranch.dashboard.layout import NodePosition, places
from anabranch.dashboard.states import (
    GONE,
    NO_HEARTBEAT,
    State,
    Tone,
    process_state,
    replica_state,
    stage_state,
)
from anabranch.dashboard.stream_timelines import Cell, StreamTimeline
from anabranch.pipeline.waits import bound_ms, output_bound_ms, qos_of
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE
from anabranch.protocol.control.records import (
    Alarm,
    ControlRecord,
    Fence,
    Heartbeat,
    Move,
    SplitStep,
    Step,
)
from anabranch.protocol.errors import headline
from anabranch.protocol.federation.costs import marginal
from anabranch.protocol.limits import HEARTBEAT_LIFETIME_MS
from anabranch.protocol.log.records import EpochStarted, LogSnapshot
from anabranch.protocol.stage.splitting import halves_of

if TYPE_CHECKING:
    from anabranch.dashboard.exposition import Bars, ProcessMetrics
    from anabranch.pipeline.model import Pipeline
    from anabranch.protocol.log.boundary_log import LogState, Outcome
    from anabranch.protocol.log.records import LogEntry

CELLS_MAX: Final = 36_000
"""Maximum number of cells of all timelines together. With more, the full state would be larger than
a few megabytes.
"""
TIMELINE_CELLS_MAX: Final = 1_200
"""Maximum number of cells of one timeline: the last five minutes at a bucket of 250 ms."""
TIMELINE_MS_MAX: Final = 600_000
TIMELINE_CELLS_MIN: Final = 120
EVENTS_MAX: Final = 200
TEXT_MAX: Final = 300
_TASKS_MAX: Final = 200
_REAL_TIME_MS: Final = 3_600_000
"""Distance from the clock, in ms, up to which event times count as current. Beyond it they are
simulated or a backlog, and no delays are computed from them.
"""
_RATE_MS: Final = 10_000
_HOPS_EVERY_MS: Final = 2_000
_SHARES: Final = (0.5, 0.95, 0.99)
_DELTAS: Final = ("cleared", "cells", "events")
"""Sections of which a message has only new items. ``cleared`` names the streams whose earlier cells
are void.
"""

Section = Any
"""JSON value of a section."""


@dataclass(frozen=True, slots=True)
class PageEvent:
    """Event in the page's list: a restart, a change of state, an alarm, a failure or a drill."""

    number: int
    """Number of the event, ascending."""
    at_ms: int
    bucket: int
    """Bucket at which the event is marked: that of the clock, or the newest where event times are
    not current.
    """
    kind: str
    target: str
    """Stream, or SERVICE/NAME."""
    stream: str
    """Stream on whose timeline it is marked; empty: on all."""
    text: str


class Page:
    """State of the page of one pipeline. Not thread-safe."""

    def __init__(self, pipeline: Pipeline) -> None:
        """Begin without any report."""
        self._pipeline = pipeline
        self._width_ms = pipeline.bucket_ms
        self.streams = [*pipeline.source_streams(), *pipeline.bindings, *pipeline.order()]
        self.cells_max = max(
            TIMELINE_CELLS_MIN,
            min(
                TIMELINE_CELLS_MAX,
                TIMELINE_MS_MAX // pipeline.bucket_ms,
                CELLS_MAX // max(1, len(self.streams)),
            ),
        )
        self._timelines = {stream: self._new_timeline() for stream in self.streams}
        self._places = places(pipeline)
        self._deliveries = pipeline.deliveries()
        self._live_outputs = {
            stream: {
                name: qos_of(pipeline, name)
                for name, output in pipeline.outputs.items()
                if output.live is not None and output.stage == stream
            }
            for stream in self.streams
        }
        """Quality-of-service functions of the outputs with a live topic, by the stream that they
        show.
        """
        # Each of these goes through the whole pipeline, and a card needs it at each message.
        self._readers = {stream: pipeline.readers(stream) for stream in self.streams}
        self._bounds_ms = {stage: bound_ms(pipeline, stage) for stage in pipeline.order()}
        """Maximum delay, in ms, of the results of each stage, whatever input is missing."""
        self._output_bounds_ms = {
            output: output_bound_ms(pipeline, delivery.name)
            for output, delivery in self._deliveries.items()
        }
        self._heartbeats: dict[tuple[str, str, str], tuple[Heartbeat, int]] = {}
        """Last heartbeat by (service, name, replica), and the monotonic time of its arrival."""
        self._nodes: dict[tuple[str, str], str] = {}
        """Node by (stream, replica)."""
        self._rows: list[dict[str, Any]] | None = None
        """Last report of each process; None: there is no report."""
        self._figures: dict[str, ProcessMetrics] = {}
        """Newest metrics of each process, by SERVICE/NAME."""
        self._before: dict[str, ProcessMetrics] = {}
        """Metrics of each process about a minute before."""
        self._samples: dict[str, list[dict[str, Any]]] = {}
        """Newest dead letters by source."""
        self._market: Section = None
        self._contact = "not connected yet"
        self._events: deque[PageEvent] = deque(maxlen=EVENTS_MAX)
        self._number = 0
        self._cleared: set[str] = set()
        self._hops: list[Section] = []
        self._hops_ms = 0
        self._sent: dict[str, Section] = {}
        """Sections of the page, as the last message to the clients had them."""
        self._sent_event = 0
        """Number of the last event that a message had."""
        self._seq = 0
        """Number of the last message."""

    # -- fed by the followers
    # ----------------------------------------------------------------------------------------------

    def begin_stream(self, stream: str) -> None:
        """Clear the timeline of ``stream``, because its log is read from the beginning."""
        if self._timelines[stream].cells:
            self._cleared.add(stream)
        self._timelines[stream] = self._new_timeline()

    def take(
        self,
        stream: str,
        entry: LogEntry,
        outcome: Outcome,
        log_state: LogState,
        now_ms: int | None,
    ) -> None:
        """Take a record of the boundary log of ``stream``, after ``log_state`` has taken it.

        ``now_ms`` is the wall clock; None while history is read, which makes no events.
        """
        self._timelines[stream].take(entry, outcome, log_state)
        if isinstance(entry, LogSnapshot):
            self._nodes |= {(stream, each.replica): each.node for each in entry.replicas}
        elif isinstance(entry, EpochStarted) and outcome.accepted:
            self._nodes[stream, entry.replica] = entry.node
            if now_ms is not None:
                where = f" on {entry.node}" if entry.node else ""
                self.add_event(
                    now_ms, "restart", stream, f"replica {entry.replica} began{where}", stream
                )

    def take_control(self, record: ControlRecord, now_ms: int, monotonic_ms: int) -> None:
        """Take a record of a control topic: a heartbeat, an alarm or a fence."""
        if isinstance(record, Heartbeat):
            key = (record.service, record.name, record.replica)
            old = self._heartbeats.get(key)
            self._heartbeats[key] = record, monotonic_ms
            if (
                record.service == REPLICA_SERVICE
                and old is not None
                and old[0].replica_state != record.replica_state
            ):
                self.add_event(
                    now_ms,
                    "state",
                    record.name,
                    f"replica {record.replica}: {old[0].replica_state or 'starting'} to"
                    f" {record.replica_state or 'starting'}",
                    record.name,
                )
        elif isinstance(record, Alarm):
            self.add_event(now_ms, "alarm", record.stream, f"{record.kind}: {record.text}")
        elif isinstance(record, Fence):
            self.add_event(
                now_ms, "alarm", record.stage, f"replica {record.replica} fenced: {record.reason}"
            )

    def take_move(self, move: Move, source: str, now_ms: int) -> None:
        """Take a move that the scaler has decided, from the node ``source``, with its reason."""
        self.add_event(
            now_ms,
            "move",
            move.stage,
            f"replica {move.replica} moves from {source} to {move.node}: {move.because}",
            move.stage,
        )

    def take_split(self, step: SplitStep, now_ms: int) -> None:
        """Take a step of the split of a shard, with the reason for it."""
        halves = " and ".join(halves_of(step.shard))
        text = {
            Step.WANTED: f"is to be split into {halves}",
            Step.CONFIRMED: f"is split: {halves} are proven and take over",
            Step.WITHDRAWN: "is not split, and nothing has changed",
        }[step.step]
        reason = f": {step.reason}" if step.reason else ""
        self.add_event(now_ms, "move", step.shard, text + reason, step.shard)

    def show_processes(
        self,
        rows: list[dict[str, Any]] | None,
        figures: Mapping[str, ProcessMetrics],
        before: Mapping[str, ProcessMetrics],
        now_ms: int,
    ) -> None:
        """Take the reports of all processes, and add an event for each change.

        Args:
            rows: Report of each process and replica; None: nothing is known of the processes.
            figures: Newest metrics, by SERVICE/NAME.
            before: Metrics of some time ago. Batch times and ages are those measured since.
            now_ms: The wall clock.
        """
        known = {_label(row): row for row in self._rows or ()}
        for row in rows or ():
            old = known.get(_label(row))
            if old is not None:
                for text in _differences(old, row):
                    kind = "drill" if row.get("cut") != old.get("cut") else "failure"
                    if row["state"] == "paused" or old["state"] == "paused":
                        kind = "drill"
                    self.add_event(now_ms, kind, _label(row), text, self._stream_of(row))
        self._rows = rows
        self._figures, self._before = dict(figures), dict(before)

    def show_rejected(self, source: str, samples: list[dict[str, Any]]) -> None:
        """Take the newest dead letters of a source, without their contents (PG2)."""
        self._samples[source] = samples

    def show_market(self, market: Section) -> None:
        """Take the market section."""
        self._market = market

    def show_contact(self, why_not: str) -> None:
        """Take why the broker does not answer; empty: it answers."""
        self._contact = why_not[:TEXT_MAX]

    def add_event(self, now_ms: int, kind: str, target: str, text: str, stream: str = "") -> None:
        """Append an event to the list, marked on the timeline of ``stream``; empty: on all."""
        self._number += 1
        bucket = now_ms // self._width_ms if self._is_real_time(now_ms) else self._newest()
        known = stream if stream in self._timelines else ""
        self._events.append(
            PageEvent(self._number, now_ms, bucket, kind, target[:TEXT_MAX], known, text[:TEXT_MAX])
        )

    # -- sent to the clients
    # ----------------------------------------------------------------------------------------------

    def whole(self, now_ms: int, monotonic_ms: int) -> dict[str, Section]:
        """Return the full state, with the number of the last message."""
        return {
            "seq": self._seq,
            "now_ms": now_ms,
            "whole": True,
            "pipeline": self._about(),
            "cells": {
                name: [self._cell(name, bucket) for bucket in sorted(timeline.cells)]
                for name, timeline in self._timelines.items()
            },
            "events": [asdict(each) for each in self._events],
            **self._sections(now_ms, monotonic_ms),
        }

    def message(self, now_ms: int, monotonic_ms: int) -> dict[str, Section]:
        """Return the changes since the last message, under the next number."""
        self._seq += 1
        cells = {
            name: [self._cell(name, bucket) for bucket in buckets]
            for name, timeline in self._timelines.items()
            if (buckets := timeline.changes())
        }
        events = [asdict(each) for each in self._events if each.number > self._sent_event]
        self._sent_event = self._number
        sections = self._sections(now_ms, monotonic_ms)
        changed = {
            name: section for name, section in sections.items() if self._sent.get(name) != section
        }
        self._sent = sections
        deltas: dict[str, Section] = {
            "cleared": sorted(self._cleared),
            "cells": cells,
            "events": events,
        }
        self._cleared.clear()
        return {
            "seq": self._seq,
            "now_ms": now_ms,
            **{name: deltas[name] for name in _DELTAS if deltas[name]},
            **changed,
        }

    def _about(self) -> Section:
        """Return the section that never changes: the pipeline and its graph."""
        pipeline = self._pipeline
        return {
            "name": pipeline.name,
            "bucket_ms": pipeline.bucket_ms,
            "max_delay_ms": max(
                (
                    pipeline.max_delay_of(name)
                    for name, output in pipeline.outputs.items()
                    if output.live is not None
                ),
                default=pipeline.max_delay_ms,
            ),
            "cells_max": self.cells_max,
            "delay_bounds_ms": list(BOUNDS_MS),
            "streams": self.streams,
            "live_outputs": {name: list(each) for name, each in self._live_outputs.items() if each},
            "federation": None if pipeline.federation is None else pipeline.federation.name,
            "places": [asdict(each) for each in self._places],
            "nodes": self._nodes_by_owner(),
        }

    def _nodes_by_owner(self) -> dict[str, list[str]]:
        """Return the nodes that run each participant's stages, as the pipeline file states."""
        found: dict[str, list[str]] = {}
        for node, replicas in self._pipeline.nodes().items():
            for owner in sorted(
                {self._pipeline.stages[r.rpartition(".")[0]].participant for r in replicas}
            ):
                found.setdefault(owner, []).append(node)
        return found

    def _sections(self, now_ms: int, monotonic_ms: int) -> dict[str, Section]:
        """Return the sections that a message has whole where they have changed."""
        return {
            "contact": self._contact,
            "edge": self._edge(now_ms),
            "is_of_now": self._is_real_time(now_ms),
            "cards": {place.key: self._card(place, monotonic_ms) for place in self._places},
            "hops": self._all_hops(monotonic_ms),
            "processes": self._processes(),
            "rejected": self._rejected(),
            "market": self._market,
            "agent": self._agent(),
        }

    def _newest(self) -> int:
        """Return the last closed bucket of any stream."""
        return max((timeline.newest for timeline in self._timelines.values()), default=0)

    def _is_real_time(self, now_ms: int) -> bool:
        """Return whether event times are close to the clock."""
        newest_ms = self._newest() * self._width_ms
        return not newest_ms or abs(now_ms - newest_ms) < _REAL_TIME_MS

    def _edge(self, now_ms: int) -> int:
        """Return the bucket at the right end of the timelines."""
        newest = self._newest()
        return max(newest, now_ms // self._width_ms) if self._is_real_time(now_ms) else newest

    def _card(self, place: NodePosition, monotonic_ms: int) -> Section:
        """Return the content of one box of the graph."""
        stream = place.name if place.kind != "output" else self._deliveries[place.name].stage
        timeline = self._timelines[stream]
        replicas: list[Section] = []
        if place.kind == "stage":
            states = []
            for replica in self._pipeline.stages[stream].replica_ids():
                heartbeat = self._last_heartbeat(REPLICA_SERVICE, stream, replica, monotonic_ms)
                state = heartbeat if isinstance(heartbeat, State) else replica_state(heartbeat)
                states.append(state)
                replicas.append(
                    {
                        "replica": replica,
                        "tone": state.tone,
                        "word": state.word,
                        "node": self._nodes.get((stream, replica), ""),
                        "is_read": timeline.read_from == replica,
                    }
                )
            state = stage_state(states)
        elif place.kind == "binding":
            # Its processes send their heartbeats to another pipeline's topics.
            state = State(Tone.GOOD, "another pipeline's") if timeline.newest else NO_HEARTBEAT
        else:
            service = "ingestion" if place.kind == "source" else "delivery"
            last = self._last_heartbeat(service, place.name, "0", monotonic_ms)
            state = last if isinstance(last, State) else process_state(last)
        without = self._readers_without(stream) if place.kind in ("source", "binding") else []
        if without and state.tone is Tone.GOOD:
            state = State(Tone.WARN, f"{state.word}, missing")
        lacks_rows = bool(timeline.missing) or timeline.shed > 0
        if place.kind == "output" and lacks_rows and state.tone is Tone.GOOD:
            state = State(Tone.WARN, "tentative")
        return {
            "tone": state.tone,
            "word": state.word,
            "missing": list(timeline.missing) if place.kind == "stage" else [],
            "shed": timeline.shed if place.kind == "stage" else 0,
            "missed_by": without,
            "replicas": replicas,
            "newest_ms": timeline.newest * self._width_ms if timeline.newest else None,
            "bound_ms": self._bounds_ms.get(stream),
            "rows_per_s": self._rate(timeline),
        }

    def _last_heartbeat(
        self, service: str, name: str, replica: str, monotonic_ms: int
    ) -> Heartbeat | State | None:
        """Return the last heartbeat, or ``GONE`` if it is too old; None: there was none."""
        found = self._heartbeats.get((service, name, replica))
        if found is None:
            return None
        heartbeat, arrived_ms = found
        age_ms = monotonic_ms - arrived_ms
        is_silent = age_ms > HEARTBEAT_LIFETIME_MS / 2 and heartbeat.state != "ended"
        return GONE if is_silent else heartbeat

    def _readers_without(self, stream: str) -> list[str]:
        """Return the stages from whose newest results ``stream`` is missing."""
        return [
            reader for reader in self._readers[stream] if stream in self._timelines[reader].missing
        ]

    def _rate(self, timeline: StreamTimeline) -> float | None:
        """Return the rows per second over the last buckets; None: there are no buckets."""
        span = max(1, _RATE_MS // self._width_ms)
        found = [
            cell.rows
            for bucket in range(timeline.newest - span + 1, timeline.newest + 1)
            if (cell := timeline.cells.get(bucket)) is not None
        ]
        return round(sum(found) * 1_000 / (len(found) * self._width_ms), 1) if found else None

    def _all_hops(self, monotonic_ms: int) -> list[Section]:
        """Return the delays of all streams and outputs, computed anew every few seconds.

        They are the most expensive section, and figures that change twice a second are unreadable.
        """
        if not self._hops or monotonic_ms - self._hops_ms >= _HOPS_EVERY_MS:
            self._hops_ms = monotonic_ms
            self._hops = [
                *(self._hop(stream) for stream in self.streams),
                *map(self._output_hop, self._deliveries),
            ]
        return self._hops

    def _hop(self, stream: str) -> Section:
        """Return the delays of a stream's results, from its boundary log."""
        found_ms = [
            first_ms
            for cell in self._timelines[stream].cells.values()
            if (first_ms := _first_ms(cell)) is not None
        ]
        delays = delays_of(found_ms)
        is_stage = stream in self._pipeline.stages
        batch = self._batch(stream) if is_stage else None
        return {
            "name": stream,
            "kind": "stage" if is_stage else "source",
            "bound_ms": self._bounds_ms.get(stream),
            "delays": None if delays is None else asdict(delays),
            "rows_per_s": self._rate(self._timelines[stream]),
            "batch_ms": batch,
        }

    def _output_hop(self, output: str) -> Section:
        """Return the delays of an output's results: upper bounds, from its process's histogram."""
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
            "bound_ms": self._output_bounds_ms[output],
            "upto_ms": None if found is None else [round(each * 1_000) for each in found],
            "rows_per_s": None,
            "batch_ms": None,
        }

    def _batch(self, stage: str) -> list[int] | None:
        """Return median and 95th percentile of a batch's duration in ms, of the slowest replica."""
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
        """Return the dead letters by source: their number by reason, and the newest ones."""
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
        """Return the report of this participant's own agent, and its cost of one more unit of load.

        None: there is no agent, or it does not answer. Other participants' costs are private.
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
        """Return the stream that a process writes; empty: none, or several."""
        return str(row["name"]) if row["service"] == "ingestion" else ""

    def _new_timeline(self) -> StreamTimeline:
        return StreamTimeline(self._width_ms, self.cells_max)

    def _cell(self, stream: str, bucket: int) -> list[Any]:
        """Return a cell as it is sent: bucket, phase, delays, rows, writer, missing, shed, and what
        its first results are worth at each output, in per mille; None: their delay is not known.
        """
        cell = self._timelines[stream].cells[bucket]
        delay_ms = _first_ms(cell)
        return [
            bucket,
            cell.phase,
            cell.tentative_ms,
            cell.stable_ms,
            cell.rows,
            cell.writer,
            list(cell.missing),
            cell.shed,
            [
                None if delay_ms is None else qos.utility(delay_ms, cell.shed)
                for qos in self._live_outputs[stream].values()
            ],
        ]


def _first_ms(cell: Cell) -> int | None:
    """Return the delay of the first results of a bucket, in ms; None: it is not known, or its time
    is not that of the clock.
    """
    delay_ms = cell.first_ms
    return None if delay_ms is None or abs(delay_ms) >= _REAL_TIME_MS else delay_ms


def _label(row: Mapping[str, Any]) -> str:
    return f"{row['service']}/{row['name']}"


def _differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Sequence[str]:
    """Return a sentence for each change between two reports of a process."""
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
    """Return the first line of a text from outside, of bounded length (PG1)."""
    return None if text is None else headline(str(text))[:TEXT_MAX]
