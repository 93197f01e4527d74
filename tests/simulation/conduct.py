"""Conduct of replicas and readers that the results do not show: forks, corrections, what they
reported, and what was trimmed.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from operator import itemgetter
from typing import Final

from anabranch.codec import control_records
from anabranch.consistency_manager.control import kept_buckets
from anabranch.pipeline.control_topics import control_topics
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.waits import waits
from anabranch.protocol.control.failure_detector import REPLICA_SERVICE, STANDBY_SERVICE
from anabranch.protocol.control.records import ControlRecord, Heartbeat, TrimPoint
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.limits import HEARTBEAT_SEND_MS, HOP_MS
from anabranch.protocol.stage.kept_rows import KEPT_ALL
from anabranch.protocol.stage.load_control import target_of
from anabranch.protocol.stage.replica import BRANCH_RETRY_MAX_MS, BRANCH_RETRY_MS
from checkers import streams, trimming
from simulation import halves, hurrying, split_checks, workload
from simulation.faults import EVERYTHING
from simulation.log_states import log_states
from simulation.options import Options
from simulation.raw_logs import appended_ms, boundary_log, with_trimmed
from simulation.scenarios import OVERLOADS
from simulation.silences import (
    only_silence,
    speaks_in_time,
)
from simulation.world import Run

_TRIED_AGAIN_MS = 1_000
"""From the end of the pause after a branch that died to the next fork."""


ENGINE_MS = 500
"""Maximum time per stage, in ms, without faults, of a batch of the small engine, its blocks and its
record, and of a transaction of delivery.
"""


def check_forks(run: Run, readings: Mapping[str, streams.Reading]) -> list[str]:
    """When and where replicas forked that should not have."""
    wrong: list[str] = []
    if _fails_only_input_or_branch(run):
        tried_again = {  # where the branch died of what may pass, the next one begins there, too
            _stage_of(who)
            for _, who, what, facts in run.history.events
            if what == "branch fails" and facts[1]
        }
        wrong += [
            line
            for stream, reading in readings.items()
            if stream not in tried_again
            for line in streams.check_branches(stream, reading)
        ]
        wrong += _forks_at_one_hole(run)
        wrong += _tried_no_more(run, readings)
    if not run.faults and speaks_in_time(run):
        first, last, times = run.options.rush
        behind_it = {
            stage.name for stage in run.options.stages if run.options.reads_what_is_shed(stage)
        }
        rush_ms = first * run.options.bucket_ms if last and times > 1 else math.inf
        wrong += [
            f"{who} forks at {at_ms} ms, and nothing fails"
            for at_ms, who, what, facts in run.history.events
            if what == "forks"
            and not (at_ms >= rush_ms and (facts[1] or _stage_of(who) in behind_it))
        ]
    wrong += _forks_for_nothing(run)
    wrong += _ended_too_early(run)
    if only_silence(run):
        forks = [
            (at_ms, *facts) for at_ms, _, what, facts in run.history.events if what == "forks again"
        ]
        wrong += [
            f"{stage}.{replica}: forks again at {at_ms} ms, {still_ms} ms after it went on last"
            " (rule 14)"
            for at_ms, stage, replica, still_ms, wait_ms in forks
            if int(still_ms or 0) < int(wait_ms or 0)
        ]
    return wrong


def _stage_of(process: str) -> str:
    """Return the stage of ``process``; empty if it runs none."""
    service, _, replica = process.partition("/")
    return replica.partition(".")[0] if service == "processing" else ""


_SETTLED_MS = 4_000
"""Time from the beginning of a rush until the share that a branch keeps is judged, in ms."""
_SHARE_BUCKETS_MIN = 4
"""Number of buckets within a rush from which on their share is judged."""


def check_shares(run: Run) -> list[str]:
    """Check that the branch of an overloaded stage keeps at least half of the rows that its process
    could process besides what its buckets take, if it had the processor for itself (OV3). A
    batch takes no longer than a target, and where batches keep a pace the processor is idle from
    then on. Only where nothing fails, and rows are left out one by one: of few keys a share is not
    that of their rows.
    """
    options = run.options
    (begin, end, times), width_ms = options.rush, options.bucket_ms
    is_keyed = any(stage.shed_key for stage in options.stages[:1])
    if run.faults or options.scenario not in OVERLOADS or times == 1 or is_keyed:
        return []
    first = workload.first_bucket(options) + begin
    last = workload.first_bucket(options) + end - 1
    rows = sum(
        each.row is not None and first <= workload.bucket_of(each.row[0], width_ms) <= last
        for each in run.sent
    )
    stage = options.stages[0]
    wait = waits(run.pipeline, stage.name)
    target_ms = target_of(wait.first_ms, wait.next_ms)
    usable_ms = (end - begin) * width_ms * target_ms // max(target_ms, stage.pace_ms)
    usable_ms = max(0, usable_ms - (end - begin) * width_ms * stage.bucket_percent // 100)
    least = min(KEPT_ALL, KEPT_ALL * usable_ms // (rows * stage.row_ms)) // 2
    settled = first + _SETTLED_MS // width_ms
    kept: dict[str, list[int]] = {}
    for event in run.history.events:
        if event.what == "keeps" and event.facts[0] == stage.name:
            begun, ended, share = (int(each or 0) for each in event.facts[3:6])
            buckets = range(max(settled, begun), min(last, ended) + 1)
            kept.setdefault(event.who, []).extend([share] * len(buckets))
    return [
        f"{who}: keeps {sum(shares) // len(shares)} per mille of a rush, at least {least} fit"
        for who, shares in kept.items()
        if len(shares) >= _SHARE_BUCKETS_MIN and sum(shares) // len(shares) < least
    ]


_TRIMS_WITHIN_MS: Final = 1_000
"""After all readers of a stream have said to hold a bucket: the manager may have begun meanwhile,
and reads what they said first.
"""

_HEARD_MS: Final = 2_000
"""Time within which a manager that no fault strikes has read what readers said, and what it wrote
after that stands in the log.
"""


def control_entries(
    run: Run, pipeline: Pipeline, *, with_repeated: bool = True
) -> list[tuple[int, ControlRecord]]:
    """Return (time of the append, entry) of all that was said in the control topics of
    ``pipeline``, trimmed entries included, by those who may say it; by time. ``with_repeated``:
    also what a fault has said again.
    """
    found = []
    for topic, speaker in control_topics(pipeline).items():
        times, at_ms = appended_ms(run, topic), 0
        for _, offset, record in with_trimmed(run, topic):
            at_ms = times.get(offset, at_ms)
            if offset not in times and not with_repeated:
                continue
            with contextlib.suppress(RemoteProtocolError):
                entry = control_records.decode(record.value)
                if speaker.may_say(entry):
                    found.append((at_ms, entry))
    return sorted(found, key=itemgetter(0))


def check_trimmed(run: Run) -> list[str]:
    """Compare what readers claimed to hold with what was trimmed."""
    found = control_entries(run, run.pipeline, with_repeated=False)
    lives = {"", *run.log.topic_ids.values()}
    by_log = {
        f"{REPLICA_SERVICE} {stage}.0": list(_claims_of_the_log(run, stage))
        for stage in run.pipeline.traded_stages()
    }
    claims = [
        trimming.SyncedClaim(at_ms, reader, e.epoch, e.checkpoint_bucket, int(e.life in lives))
        for at_ms, e in found
        if isinstance(e, Heartbeat)
        and (reader := f"{e.service} {e.name}.{e.replica}") not in by_log
    ]
    claims = sorted(
        itertools.chain(claims, *by_log.values(), _lowered_claims(run)), key=itemgetter(0)
    )
    points = [
        (at_ms, e.stream, e.bucket)
        for at_ms, e in found
        if isinstance(e, TrimPoint) and e.life in lives
    ]
    readers = _readers(run.options)
    counts = split_checks.counting(run)
    is_struck = any(
        fault.target.startswith(("consistency_manager", EVERYTHING)) for fault in run.faults
    )
    heard_ms = None if is_struck else _HEARD_MS
    primaries = _primaries(run.options)
    wrong = trimming.check(claims, points, readers, hurrying.READER_MS, heard_ms, counts, primaries)
    wrong += split_checks.not_kept(run, claims)
    last_ms = max((at_ms for at_ms, _ in found), default=0)
    until_ms = last_ms - run.options.trim_every_ms - _TRIMS_WITHIN_MS
    kept = kept_buckets(run.pipeline)
    # After a write in vain the manager tries none for that long.
    writes_ms = run.options.heal_ms + (HEARTBEAT_SEND_MS if is_struck else 0)
    if manager_runs_since(run) <= until_ms and run.is_complete and until_ms >= writes_ms:
        kept |= dict.fromkeys(split_checks.not_read(run), 0)
        # For a manager that begins, all heartbeats in the topic arrive then.
        since_ms = manager_runs_since(run)
        spoke_ms = {claim.reader: max(claim.at_ms, since_ms) for claim in claims}
        gone_ms = split_checks.gone_since_ms(run, spoke_ms)
        own = {
            stream: [each for each in those if gone_ms.get(each, math.inf) > until_ms]
            for stream, those in readers.items()
            if those and stream not in kept
        }
        wrong += trimming.check_goes_on(claims, points, own, until_ms, primaries)
    return wrong


def _lowered_claims(run: Run) -> Iterator[trimming.SyncedClaim]:
    """Yield each claim that a standby has lowered, when the log had it (TI11)."""
    for at_ms, _, what, facts in run.history.events:
        if what == "claims less":
            stage, process, bucket, epoch = facts
            reader = f"{STANDBY_SERVICE} {stage}.{process}"
            yield trimming.SyncedClaim(
                at_ms, reader, int(epoch or 0), int(bucket or 0), 1, is_lowered=True
            )


def _claims_of_the_log(run: Run, stage: str) -> Iterator[trimming.SyncedClaim]:
    """Yield what the log of a stage that partners may run says of the input that the stage still
    needs: two horizons before the last bucket that it has closed (TM9). What its heartbeats say
    counts for nothing.
    """
    times = appended_ms(run, run.pipeline.topic_names.boundaries(stage))
    horizon = next(each for each in run.options.stages if each.name == stage).horizon_buckets
    (writer,) = streams.read(boundary_log(run, stage), ["0"]).writers.values()
    at_ms = closed = 0
    for offset, record in writer.accepted:
        at_ms, closed = times.get(offset, at_ms), max(closed, record.closed)
        reader = f"{REPLICA_SERVICE} {stage}.0"
        yield trimming.SyncedClaim(at_ms, reader, 0, max(0, closed - 2 * horizon), 1)


def manager_runs_since(run: Run) -> float:
    """Return since when a consistency manager runs that does so at the end, when all processes are
    ended; infinity: none does.
    """
    alive: dict[str, float] = {}
    for at_ms, who, what, _ in run.history.events:
        if who.startswith("consistency_manager/"):
            if what == "start":
                alive[who] = at_ms
            elif what == "end" and at_ms < run.ended_ms:
                alive.pop(who, None)
    return min(alive.values(), default=math.inf)


def _readers(options: Options) -> dict[str, list[str]]:
    """Return the readers of each stream, as their heartbeats name them. An output whose processes
    change is not among them.
    """
    found: dict[str, list[str]] = {}
    halved = halves.names(options)
    for stage in (each for shard in options.stages for each in (shard, *halves.of(shard))):
        numbers = range(stage.replicas)
        mine = [f"{REPLICA_SERVICE} {stage.name}.{number}" for number in numbers]
        if stage.ha == "passive":
            mine = mine[:1] + [f"{STANDBY_SERVICE} {stage.name}.{number}" for number in numbers]
        for stream in (each for name in stage.reads for each in (name, *halved.get(name, ()))):
            found.setdefault(stream, []).extend(mine)
    for output in options.outputs:
        mine = [f"delivery {process}.0" for process in output.processes if len(output.numbers) == 1]
        found.setdefault(output.stream, []).extend(mine)
    return found


def _primaries(options: Options) -> dict[str, str]:
    """Return the primary of each reader that stands by, as their heartbeats name them."""
    return {
        f"{STANDBY_SERVICE} {stage.name}.{number}": f"{REPLICA_SERVICE} {stage.name}.0"
        for stage in options.stages
        if stage.ha == "passive"
        for number in range(stage.replicas)
    }


def stable_claims(run: Run) -> Iterator[tuple[int, str, int]]:
    """(time, stage, bucket that it has run up to) of every heartbeat that said so, of those
    whose link was whole: a cut-off replica cannot know, nor can anybody while the broker is away.
    """
    for at_ms, _, what, facts in run.history.events:
        if what == "says stable":
            stage, replica, bucket = facts
            target = f"processing/{stage}.{replica}"
            if not (
                is_cut(run, target, at_ms) or _is_befallen(run, ("broker away",), EVERYTHING, at_ms)
            ):
                yield at_ms, str(stage), int(bucket or 0)


def is_cut(run: Run, target: str, at_ms: int) -> bool:
    """Whether what ``target`` reads may have come late, a while before ``at_ms``."""
    return _is_befallen(run, ("cut", "cut_to", "cut_from", "slow"), target, at_ms)


def _is_befallen(run: Run, kinds: tuple[str, ...], target: str, at_ms: int) -> bool:
    return any(
        fault.kind in kinds
        and fault.target == target
        and fault.at_ms <= at_ms <= fault.at_ms + fault.duration_ms + in_time_ms(run)
        for fault in run.faults
    )


def in_time_ms(run: Run) -> int:
    """Return the longest wait of a stage, plus the hop after which it says that it is behind, and
    the engine's time to see it.
    """
    return (
        max((waits(run.pipeline, stage.name).first_ms for stage in run.options.stages), default=0)
        + HOP_MS
        + ENGINE_MS
    )


def turns(run: Run) -> Iterator[tuple[int, str, str, bool]]:
    """(time, stage, replica, whether it corrects from then on). Who ends does not."""
    for at_ms, who, what, facts in run.history.events:
        if what == "corrects":
            stage, replica, does = facts
            yield at_ms, str(stage), str(replica), bool(does)
        elif what == "end" and who.startswith("processing/"):
            stage, replica, *_ = who.removeprefix("processing/").split("#")[0].split(".")
            yield at_ms, stage, replica, False


def check_requests(run: Run) -> list[str]:
    """Nobody asks for blocks to be made again that a peer of their writer has: where blocks are
    deleted of one writer, only those are that another one has, too.
    """
    requests = run.history.probes["asks for blocks"]
    if requests and run.options.scenario == "blocks deleted":
        return [f"{requests} times somebody asks for blocks that another replica has"]
    return []


def _fails_only_input_or_branch(run: Run) -> bool:
    return all(fault.kind.startswith(("silent", "branch fails")) for fault in run.faults)


def _forks_for_nothing(run: Run) -> list[str]:
    """Check that a replica forks only before a bucket of which an input has something (AV5)."""
    seen: dict[str, list[tuple[int, int]]] = {}
    wrong = []
    for at_ms, who, what, facts in run.history.events:
        if what != "forks" or facts[0] is None:
            continue
        bucket = int(facts[0]) + 1
        for stream in run.pipeline.inputs(str(facts[2]).rpartition(".")[0]):
            if stream not in seen:
                states = log_states(run, stream)
                seen[stream] = [(since_ms, state.seen_upto) for since_ms, *_, state in states]
            if any(since_ms <= at_ms and upto >= bucket for since_ms, upto in seen[stream]):
                break
        else:
            wrong.append(
                f"{who} forks before bucket {bucket} at {at_ms} ms, of which nobody has any"
            )
    return wrong


_READ_WITHIN_MS = 1_000
"""Time within which a replica whose link is whole has read what its inputs' logs say, in ms."""


