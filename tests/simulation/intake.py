"""Expected streams and dead letters of a run's sources, computed from their input."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from anabranch.adapters.memory.partition import Record
from anabranch.ingestion.batches import HEARTBEAT
from checkers import conservation, ingestion, streams
from simulation import leaders_clocks, new_inputs, sharding, workload
from simulation.raw_logs import appends, boundary_log, headers_of, records, with_trimmed
from simulation.silences import (
    is_ever_silent_for,
    is_for_good,
)
from simulation.workload import Row, topic_of
from simulation.world import Run

_IDLE_MARGIN_MS = 250
_NOBODYS = -1_000_000
"""The number of a record that nobody has sent."""


def is_exact(run: Run) -> bool:
    """No record can be late, nor get another time, so the answer follows from the input alone."""
    return run.options.grown_ms is None and _is_whole(run)


def _is_whole(run: Run) -> bool:
    """No record can be late: nothing, or only silence that was not observed, is left out."""
    idle_ms = run.options.idle_ms
    if run.options.is_arrival:
        return False
    if run.options.source_idle_ms is not None or run.options.scenario in (
        "given up",
        "input gone",
        "input recreated",
    ):
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
    """Return the input of a source, as its topic has it, and as former ones had it."""
    topic = topic_of(source)
    present = run.former.number(topic, "", 0)
    found: dict[int, list[ingestion.Arrival]] = {
        present + number: [] for number in range(len(run.log.topics[topic][1]))
    }
    for at, offset, record in _input_records(run, source):
        headers, row = dict(record.headers), workload.row_of(record.value)
        beat = headers.get(HEARTBEAT)
        time_ms = (
            row[0] if row is not None and beat is None else None if beat is None else int(beat)
        )
        displaced_ms = run.displaced_by.get((topic, at - present, offset), 0)
        found.setdefault(at, []).append(
            ingestion.Arrival(
                record.timestamp_ms - workload.BASE_MS - displaced_ms,
                record.timestamp_ms if run.options.is_arrival else time_ms,
                None if beat else row,
                beat is not None,
                leaders_clocks.is_beyond(displaced_ms),
            )
        )
    for at in range(present):  # a former partition to which nothing was sent
        if at % new_inputs.APART < len(run.log.topics[topic][1]):
            found.setdefault(at, [])
    return found


def _input_records(run: Run, source: str) -> Iterator[tuple[int, int, Record]]:
    """Yield (number of the partition, offset, record) of everything that was ever in the input of
    a source (``new_inputs``).
    """
    topic = topic_of(source)
    yield from run.former.records(topic)
    for partition, offset, record in with_trimmed(run, topic):
        yield run.former.number(topic, "", partition), offset, record


def source_replay(run: Run, source: str, blocks: streams.ReadPart) -> ingestion.Replay:
    """Compute what a source's stream and dead letters must be, from its input and from how far each
    boundary record says that it has read.
    """
    options = run.options
    rules = ingestion.Rules(
        options.bucket_ms,
        options.out_of_orderness_ms,
        options.idle_ms,
        options.source_idle_ms,
        options.late != "dead_letter",
        options.kept_max is not None,
        options.is_arrival,
        workload.BASE_MS + (options.max_ahead_ms or 0),
    )
    topic = run.pipeline.topic_names.boundaries(source)
    appended = appends(run)
    is_clock_right = not any(
        fault.kind in ("clock", "drift", "clock set") and fault.target == f"ingestion/{source}"
        for fault in run.faults
    )
    taken, places = [], []
    for offset, record in streams.read(boundary_log(run, source), ["0"]).writers["0"].accepted:
        place, at_ms = appended[topic, 0, offset]
        rows = [workload.typed(row) for part in record.parts for row in blocks("0", part) or ()]
        positions: dict[int, tuple[int, int, int]] = {
            run.former.number(position.topic, position.topic_id, position.partition): (
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
                appended[topic, 0, record.epoch][1],
                frozenset(
                    run.former.number(position.topic, position.topic_id, position.partition)
                    for position in record.positions
                    if position.idle
                ),
                bool(record.heirs),
            )
        )
        places.append(place)
    arrivals = _arrivals(run, source)
    input_topic = topic_of(source)
    deleted = {
        (run.former.number(of, "", at), offset)
        for of, at, offset in run.trimmed
        if of == input_topic
    }
    replayed = ingestion.replay(
        source,
        arrivals,
        taken,
        rules,
        sharding.begins(run, source),
        deleted,
        new_inputs.predecessors(arrivals),
    )
    replayed.wrong += ingestion.check_left_out(source, arrivals, taken)
    dead: dict[ingestion.Place, int] = {}
    letters = []
    for came_from, at, letter in dead_letters(run, source):
        appended_at = appended[at][0]
        dead[came_from] = min(dead.get(came_from, appended_at), appended_at)
        letters.append((came_from, _content(letter)))
    replayed.wrong += ingestion.check_order(source, replayed, dead, places)
    replayed.wrong += ingestion.check_letters(source, letters, _contents(run, source))
    return replayed


def source_streams(
    run: Run, replays: Mapping[str, ingestion.Replay]
) -> dict[str, workload.Buckets]:
    """Return the streams of the sources as they must be: from the input alone if only that
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


