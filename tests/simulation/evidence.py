"""What a run left behind, as plain values for the checkers: read from the raw log, by nothing
that the services use to read it.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter

import pyarrow as pa

from anabranch.adapters.memory.partition import Fate, Record
from anabranch.codec import boundary_records, control_records
from anabranch.codec.blocks import BlockHeaders
from anabranch.consistency_manager.control import readers_of
from anabranch.ingestion.batches import HEARTBEAT
from anabranch.pipeline.shape import normal_ms, waits
from anabranch.pipeline.speakers import speakers
from anabranch.protocol.control.records import Heartbeat, TrimPoint
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import HOP_MS
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.records import LogEntry, Part
from checkers import availability, conservation, corrected, ingestion, streams, trimming, upsert
from checkers.corrected import Delivered
from examples.toll_road import live_checker as live
from examples.toll_road.live_checker import LiveRecord
from examples.toll_road.oracle import murmur2
from simulation import branches, hurrying, operating, workload
from simulation.silences import (
    is_ever_silent_for,
    leaves_time_to_hold,
    only_silence,
    silent_by_themselves,
    speaks_in_time,
)
from simulation.workload import Row
from simulation.world import Run

_REJECTED = -1
"""The number of the partition of rejected results, beside those of the output topic."""
_IDLE_MARGIN_MS = 250
_FORK_MARGIN_MS = 100
"""From the decision to run a batch to its beginning."""
_HEARD_MS = 500
"""What the replicas of a stage take to hear of each other, without faults."""
_ENGINE_MS = 500
"""What a batch of the small engine, its blocks and its record, and a transaction of delivery
take at most, per stage, without faults.
"""


def records(run: Run, topic: str) -> Iterator[tuple[int, int, Record]]:
    """(partition, offset, record) of everything that committed readers see of a topic."""
    for number, partition in enumerate(run.log.topics[topic][1]):
        for offset in range(partition.start, partition.end):
            record = partition.at(offset)
            if not record.control and (
                record.transaction is None or record.transaction.fate is Fate.COMMITTED
            ):
                yield number, offset, record


def boundary_log(run: Run, stream: str) -> list[tuple[int, LogEntry]]:
    """The entries of a boundary log, those that are trimmed too."""
    topic = run.pipeline.topic_names.boundaries(stream)
    gone = [(offset, record) for (of, _, offset), record in run.trimmed.items() if of == topic]
    found = []
    for offset, record in [
        *sorted(gone, key=itemgetter(0)),
        *((offset, record) for _, offset, record in records(run, topic)),
    ]:
        with contextlib.suppress(RemoteProtocolError):
            found.append((offset, boundary_records.decode(record.value, record.headers)))
    return found


class Blocks:
    """Reads the blocks of one stream, part by part."""

    def __init__(self, run: Run, stream: str) -> None:
        self._run, self._stream = run, stream
        self._known: dict[tuple[str, Part], list[tuple[object, ...]] | None] = {}

    def __call__(self, replica: str, part: Part) -> list[tuple[object, ...]] | None:
        """The rows of a part; None: its blocks are not there."""
        if (replica, part) not in self._known:
            self._known[replica, part] = self._read(replica, part)
        return self._known[replica, part]

    def _read(self, replica: str, part: Part) -> list[tuple[object, ...]] | None:
        topic = self._run.pipeline.topic_names.blocks(self._stream, replica)
        partition = self._run.log.topics[topic][1][part.partition]
        rows: list[tuple[object, ...]] = []
        blocks = 0
        for offset in range(part.offset_first, min(part.offset_next, partition.end)):
            gone = offset < partition.start
            record = (
                self._run.trimmed[topic, part.partition, offset] if gone else partition.at(offset)
            )
            head = BlockHeaders.decode(record.headers)
            if head.attempt == part.attempt and head.bucket == part.bucket:
                blocks += 1
                rows += rows_of(pa.ipc.open_stream(record.value).read_all())
        return rows if blocks == part.blocks and len(rows) == part.rows else None


def rows_of(table: pa.Table) -> list[tuple[object, ...]]:
    """A table's rows as the workload has them."""
    columns = [table.column(name).to_pylist() for name in ("event_time", "id", "key", "v")]
    return list(zip(*columns, strict=True))


def is_exact(run: Run) -> bool:
    """No record can be late, nor get another time, so the answer follows from the input alone."""
    return run.options.grown_ms is None and _is_whole(run)


