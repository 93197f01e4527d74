"""Judgement of a run: everything that it left behind, under every checker."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from anabranch.pipeline.waits import waits
from checkers import availability, corrected, streams
from simulation import (
    branches,
    failovers,
    halves,
    index_entries,
    live_topic,
    lost_logs,
    notes,
    operating,
    outvoting,
    pushing_back,
    sold_results,
    split_checks,
    state_gaps,
    upgrading,
    workload,
)
from simulation.conduct import (
    check_forks,
    check_requests,
    check_shares,
    check_trimmed,
    in_time_ms,
    stable_claims,
    turns,
)
from simulation.decoding import decoded_once
from simulation.happenings import has_happened
from simulation.intake import check_conservation, source_replay, source_streams
from simulation.log_states import log_states
from simulation.options import OUTPUT, OutputOptions
from simulation.raw_logs import Blocks, boundary_log, headers_of, records
from simulation.results import (
    check_ended,
    check_more_columns,
    check_rejected,
    check_upsert,
    delivered,
    user_rows,
)
from simulation.scenarios import SPLIT
from simulation.sharding import by_shard, check_ends
from simulation.silences import (
    is_for_good,
    only_silence,
    silent_by_themselves,
    speaks_in_time,
)
from simulation.world import Run

_HEARD_MS = 500
"""Time until the replicas of a stage have heard each other, in ms, without faults."""


def labelled(checker: str, lines: Iterable[str]) -> list[str]:
    """Return a checker's findings under its name: a planted bug counts as found only by the checker
    that is meant for it.
    """
    return [f"{checker}: {line}" for line in lines]


@dataclass
class _Logs:
    """The boundary logs of a run, read."""

    readings: dict[str, streams.Reading] = field(default_factory=dict)
    complete: dict[str, list[tuple[int, int]]] = field(default_factory=dict)
    """(time, bucket up to which it was stable) of each stream."""
    wrong_stands: bool = False
    """Something that a replica, or a seller, was made to compute wrong stands."""

    def read(
        self, run: Run, stream: str, answer: workload.Buckets, blocks: streams.ReadPart
    ) -> list[str]:
        """Read that of ``stream``; what is wrong with it. Of a stage whose function has changed
        ``answer`` is what its versions make together from here on.
        """
        entries, writers = boundary_log(run, stream), run.pipeline.stream_writers(stream)
        complete = self.complete.setdefault(stream, [])
        for at_ms, _, _, outcome, log_state in log_states(run, stream):
            run.history.reached(f"log state {outcome.reason}")
            complete.append((at_ms, log_state.upto))
        reading = self.readings[stream] = streams.read(entries, writers)
        versioned = {stage.name for stage in run.options.stages if stage.uses_column}
        if run.options.scenario == "upgraded":
            versioned = {stage.name for stage in run.options.stages}
        if stream in versioned:
            wrong, stands = upgrading.judge(run, stream, answer, blocks)
            answer.clear()
            answer.update(stands)
            return labelled("versions", wrong)
        if run.options.scenario == SPLIT and stream not in run.options.sources:
            unread = split_checks.unread(run, stream, reading, answer)
            return labelled("streams", streams.check(stream, reading, answer, blocks, unread))
        if stream == run.options.spoils:
            spoilt = sold_results.spoilt(run, reading, answer, blocks)
            self.wrong_stands = bool(spoilt)
            return labelled("streams", streams.check(stream, reading, answer, blocks, spoilt))
        if run.options.scenario != "outvoted" or stream in run.options.sources:
            return labelled("streams", streams.check(stream, reading, answer, blocks))
        votes = outvoting.judge(run, reading, answer, blocks)
        self.wrong_stands = votes.wrong_stands
        return labelled("outvoted", votes.wrong) + labelled(
            "streams", streams.check(stream, reading, answer, blocks, votes.spoilt)
        )


@decoded_once()
def judge(run: Run) -> list[str]:
    """Everything that is wrong with a run, in words, each with the checker that tells it."""
    run = by_shard(run)
    options = run.options
    wrong = list(run.unexpected)
    if not run.is_complete:
        wrong += labelled(
            "progress", [f"not done at {run.ended_ms} ms, healed at {options.heal_ms} ms"]
        )
    blocks: dict[str, streams.ReadPart] = {
        stream: Blocks(run, stream) for stream in run.pipeline.streams()
    }
    replays = {source: source_replay(run, source, blocks[source]) for source in options.sources}
    wrong += labelled(
        "ingestion", [text for replayed in replays.values() for text in replayed.wrong]
    )
    wrong += labelled("ends of shards", check_ends(run))
    sources = source_streams(run, replays)
    gaps = state_gaps.declared(run)
    answers = split_checks.answers(run, workload.answers(options, sources, gaps=gaps))
    logs = _Logs()
    for stream in run.pipeline.streams():
        wrong += logs.read(run, stream, answers[stream], blocks[stream])
        if logs.wrong_stands:
            break  # what is made of it is as wrong
    if logs.wrong_stands:
        run.history.reached("something wrong was first")
        return wrong
    readings, complete = logs.readings, logs.complete
    silent = None
    if only_silence(run) and speaks_in_time(run):
        # Once a branch runs, later buckets get the short wait.
        later_ms = min(
            (waits(run.pipeline, stage.name).next_ms for stage in options.stages), default=0
        )
        sources_ms = options.bucket_ms + options.out_of_orderness_ms
        targets = {fault.target for fault in run.faults}
        silent = {
            source for source in options.sources if source.partition(".")[0] in targets
        } | silent_by_themselves(run, later_ms - sources_ms)
    wrong += labelled(
        "tentative",
        branches.check(options, sources, readings, blocks, silent, gaps, branches.Shedding(run)),
    )
    wrong += labelled("gaps", state_gaps.check(run, complete))
    wrong += labelled("splits", split_checks.check(run, readings, blocks))
    wrong += labelled("forks", check_forks(run, readings))
    wrong += labelled("shares", check_shares(run))
    wrong += labelled("conservation", check_conservation(run, sources, replays))
    source_log = (entry for source in options.sources for _, entry in boundary_log(run, source))
    results = (
        headers_of(record)
        for output in options.outputs
        for _, _, record in records(run, output.name)
    )
    wrong += labelled("given up", operating.check_named(results, source_log, options))
    reads = {
        each.name: stage.reads for stage in options.stages for each in (stage, *halves.of(stage))
    }
    complete |= split_checks.read_together(run, complete)
    wrong += labelled(
        "states",
        availability.check_stable_claims(stable_claims(run), complete, reads, in_time_ms(run)),
    )
    wrong += labelled("trimming", check_trimmed(run))
    wrong += labelled("index", index_entries.check(run))
    wrong += labelled("unread logs", lost_logs.check(run))
    wrong += labelled("requests", check_requests(run))
    wrong += labelled("push back", pushing_back.check(run))
    wrong += labelled("standbys", failovers.check(run))
    if only_silence(run):
        # a batch under way ends first
        batch_ms = max((stage.batch_ms for stage in options.stages), default=0)
        wrong += labelled(
            "correction order",
            availability.check_correction_order(turns(run), _HEARD_MS + batch_ms),
        )
    if not run.is_complete:
        return wrong
    for output in options.outputs:
        wrong += _judge_output(
            run, output, answers[output.stream], readings[output.stream], blocks[output.stream]
        )
    if has_happened(run, readings):
        run.history.reached(f"scenario {options.scenario}")
    return wrong


def _judge_output(
    run: Run,
    output: OutputOptions,
    rows: workload.Buckets,
    reading: streams.Reading,
    blocks: streams.ReadPart,
) -> list[str]:
    """Judge the topics of ``output`` after the run. ``rows``: what its stream must be; ``reading``,
    ``blocks``: of that stream.
    """
    answer = user_rows(rows, output.partitions)
    if is_for_good(run):  # the rest is waited for
        closed = max(writer.closed for writer in reading.writers.values())
        answer = {bucket: each for bucket, each in answer.items() if bucket <= closed}
    wrong = labelled("corrected", corrected.check(delivered(run, output), answer))
    shown = {
        bucket: results
        for bucket, each in rows.items()
        if bucket in answer
        and (results := user_rows({0: notes.readable(each)}, output.partitions)[0])
    }
    wrong += labelled("corrected", check_rejected(run, output))
    wrong += labelled("corrected", check_ended(run, output))
    wrong += labelled("corrected", check_more_columns(run, output))
    if output.is_live and output.is_upsert:
        wrong += labelled("upsert", check_upsert(run, output, shown))
    elif output.is_live:
        offered = streams.offered(reading, blocks)
        found = notes.without_notices(
            live_topic.live_records(run, output),
            rows,
            {place: made for place, (_, made) in offered.items()},
        )
        offered = {
            place: (missing, [row for row in made if not notes.is_notice(row)])
            for place, (missing, made) in offered.items()
        }
        wrong += labelled("live", live_topic.check(run, output, found, shown, offered, reading))
        wrong += labelled("delays", live_topic.check_delays(run, output, found))
    return wrong if output.name == OUTPUT else [f"{line} (output {output.name})" for line in wrong]