def check_conservation(
    run: Run, sources: dict[str, workload.Buckets], replays: Mapping[str, ingestion.Replay]
) -> list[str]:
    """Check that each record of an input partition is accounted for; good ones are found in the
    stream by their id.
    """
    if not run.is_complete or is_for_good(run):
        return []
    wrong: list[str] = []
    for source in run.options.sources:
        by_place: dict[ingestion.Place, int] = {}
        given: dict[int, bool] = {}
        begun = sharding.begins(run, source).positions
        firsts = {partition: first for partition, (first, _, _) in begun.items()}
        former = run.former.of(topic_of(source))
        places = {
            partition: new_inputs.places(
                [topic.data_count(partition) for topic in former],
                partition,
                firsts.get(partition, 0),
            )
            for partition in run.options.partitions_of(source)
        }
        for each in run.sent:
            if each.source == source:
                place = next(places[each.partition])
                number = each.row[1] if each.row else -len(given) - 1
                by_place[place] = number
                if place in replays[source].missing:
                    continue
                given[number] = each.row is not None and (
                    _is_whole(run) or place not in replays[source].late
                )
        dead = {by_place.get(place, _NOBODYS) for place, _, _ in dead_letters(run, source)}
        rows: list[Row] = [row for bucket in sources[source].values() for row in bucket]
        wrong += conservation.check(source, given, [row[1] for row in rows], dead)
    return wrong


def _contents(run: Run, source: str) -> dict[ingestion.Place, ingestion.Content]:
    """Return what each record of a source's input would be as a dead letter."""
    topic = topic_of(source)
    return {
        (partition, offset): ingestion.Content(
            topic,
            record.key,
            record.value,
            ingestion.senders(tuple(record.headers)),
            workload.reason_of(record.value),
        )
        for partition, offset, record in _input_records(run, source)
    }


def _content(letter: Record) -> ingestion.Content:
    """Return the content of a dead letter, and what it states of itself."""
    ours = headers_of(letter)
    return ingestion.Content(
        ours["anabranch-topic"].decode(),
        letter.key,
        letter.value,
        tuple(each for each in letter.headers if not each[0].startswith("anabranch-")),
        ours["anabranch-reason"].decode(),
    )


def dead_letters(
    run: Run, source: str
) -> Iterator[tuple[ingestion.Place, tuple[str, int, int], Record]]:
    """Yield each dead letter of a source: (partition, offset) of the input record, its own place,
    and its content.
    """
    topic = f"{topic_of(source)}.rejected"
    own, end = run.options.partitions_of(source), sharding.end_of(run, source)
    firsts = sharding.begins(run, source).positions
    ends = {} if end is None else {each.partition: each.offset_next for each in end.positions}
    for partition, offset, record in records(run, topic) if topic in run.log.topics else ():
        headers = headers_of(record)
        place = int(headers["anabranch-partition"]), int(headers["anabranch-offset"])
        upto = None if end is None else ends.get(place[0], 0)
        is_own = place[1] >= firsts.get(place[0], (0,))[0] and (upto is None or place[1] < upto)
        if place[0] in own and is_own:
            yield _which_life(run, source, place, record), (topic, partition, offset), record


def _which_life(run: Run, source: str, place: ingestion.Place, letter: Record) -> ingestion.Place:
    """Return the place of the record of which ``letter`` came, of the topics that the source has
    had the newest one with that content: a letter names an offset and no topic id.
    """
    topic = topic_of(source)
    partition, offset = place
    numbers = [partition + new_inputs.APART * life for life in range(len(run.former.of(topic)) + 1)]
    if len(numbers) == 1:
        return place
    contents, content = _contents(run, source), _content(letter)
    return next(
        ((number, offset) for number in numbers[::-1] if contents.get((number, offset)) == content),
        (numbers[-1], offset),
    )