def _is_whole(run: Run) -> bool:
    """No record can be late: nothing, or only silence that was not observed, is left out."""
    idle_ms = run.options.idle_ms
    if run.options.source_idle_ms is not None or run.options.scenario == "given up":
        return False
    if run.options.ahead[
        1
    ]:  # its partition holds nothing back any more: what comes in it after the others is late
        return False
    if idle_ms is None or run.options.source_partitions == 1:
        return True
    if any(fault.kind.startswith("silent") for fault in run.faults):
        return False
    return not is_ever_silent_for(run, idle_ms - _IDLE_MARGIN_MS)


def _arrivals(run: Run, source: str) -> dict[int, list[ingestion.Arrival]]:
    """The input of a source, as its topic has it."""
    found: dict[int, list[ingestion.Arrival]] = {}
    for number, partition in enumerate(run.log.topics[f"in.{source}"][1]):
        mine = found.setdefault(number, [])
        for offset in range(partition.start, partition.end):
            record = partition.at(offset)
            headers, row = dict(record.headers), workload.row_of(record.value)
            said = headers.get(HEARTBEAT)
            time_ms = (
                row[0] if row is not None and said is None else None if said is None else int(said)
            )
            mine.append(
                ingestion.Arrival(
                    record.timestamp_ms - workload.BASE_MS,
                    time_ms,
                    None if said else row,
                    said is not None,
                )
            )
    return found


def source_replay(run: Run, source: str, blocks: streams.ReadPart) -> ingestion.Replay:
    """What a source's stream and dead letters must be, from its input and from how far each
    boundary record says that it has read.
    """
    options = run.options
    rules = ingestion.Rules(
        options.bucket_ms,
        options.out_of_orderness_ms,
        options.idle_ms,
        options.source_idle_ms,
        options.late != "dead_letter",
    )
    topic = run.pipeline.topic_names.boundaries(source)
    appended = _appends(run)
    is_clock_right = not any(
        fault.kind in ("clock", "drift") and fault.target == f"ingestion/{source}"
        for fault in run.faults
    )
    taken, places = [], []
    for offset, record in streams.read(boundary_log(run, source), ["0"]).writers["0"].accepted:
        place, at_ms = appended[topic, 0, offset]
        rows = [workload.typed(row) for part in record.parts for row in blocks("0", part) or ()]
        positions: dict[int, tuple[int, int, int]] = {
            position.partition: (
                position.offset_next,
                position.event_time_max_ms,
                position.found_after,
            )
            for position in record.positions
        }
        decided_ms = record.written_ms - workload.BASE_MS if is_clock_right else None
        taken.append(
            ingestion.Taken(
                decided_ms,
                at_ms,
                positions,
                record.closed,
                rows,
                [each.last for each in record.given_up],
            )
        )
        places.append(place)
    replayed = ingestion.replay(source, _arrivals(run, source), taken, rules)
    dead = {
        place: min(appended[at][0] for at in letters)
        for place, letters in dead_letters(run, source).items()
    }
    replayed.wrong += ingestion.check_order(source, replayed, dead, places)
    return replayed


def _appends(run: Run) -> dict[tuple[str, int, int], tuple[int, int]]:
    """Of every record that a service wrote, by (topic, partition, offset): (place in the
    order of all events, virtual time).
    """
    return {
        (str(event.facts[0]), int(event.facts[1] or 0), int(event.facts[2] or 0)): (
            number,
            event.at_ms,
        )
        for number, event in enumerate(run.history.events)
        if event.what == "append"
    }


def source_streams(
    run: Run, replays: Mapping[str, ingestion.Replay]
) -> dict[str, workload.Buckets]:
    """The streams of the sources as they must be: from the input alone where that is all that
    counts.
    """
    return {
        source: (
            workload.source_buckets(run.options, run.sent, source)
            if is_exact(run)
            else _typed(replayed.buckets)
        )
        for source, replayed in replays.items()
    }


def _typed(buckets: Mapping[int, Sequence[tuple[object, ...]]]) -> workload.Buckets:
    return {bucket: sorted(map(workload.typed, rows)) for bucket, rows in buckets.items()}


def _headers(record: Record) -> dict[str, bytes]:
    return {name: value or b"" for name, value in record.headers}