def _read_since_ms(run: Run, stream: str) -> int | None:
    """Return the time at which every shard above the half ``stream`` had ended, so that readers
    take rows from it; 0 if it is no half. None if they never do.
    """
    stage = run.pipeline.stages.get(stream)
    if stage is None or not stage.parent:
        return 0
    above = _read_since_ms(run, stage.parent)
    ends = (at_ms for at_ms, *_, state in log_states(run, stage.parent) if state.heirs)
    ended = next(ends, None)
    return None if above is None or ended is None else max(above, ended)


def _ended_too_early(run: Run) -> list[str]:
    """Check that no replica takes itself for caught up, and ends its branch, while a branch of an
    input runs that is not corrected (US4).
    """
    awaited: dict[str, list[tuple[int, bool]]] = {}
    read_since: dict[str, int | None] = {}
    wrong = []
    for at_ms, who, what, facts in run.history.events:
        target = who.partition("#")[0]
        if what != "has caught up" or is_cut(run, target, at_ms):
            continue
        run.history.reached("has caught up")
        for stream in run.pipeline.inputs(str(facts[0]).rpartition(".")[0]):
            if stream not in awaited:
                read_since[stream] = _read_since_ms(run, stream)
                awaited[stream] = [
                    (since_ms, any(map(state.awaits_correction, state.writers)))
                    for since_ms, *_, state in log_states(run, stream)
                ]
            read_ms = read_since[stream]
            if read_ms is None or read_ms > at_ms - _READ_WITHIN_MS:
                continue
            known = [each for each in awaited[stream] if each[0] <= at_ms]
            before = [does for since_ms, does in known if since_ms <= at_ms - _READ_WITHIN_MS]
            since = [does for since_ms, does in known if since_ms > at_ms - _READ_WITHIN_MS]
            if before and all((before[-1], *since)):
                wrong.append(
                    f"{who}: its branch ends at {at_ms} ms, and one of {stream} is not corrected"
                )
    return wrong


