"""The live topic of a run: what it says, and how soon."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence

from anabranch.adapters.memory.partition import Record
from anabranch.ingestion.service import FIND_PARTITIONS_EVERY_MS
from anabranch.pipeline.waits import normal_ms, output_wait_ms, waits
from anabranch.protocol.edge.live_delivery import REC_DONE_WAIT_MS
from anabranch.protocol.limits import HOP_MS
from checkers import availability, streams
from demo import live_checker as live
from demo.live_checker import LiveRecord
from simulation import workload
from simulation.conduct import ENGINE_MS
from simulation.options import OutputOptions
from simulation.raw_logs import appended_ms, appends, boundary_log, headers_of, records
from simulation.results import pair, read_row, result
from simulation.silences import (
    is_ever_silent_for,
    is_for_good,
    only_silence,
    speaks_in_time,
)
from simulation.world import Run

_DELIVERY_MS = 1_000
"""Maximum time of delivery, in ms, without faults, from the boundary log until readers of the live
topic see a result.
"""
_AFTER_SILENCE_MS = 2_700
"""Time, in ms, by which results of a rush may be later than the bound where buckets take most of a
core and the input was silent before: batches are sized by rows (docs/limits.md).
"""


def live_records(run: Run, output: OutputOptions) -> list[LiveRecord]:
    """Return the records of ``output``'s live topic."""
    return [
        _live_record(partition, offset, record)
        for partition, offset, record in records(run, output.live_topic)
    ]


def _live_record(partition: int, offset: int, record: Record) -> LiveRecord:
    headers = headers_of(record)
    kind = headers["anabranch-kind"].decode()
    if kind in ("insertion", "tentative"):
        text, _, branch = headers["anabranch-id"].decode().partition("/")
        missing = headers.get("anabranch-missing", b"").decode()
        return LiveRecord(
            partition,
            offset,
            kind,
            pair(text),
            pair(branch) if branch else None,
            read_row(partition, record),
            missing=tuple(missing.split(",")) if missing else (),
        )
    fields = json.loads(record.value or b"")
    last = fields.get("last_id")
    return LiveRecord(
        partition,
        offset,
        kind,
        None if last is None else pair(last),
        stable=fields["stable"],
        shown=fields.get("shown", 0),
        sequence=fields.get("sequence", 0),
    )


def check(
    run: Run,
    output: OutputOptions,
    found: Sequence[LiveRecord],
    answer: dict[int, list[tuple[object, ...]]],
    offered: Mapping[tuple[int, tuple[int, int]], tuple[tuple[str, ...], list[streams.Row]]],
    reading: streams.Reading,
) -> list[str]:
    """Check what the live topic says. ``offered``: what branches made of the delivered stream;
    ``reading``: of its boundary log.
    """
    verdict = live.check(
        found,
        output.partitions,
        answer,
        is_complete=run.is_complete and not is_for_good(run),
        sheds=any(stage.sheds for stage in run.options.stages),
    )
    named = [
        each if each.row is None else each._replace(row=(*each.row, each.missing)) for each in found
    ]
    partitions = output.partitions
    verdict.wrong += live.check_shown(
        named,
        {
            place: [(*result(row, partitions), missing) for row in rows]
            for place, (missing, rows) in offered.items()
        },
    )
    reached = run.history.probes
    reached["live undo"] += verdict.undos
    reached["live rec_done"] += verdict.rec_dones
    reached["live failure"] += verdict.failures
    reached["live shown again"] += verdict.shown_again
    own = {stream.partition(".")[0] for stream in run.options.made_from(output.stream)}
    silences = sum(fault.target in own for fault in run.faults)
    late = sum(event.what == "forks" and bool(event.facts[1]) for event in run.history.events)
    wrong, beside = _check_ends(run, output, found, reading)
    if only_silence(run) and speaks_in_time(run) and verdict.failures > silences + late + beside:
        verdict.wrong.append(
            f"live: {verdict.failures} failures are told, inputs fell silent {silences} times, and"
            f" {late} times a stage was late (LD5)"
        )
    return [*verdict.wrong, *wrong, *_check_patience(run, output, verdict.failures, silences)]


_CORRECTED_MS = 2_000
"""Maximum time, in ms, from the end of a silence until all that was missing is delivered."""
_QUIET_MS = 1_500
"""Time for which no producer may be silent by itself, in ms: it may make a silence longer."""