def delivered(run: Run) -> list[Delivered]:
    """The corrected topic, and as one more partition that of rejected results."""
    there = [
        (partition, offset, record, partition) for partition, offset, record in records(run, "out")
    ]
    there += [
        (_REJECTED, offset, record, _partition_of(record.key or b"", run.options.output_partitions))
        for _, offset, record in _rejected(run)
    ]
    return [
        Delivered(
            place,
            offset,
            *_pair(_headers(record)["anabranch-id"].decode()),
            _read_row(partition, record),
        )
        for place, offset, record, partition in there
    ]


def _rejected(run: Run) -> list[tuple[int, int, Record]]:
    return (
        [(_REJECTED, offset, record) for _, offset, record in records(run, "out.rejected")]
        if "out.rejected" in run.log.topics
        else []
    )


def _wrongly_rejected(run: Run) -> list[str]:
    """Results that the output topic would have taken."""
    wrong = []
    for _, _, record in _rejected(run):
        headers = {
            name: value
            for name, value in _headers(record).items()
            if name in ("anabranch-id", "anabranch-event-time", "anabranch-missing")
        }
        size = (
            len(record.value or b"")
            + len(record.key or b"")
            + sum(len(name) + len(value) for name, value in headers.items())
        )
        run.history.reached("result rejected")
        if run.options.output_bytes_max is None or size <= run.options.output_bytes_max:
            wrong.append(
                f"rejected: {headers['anabranch-id'].decode()} of {size} bytes, of which the topic"
                f" takes {run.options.output_bytes_max}"
            )
    return wrong


def _read_row(partition: int, record: Record) -> tuple[object, ...]:
    """A result as a reader gets it: its value, and in what it stands beside that must be right."""
    row = json.loads(record.value or b"")
    return (
        row["id"],
        row["key"],
        row["v"],
        int(_headers(record)["anabranch-event-time"]),
        record.key,
        partition,
    )


def _result(row: Sequence[object], partitions: int) -> tuple[object, ...]:
    """The same, as it must be."""
    event_time, ident, key, v = row
    text = f'{{"key":{key}}}'.encode()
    return ident, key, v, event_time, text, _partition_of(text, partitions)


def _partition_of(key: bytes, partitions: int) -> int:
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def user_rows(
    buckets: Mapping[int, Sequence[Sequence[object]]], partitions: int
) -> dict[int, list[tuple[object, ...]]]:
    """A stream as its users see it."""
    return {bucket: [_result(row, partitions) for row in rows] for bucket, rows in buckets.items()}


def told(checker: str, lines: Iterable[str]) -> list[str]:
    """What a checker found, under its name: a planted bug counts as found only by the checker
    that is meant for it.
    """
    return [f"{checker}: {line}" for line in lines]