def _forks_at_one_hole(run: Run) -> list[str]:
    """No process forks twice at one place: neither since its branch was dropped too early, nor
    after its branch failed there (RE5, RE7), or on its way, if that was due to an overload (OV5).

    But where the branch died of what may pass.
    """
    latest: dict[tuple[str, str], int] = {}
    ran: dict[str, int] = {}
    """Last bucket of the branch of each process that forked because it was overloaded."""
    wrong = []
    for event in run.history.events:
        if event.what == "keeps" and event.who in ran:
            ran[event.who] = int(event.facts[4] or 0)
        elif event.what == "branch fails" and event.who in ran and not event.facts[1]:
            run.history.reached("branch that sheds fails")
            latest |= {
                each: max(at, ran[each[0]]) for each, at in latest.items() if each[0] == event.who
            }
        if event.what == "forks":
            bucket, replica = int(event.facts[0] or 0), (event.who, str(event.facts[2]))
            ran.pop(event.who, None)
            if event.facts[1]:
                ran[event.who] = bucket
            if bucket <= latest.get(replica, -1):
                wrong.append(
                    f"{event.who} forks at bucket {bucket} at {event.at_ms} ms, and had a branch up"
                    f" to {latest[replica]} before"
                )
            latest[replica] = bucket
        elif event.what == "branch fails" and event.facts[1]:
            latest = {each: at for each, at in latest.items() if each[0] != event.who}
    return wrong