def _check_patience(run: Run, output: OutputOptions, failures: int, silences: int) -> list[str]:
    """Check that silences that end before the output's own wait does leave no trace in its live
    topic (LH4), not even where its process is paused (LD8), unless it ends of that: the next one
    has no patience with what it finds (LH5).
    """
    own = {stream.partition(".")[0] for stream in run.options.made_from(output.stream)}
    process = f"delivery/{output.processes[0]}"
    lasted_ms = 0
    for fault in run.faults:
        if fault.kind in ("silent", "silent all"):
            lasted_ms += fault.duration_ms if fault.target in own else 0
        elif (fault.kind, fault.target) != ("pause", process):
            return []
    options = run.options
    is_judged = options.is_honest and not options.changes
    is_judged = is_judged and not is_ever_silent_for(run, _QUIET_MS)
    wait_ms = output_wait_ms(run.pipeline, output.name)
    if not silences or not is_judged or any(stage.sheds for stage in options.stages):
        return []
    first_life, events = f"{process}#0", run.history.events
    if any(
        (event.who, event.what) == (first_life, "end") and event.at_ms < run.ended_ms
        for event in events
    ):
        run.history.reached("patient output begins again")
        return []
    if lasted_ms + _QUIET_MS + _CORRECTED_MS > wait_ms:
        return []
    if any(event.what == "forks" for event in events):
        run.history.reached("patient output masks a failure")
    told = (
        f"live: {output.name} shows a failure, and inputs were silent for {lasted_ms} ms in all; it"
        f" waits for {wait_ms} ms (LH4)"
    )
    return [told] * failures


def _check_ends(
    run: Run, output: OutputOptions, found: Sequence[LiveRecord], reading: streams.Reading
) -> tuple[list[str], int]:
    """Check that the end of a failure is told when no branch runs, or was waited for (LD5), if no
    process counts as dead. Return what is wrong, and how many ends waited so: what such a branch
    shows after one of them is another failure.
    """
    if not only_silence(run):
        return [], 0
    times = appended_ms(run, run.pipeline.topic_names.boundaries(output.stream))
    wait_ms = run.options.rec_done_wait_ms or REC_DONE_WAIT_MS
    wrong: list[str] = []
    waited = 0
    for at_ms, corrected_ms in _ends(run, output, found):
        beside = [
            (replica, times[begun])
            for replica, writer in reading.writers.items()
            for begun, ended in writer.runs
            if times[begun] + _DELIVERY_MS < at_ms and (ended is None or at_ms < times[ended])
        ]
        if beside and at_ms >= corrected_ms + wait_ms:
            run.history.reached("live rec_done beside a branch")
            waited += 1
        else:
            wrong += [
                f"live: the end of a failure is told at {at_ms} ms, replica {replica} has had a"
                f" branch since {begun_ms} ms (LD5)"
                for replica, begun_ms in beside
            ]
    return wrong, waited


def _ends(run: Run, output: OutputOptions, found: Sequence[LiveRecord]) -> list[tuple[int, int]]:
    """(when the end of a failure is told, since when all was corrected that was shown)."""
    transactions: dict[int, list[LiveRecord]] = {}
    for record in found:
        at_ms = run.visible_ms[output.live_topic, record.partition, record.offset]
        transactions.setdefault(at_ms, []).append(record)
    ends, since_ms = [], None
    for at_ms, records_then in sorted(transactions.items()):
        if any(record.kind == live.REC_DONE for record in records_then):
            ends.append((at_ms, at_ms if since_ms is None else since_ms))
            since_ms = None
        elif not all(0 < r.shown <= r.stable for r in records_then if r.kind == live.BOUNDARY):
            since_ms = None
        elif since_ms is None:
            since_ms = at_ms
    return ends