def judge(run: Run) -> list[str]:
    """Everything that is wrong with a run, in words, each with the checker that tells it."""
    options = run.options
    wrong = list(run.unexpected)
    if not run.is_complete:
        wrong += told(
            "progress", [f"not done at {run.ended_ms} ms, healed at {options.heal_ms} ms"]
        )
    blocks: dict[str, streams.ReadPart] = {
        stream: Blocks(run, stream) for stream in run.pipeline.streams()
    }
    replays = {source: source_replay(run, source, blocks[source]) for source in options.sources}
    wrong += told("ingestion", [text for replayed in replays.values() for text in replayed.wrong])
    sources = source_streams(run, replays)
    answers = workload.answers(options, sources)
    readings: dict[str, streams.Reading] = {}
    complete: dict[str, list[tuple[int, int]]] = {}
    for stream in run.pipeline.streams():
        entries = boundary_log(run, stream)
        log_state = LogState(run.pipeline.stream_writers(stream))
        times = _appended_ms(run, run.pipeline.topic_names.boundaries(stream))
        at_ms = 0
        for offset, entry in entries:
            run.history.reached(f"log state {log_state.apply(offset, entry).reason}")
            at_ms = times.get(offset, at_ms)
            complete.setdefault(stream, []).append((at_ms, log_state.upto))
        readings[stream] = streams.read(entries, run.pipeline.stream_writers(stream))
        wrong += told(
            "streams", streams.check(stream, readings[stream], answers[stream], blocks[stream])
        )
    silent = None
    if only_silence(run) and speaks_in_time(run):
        # Once a branch runs, later buckets get the short wait.
        later_ms = min(
            (waits(run.pipeline, stage.name).next_ms for stage in options.stages), default=0
        )
        sources_ms = options.bucket_ms + options.out_of_orderness_ms
        silent = {fault.target for fault in run.faults} | silent_by_themselves(
            run, later_ms - sources_ms
        )
    wrong += told("tentative", branches.check(options, sources, readings, blocks, silent))
    wrong += told("forks", _forks(run, readings))
    wrong += told("conservation", _conservation(run, sources, replays))
    said = (entry for source in options.sources for _, entry in boundary_log(run, source))
    wrong += told(
        "given up",
        operating.check_named(
            (_headers(record) for _, _, record in records(run, "out")), said, options
        ),
    )
    reads = {stage.name: stage.reads for stage in options.stages}
    wrong += told(
        "states", availability.check_said(_said_stable(run), complete, reads, _in_time_ms(run))
    )
    wrong += told("trimming", _trimmed(run))
    if only_silence(run):
        wrong += told(
            "correction order", availability.check_correction_order(_turns(run), _HEARD_MS)
        )
    answer = user_rows(answers[options.last_stage], options.output_partitions)
    if is_for_good(run):  # the rest is waited for
        closed = max(writer.closed for writer in readings[options.last_stage].writers.values())
        answer = {bucket: rows for bucket, rows in answer.items() if bucket <= closed}
    if run.is_complete:
        torn = run.history.probes["transaction torn"] > 0
        wrong += told("corrected", corrected.check(delivered(run), answer, is_ordered=not torn))
        wrong += told("corrected", _wrongly_rejected(run))
    if run.is_complete and options.is_upsert and options.is_live:
        wrong += told("upsert", _upsert(run, answer))
    elif run.is_complete and options.is_live:
        wrong += _live(
            run, answer, streams.offered(readings[options.last_stage], blocks[options.last_stage])
        )
    if _has_happened(run):
        run.history.reached(f"scenario {options.scenario}")
    return wrong


def _forks(run: Run, readings: Mapping[str, streams.Reading]) -> list[str]:
    """When and where replicas forked that should not have."""
    wrong: list[str] = []
    if _fails_only_input_or_branch(run):
        wrong += [
            line
            for stream, reading in readings.items()
            for line in streams.check_branches(stream, reading)
        ]
        wrong += _forks_at_one_hole(run)
    if not run.faults and speaks_in_time(run):
        wrong += [
            f"{who} forks at {at_ms} ms, and nothing fails"
            for at_ms, who, what, _ in run.history.events
            if what == "forks"
        ]
    if only_silence(run):
        forks = [
            (at_ms, *facts) for at_ms, _, what, facts in run.history.events if what == "forks again"
        ]
        wrong += [
            f"{stage}.{replica}: forks again at {at_ms} ms, {still_ms} ms after it went on last"
            " (rule 14)"
            for at_ms, stage, replica, still_ms in forks
            if int(still_ms or 0) < waits(run.pipeline, str(stage)).first_ms - _FORK_MARGIN_MS
        ]
    return wrong


def _appended_ms(run: Run, topic: str) -> dict[int, int]:
    """When each record of a topic of one partition was appended; what nobody appended is not
    named.
    """
    return {
        int(facts[2] or 0): at_ms
        for at_ms, _, what, facts in run.history.events
        if what == "append" and facts[0] == topic
    }


def _trimmed(run: Run) -> list[str]:
    """What readers said that they hold, and what was trimmed."""
    found = []
    for topic, speaker in speakers(run.pipeline).items():
        times, at_ms = _appended_ms(run, topic), 0
        for _, offset, record in records(run, topic):
            at_ms = times.get(offset, at_ms)
            with contextlib.suppress(RemoteProtocolError):
                entry = control_records.decode(record.value)
                if speaker.may_say(entry):
                    found.append((at_ms, entry))
    found.sort(key=itemgetter(0))
    said = [
        (at_ms, f"{e.service} {e.name}.{e.replica}", e.checkpoint_bucket)
        for at_ms, e in found
        if isinstance(e, Heartbeat)
    ]
    points = [(at_ms, e.stream, e.bucket) for at_ms, e in found if isinstance(e, TrimPoint)]
    readers = {
        stream: [f"{each.service} {each.name}.{each.replica}" for each in those]
        for stream, those in readers_of(run.pipeline).items()
    }
    return trimming.check(said, points, readers, hurrying.READER_MS)