def _tried_no_more(run: Run, readings: Mapping[str, streams.Reading]) -> list[str]:
    """Check that a replica whose branch failed from a temporary cause forks again after a pause, or
    has advanced without (RE7).
    """
    if run.options.inherited_parts_max is not None:  # another branch may have no room to begin
        return []
    wrong: list[str] = []
    forks: dict[str, list[tuple[int, int]]] = {}
    for at_ms, who, what, facts in run.history.events:
        if what == "forks":
            forks.setdefault(who, []).append((at_ms, int(facts[0] or 0)))
    failures = Counter[str]()
    for at_ms, who, what, facts in run.history.events:
        if what != "branch fails" or not facts[1]:
            continue
        pause_ms = min(BRANCH_RETRY_MAX_MS, BRANCH_RETRY_MS << failures[who])
        failures[who] += 1
        stage, replica = who.removeprefix("processing/").split("#")[0].split(".")
        hole = max(bucket for forked_ms, bucket in forks[who] if forked_ms <= at_ms)
        times = appended_ms(run, run.pipeline.topic_names.boundaries(stage))
        goes_on = [forked_ms for forked_ms, _ in forks[who]] + [
            times.get(offset, 0)
            for offset, record in readings[stage].writers[replica].accepted
            if record.closed > hole
        ]
        due_ms = at_ms + pause_ms + _TRIED_AGAIN_MS
        if due_ms <= run.ended_ms and not any(at_ms < each <= due_ms for each in goes_on):
            wrong.append(
                f"{who}: its branch died of what may pass at {at_ms} ms, and by {due_ms} ms there"
                f" is no other one, nor is it past bucket {hole} (RE7)"
            )
    return wrong