def check_delays(run: Run, output: OutputOptions, found: Sequence[LiveRecord]) -> list[str]:
    """How soon it says it, where the bound holds."""
    own = run.options.made_from(output.stream)
    behind_ms = _behind_ms(run, own) if _has_bound(run, {output.stream, *own}, output) else None
    if behind_ms is None:
        return []
    run.history.reached("live bound judged")
    shown = sorted(
        (
            run.visible_ms[output.live_topic, record.partition, record.offset],
            max(record.stable, record.shown),
        )
        for record in found
        if record.kind == "boundary"
    )
    for number in range(1, len(shown)):
        shown[number] = (shown[number][0], max(shown[number][1], shown[number - 1][1]))
    width_ms = run.options.bucket_ms
    rows = {
        (workload.topic_of(each.source), each.row[1]): each.row
        for each in run.sent
        if each.row is not None
    }
    arrivals = [
        (
            _known_ms(run, event.at_ms, int(event.facts[1] or 0)),
            workload.bucket_of(
                min(
                    rows[str(event.facts[0]), int(event.facts[3])][0],
                    workload.BASE_MS + event.at_ms - behind_ms,  # SP2, also where it is ahead
                ),
                width_ms,
            ),
        )
        for event in run.history.events
        if event.who == "producer"
        and event.facts[3] is not None
        and str(event.facts[0]).removeprefix("in.") in own
    ]
    signs_ms = availability.signs(arrivals)
    stages = 1 + sum(stage.name in own for stage in run.options.stages)
    # A bucket waits for the batch that runs when it comes, for the rest after it, and for its own.
    engines_ms = stages * ENGINE_MS + sum(
        2 * (stage.batch_ms + stage.cold_ms) + stage.pace_ms
        for stage in run.options.stages
        if stage.name in {output.stream, *own}
    )
    bound_ms = (
        normal_ms(run.pipeline, output.stream)
        + run.pipeline.max_delay_of(output.name)
        + engines_ms
        + behind_ms
        + (_AFTER_SILENCE_MS if _rushes_after_silence(run) else 0)
    )
    until_ms = run.ended_ms if is_for_good(run) else run.options.heal_ms
    wrong = availability.check(signs_ms, shown, bound_ms, until_ms)
    wait = waits(run.pipeline, output.stream)
    # Equal waits: there is but the bound. The batches of a branch that sheds take a part of it.
    sheds = any(stage.sheds for stage in run.options.stages)
    if only_silence(run) and wait.next_ms < wait.first_ms and not sheds:
        later_ms = wait.next_ms + (stages - 1) * HOP_MS + engines_ms + behind_ms
        failing = sorted(
            (run.visible_ms[output.live_topic, record.partition, record.offset], record.shown > 0)
            for record in found
            if record.kind == "boundary"
        )
        anew_ms = _goes_on_anew_ms(run, {output.stream, *own})
        wrong += availability.check_later(signs_ms, shown, failing, later_ms, until_ms, anew_ms)
    return wrong


def _rushes_after_silence(run: Run) -> bool:
    """Return whether buckets of a rush take most of a core, and an input was silent before."""
    return any(stage.bucket_percent for stage in run.options.stages) and any(
        fault.kind == "silent" for fault in run.faults
    )


def _goes_on_anew_ms(run: Run, streams: Collection[str]) -> list[int]:
    """When a process of a stage of ``streams`` began a branch that had ended one before."""
    found, before = [], set[str]()
    for event in run.history.events:
        stage = event.who.removeprefix("processing/").partition(".")[0]
        if event.what == "forks" and stage in streams:
            if event.who in before:
                found.append(event.at_ms)
            before.add(event.who)
    return found


def _known_ms(run: Run, at_ms: int, partition: int) -> int:
    """When a source has a record at the latest that came at ``at_ms``: it looks for partitions that
    come later now and then.
    """
    grown_ms = run.options.grown_ms
    if grown_ms is None or partition < run.options.source_partitions - 1:
        return at_ms
    return max(at_ms, grown_ms + FIND_PARTITIONS_EVERY_MS)


def _behind_ms(run: Run, sources: Collection[str]) -> int | None:
    """Return by how much one of ``sources`` usually lags behind its records when it closes a
    bucket, before anything is idle; None if one has closed none. An idle source continues at its
    former pace (SP2), so the timers of its buckets lag as much.
    """
    begun_ms = min(
        (fault.at_ms for fault in run.faults if fault.kind.startswith("silent")),
        default=run.ended_ms,
    )
    appended = appends(run)
    width_ms = run.options.bucket_ms
    found = list[int]()
    for source in run.options.sources:
        if source not in sources:
            continue
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


def _has_bound(run: Run, own: Collection[str], output: OutputOptions) -> bool:
    """Only inputs fail, or one replica of a stage that has others: nothing that the bound
    does not cover (docs/concepts.md). What befalls processes that ``output`` is not made by does
    not count. ``own``: its stream, and those that this is made from.
    """
    mine = [stage for stage in run.options.stages if stage.name in own]
    processes = {f"ingestion/{source}" for source in run.options.sources if source in own}
    processes |= {f"delivery/{output.processes[0]}"}
    if (
        any(stage.policy != "process" for stage in mine)
        or run.options.inherited_parts_max is not None
        or not run.options.is_honest
    ):
        return False
    if len([stage for stage in mine if stage.sheds]) > 1:
        return False  # the second one begins to measure its rows when the first shows many at once
    if run.options.input_parts_max is not None or run.options.kept_max is not None:
        return False
    struck: set[str] = set()
    for fault in run.faults:
        if fault.kind.startswith(("silent", "index")) or fault.target.startswith(
            "consistency_manager"
        ):
            continue
        if fault.target.startswith("processing/"):
            struck.add(fault.target)
        elif fault.target in processes or not fault.target.startswith(("ingestion/", "delivery/")):
            return False
    for stage in mine:
        of_stage = [target for target in struck if target.split("/")[1].split(".")[0] == stage.name]
        if len(of_stage) > (1 if len(run.pipeline.stream_writers(stage.name)) > 1 else 0):
            return False
    return True