def _said_stable(run: Run) -> Iterator[tuple[int, str, int]]:
    """(time, stage, bucket that it has run up to) of every heartbeat that said so, of those
    whose link was whole: a cut-off replica cannot know.
    """
    for at_ms, _, what, facts in run.history.events:
        if what == "says stable":
            stage, replica, bucket = facts
            if not _is_cut(run, f"processing/{stage}.{replica}", at_ms):
                yield at_ms, str(stage), int(bucket or 0)


def _is_cut(run: Run, target: str, at_ms: int) -> bool:
    """Whether what ``target`` reads may have come late, a while before ``at_ms``."""
    return any(
        fault.kind in ("cut", "cut_to", "cut_from", "slow")
        and fault.target == target
        and fault.at_ms <= at_ms <= fault.at_ms + fault.duration_ms + _in_time_ms(run)
        for fault in run.faults
    )


def _in_time_ms(run: Run) -> int:
    """The longest wait of a stage, the hop after which it says that it is behind, and what
    the engine takes to see it.
    """
    return (
        max((waits(run.pipeline, stage.name).first_ms for stage in run.options.stages), default=0)
        + HOP_MS
        + _ENGINE_MS
    )


def _turns(run: Run) -> Iterator[tuple[int, str, str, bool]]:
    """(time, stage, replica, whether it corrects from then on). Who ends does not."""
    for at_ms, who, what, facts in run.history.events:
        if what == "corrects":
            stage, replica, does = facts
            yield at_ms, str(stage), str(replica), bool(does)
        elif what == "end" and who.startswith("processing/"):
            stage, replica = who.removeprefix("processing/").split("#")[0].split(".")
            yield at_ms, stage, replica, False


def _fails_only_input_or_branch(run: Run) -> bool:
    return all(fault.kind.startswith(("silent", "branch fails")) for fault in run.faults)


def _forks_at_one_hole(run: Run) -> list[str]:
    """No process forks twice at one place: neither since its branch was dropped too early, nor
    after its branch failed there (RE5, RE7).

    But where the branch died of what may pass.
    """
    latest: dict[str, int] = {}
    wrong = []
    for event in run.history.events:
        if event.what == "forks":
            bucket = int(event.facts[0] or 0)
            if bucket <= latest.get(event.who, -1):
                wrong.append(
                    f"{event.who} forks at bucket {bucket} at {event.at_ms} ms, and forked at"
                    f" {latest[event.who]} before"
                )
            latest[event.who] = bucket
        elif event.what == "branch fails" and event.facts[1]:
            latest.pop(event.who, None)
    return wrong


def _has_happened(run: Run) -> bool:
    """Whether the scenario of a seed has come to pass, and was survived."""
    reached = run.history.probes
    happened = {
        "chain": (
            len(run.options.stages) == 3
            and any(stage.replicas == 3 for stage in run.options.stages)
        ),
        "second failure": reached["replica row 7: forks again"] > 0,
        "flapping": reached["live failure"] > 1,
        "deep join": reached["depth measured"] > 0,
        "never back": is_for_good(run),
        "given up": reached["source given up"] > 0,
        "stage down": _was_down(run),
        "branch fails": (
            reached["replica row 8: the branch failed"] + reached["branch cannot begin"] > 0
        ),
        "blocks deleted": (
            reached["fault blocks deleted"] + reached["fault blocks spoilt"] > 0
            and reached["log blocks_missing"] > 0
        ),
        "recovery twice": reached["transaction torn"] > 0 and reached["log outcome_unknown"] > 1,
    }
    happened["forged"] = all(
        reached[f"log state {reason}"] for reason in ("unknown_writer", "known", "older_branch")
    )
    return run.is_complete and happened.get(run.options.scenario, False)


def _was_down(run: Run) -> bool:
    """Whether all replicas of a stage were alive, and then none was."""
    ends = [event for event in run.history.events if event.what in ("start", "end")]
    for stage in run.options.stages:
        alive: set[str] = set()
        begun, down = False, False
        for event in ends:
            if not event.who.startswith(f"processing/{stage.name}."):
                continue
            (alive.add if event.what == "start" else alive.discard)(event.who)
            begun = begun or len(alive) == stage.replicas
            down = down or (begun and not alive and event.at_ms < run.options.heal_ms)
        if down:
            return True
    return False


def is_for_good(run: Run) -> bool:
    """An input never comes back, and nobody gives it up."""
    return run.options.scenario != "given up" and any(
        fault.kind == "silent for good" for fault in run.faults
    )


def _upsert(run: Run, answer: dict[int, list[tuple[object, ...]]]) -> list[str]:
    newest: dict[object, tuple[str, tuple[object, ...] | None]] = {}
    for partition, _, record in records(run, "out.live"):
        kind = _headers(record)["anabranch-kind"].decode()
        newest[json.loads(record.key or b"")["key"]] = (
            kind,
            None if record.value is None else _read_row(partition, record),
        )
    return upsert.check(newest, answer, key_index=1)


def live_records(run: Run) -> list[LiveRecord]:
    """The live topic."""
    return [
        _live_record(partition, offset, record)
        for partition, offset, record in records(run, "out.live")
    ]


def _live_record(partition: int, offset: int, record: Record) -> LiveRecord:
    headers = _headers(record)
    kind = headers["anabranch-kind"].decode()
    if kind in ("insertion", "tentative"):
        text, _, branch = headers["anabranch-id"].decode().partition("/")
        missing = headers.get("anabranch-missing", b"").decode()
        return LiveRecord(
            partition,
            offset,
            kind,
            _pair(text),
            _pair(branch) if branch else None,
            _read_row(partition, record),
            missing=tuple(missing.split(",")) if missing else (),
        )
    fields = json.loads(record.value or b"")
    last = fields.get("last_id")
    return LiveRecord(
        partition,
        offset,
        kind,
        None if last is None else _pair(last),
        stable=fields["stable"],
        shown=fields.get("shown", 0),
        sequence=fields.get("sequence", 0),
    )


def _pair(text: str) -> tuple[int, int]:
    first, second = text.split(".")
    return int(first), int(second)


def _live(
    run: Run,
    answer: dict[int, list[tuple[object, ...]]],
    offered: Mapping[tuple[int, tuple[int, int]], tuple[tuple[str, ...], list[streams.Row]]],
) -> list[str]:
    """The live topic: what it says, and how soon. ``offered``: what branches made of the
    stream that is delivered.
    """
    found = live_records(run)
    verdict = live.check(
        found,
        run.options.output_partitions,
        answer,
        is_complete=run.is_complete and not is_for_good(run),
    )
    named = [
        each if each.row is None else each._replace(row=(*each.row, each.missing)) for each in found
    ]
    partitions = run.options.output_partitions
    verdict.wrong += live.check_shown(
        named,
        {
            place: [(*_result(row, partitions), missing) for row in rows]
            for place, (missing, rows) in offered.items()
        },
    )
    reached = run.history.probes
    reached["live undo"] += verdict.undos
    reached["live rec_done"] += verdict.rec_dones
    reached["live failure"] += verdict.failures
    reached["live shown again"] += verdict.shown_again
    if (
        only_silence(run)
        and speaks_in_time(run)
        and leaves_time_to_hold(run)
        and verdict.failures > len(run.faults)
    ):
        verdict.wrong.append(
            f"live: {verdict.failures} failures are told, inputs fell silent {len(run.faults)}"
            " times (LD5)"
        )
    said = told("live", verdict.wrong)
    behind_ms = _behind_ms(run) if _has_bound(run) else None
    if behind_ms is None:
        return said
    reached["live bound judged"] += 1
    shown = sorted(
        (
            run.visible_ms["out.live", record.partition, record.offset],
            max(record.stable, record.shown),
        )
        for record in found
        if record.kind == "boundary"
    )
    for number in range(1, len(shown)):
        shown[number] = (shown[number][0], max(shown[number][1], shown[number - 1][1]))
    width_ms = run.options.bucket_ms
    rows = {
        (f"in.{each.source}", each.row[1]): each.row for each in run.sent if each.row is not None
    }
    arrivals = [
        (
            event.at_ms,
            workload.bucket_of(
                min(
                    rows[str(event.facts[0]), int(event.facts[3])][0],
                    workload.BASE_MS + event.at_ms,
                ),
                width_ms,
            ),
        )
        for event in run.history.events
        if event.who == "producer" and event.facts[3] is not None
    ]
    signs_ms = availability.signs(arrivals)
    stages = len(run.options.stages)
    bound_ms = (
        normal_ms(run.pipeline, run.options.last_stage)
        + run.options.max_delay_ms
        + stages * _ENGINE_MS
        + behind_ms
    )
    until_ms = run.ended_ms if is_for_good(run) else run.options.heal_ms
    wrong = availability.check(signs_ms, shown, bound_ms, until_ms)
    wait = waits(run.pipeline, run.options.last_stage)
    if only_silence(run) and wait.next_ms < wait.first_ms:  # equal ones: there is but the bound
        later_ms = wait.next_ms + (stages - 1) * HOP_MS + stages * _ENGINE_MS + behind_ms
        failing = sorted(
            (run.visible_ms["out.live", record.partition, record.offset], record.shown > 0)
            for record in found
            if record.kind == "boundary"
        )
        wrong += availability.check_later(signs_ms, shown, failing, later_ms, until_ms)
    return said + told("delays", wrong)


def _behind_ms(run: Run) -> int | None:
    """By how much a source is usually behind its records when it closes a bucket, before anything
    is silent; None: one has not closed any.

    A source that stands still goes on at the pace that it had (SP2), so the timers of its buckets
    are as far behind as they were.
    """
    begun_ms = min(
        (fault.at_ms for fault in run.faults if fault.kind.startswith("silent")),
        default=run.ended_ms,
    )
    appended, width_ms, found = _appends(run), run.options.bucket_ms, list[int]()
    for source in run.options.sources:
        topic = run.pipeline.topic_names.boundaries(source)
        accepted = streams.read(boundary_log(run, source), ["0"]).writers["0"].accepted
        moves = [
            (appended[topic, 0, offset][1], record.closed)
            for offset, record in accepted
            if record.closed
        ]
        lags = [
            at_ms - (closed * width_ms - workload.BASE_MS)
            for at_ms, closed in moves
            if at_ms <= begun_ms
        ]
        if not lags:
            return None
        found.append(max(0, min(lags) - run.options.out_of_orderness_ms))
    return max(found)


def _has_bound(run: Run) -> bool:
    """Only inputs fail, or one replica of a stage that has others: nothing that the bound
    does not cover (docs/concepts.md).
    """
    if (
        any(stage.policy != "process" for stage in run.options.stages)
        or run.options.inherited_parts_max is not None
    ):
        return False
    if run.options.input_parts_max is not None:
        return False
    struck: set[str] = set()
    for fault in run.faults:
        if fault.kind.startswith(("silent", "index")) or fault.target.startswith(
            "consistency_manager"
        ):
            continue
        if not fault.target.startswith("processing/"):
            return False
        struck.add(fault.target)
    for stage in run.options.stages:
        mine = [target for target in struck if target.split("/")[1].split(".")[0] == stage.name]
        if len(mine) > (1 if stage.replicas > 1 else 0):
            return False
    return True


def _conservation(
    run: Run, sources: dict[str, workload.Buckets], replays: Mapping[str, ingestion.Replay]
) -> list[str]:
    """By the number of the record in its input partition; good ones are found in the stream
    by their id.
    """
    if not run.is_complete or is_for_good(run):
        return []
    wrong: list[str] = []
    for source in run.options.sources:
        by_place: dict[ingestion.Place, int] = {}
        given: dict[int, bool] = {}
        counts: dict[int, int] = {}
        for each in run.sent:
            if each.source == source:
                offset = counts.get(each.partition, 0)
                counts[each.partition] = offset + 1
                number = each.row[1] if each.row else -len(given) - 1
                by_place[each.partition, offset] = number
                given[number] = each.row is not None and (
                    _is_whole(run) or (each.partition, offset) not in replays[source].late
                )
        dead = {by_place[place] for place in dead_letters(run, source)}
        rows: list[Row] = [row for bucket in sources[source].values() for row in bucket]
        wrong += conservation.check(source, given, [row[1] for row in rows], dead)
    return wrong


def dead_letters(run: Run, source: str) -> dict[ingestion.Place, list[tuple[str, int, int]]]:
    """(partition, offset) of the input records that are dead letters -> where these are."""
    topic = f"in.{source}.rejected"
    found: dict[ingestion.Place, list[tuple[str, int, int]]] = {}
    for partition, offset, record in records(run, topic) if topic in run.log.topics else ():
        headers = _headers(record)
        place = int(headers["anabranch-partition"]), int(headers["anabranch-offset"])
        found.setdefault(place, []).append((topic, partition, offset))
    return found
