"""One run: the services of a pipeline on a simulated network, the faults of a seed, first
with faults and then, healed, to the end.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Final, cast

from anabranch.adapters.memory.clock import SeededEntropy
from anabranch.adapters.memory.index import LocalIndex
from anabranch.adapters.memory.log import LocalEventLog
from anabranch.adapters.memory.partition import Record
from anabranch.codec import boundary_records
from anabranch.consistency_manager import service as consistency_manager
from anabranch.consistency_manager.index_image import REWRITE_MS
from anabranch.delivery import service as delivery
from anabranch.ingestion import service as ingestion
from anabranch.pipeline.model import Pipeline
from anabranch.ports import TopicPartition
from anabranch.process.frame import Service, ServiceContext
from anabranch.process.metrics import Registry, ServiceMetrics
from anabranch.process.settings import ServiceSettings
from anabranch.processing import rehearsing
from anabranch.protocol.control.alarm_conditions import OVERLOAD_LASTS
from anabranch.protocol.control.consistency import (
    GAP,
    LOG_UNREAD,
    MISMATCH,
    REJECTED,
    ROWS_REJECTED,
    SPLIT_DIFFERS,
)
from anabranch.protocol.control.records import INPUT_MISSING
from anabranch.protocol.errors import AnabranchError, Fenced, Outvoted, RemoteProtocolError
from anabranch.protocol.log.records import (
    BoundaryKind,
    BoundaryRecord,
    EpochStarted,
    LogSnapshot,
)
from anabranch.protocol.log.timeline import epoch_of, number_of
from simulation import (
    cleaning,
    earlier_lives,
    ends,
    halves,
    leaders_clocks,
    new_column,
    operating,
    probes,
    scaled,
    second_lives,
    workload,
)
from simulation import faults as fault_plans
from simulation.decoding import decoded_once
from simulation.disk import Machine, SimulatedDisk
from simulation.ends import BEGINS_MS, Life
from simulation.engine import SimulatedEngine
from simulation.faults import LOG_LOST, MANAGER, Fault
from simulation.history import History
from simulation.hurrying import HALF_MS, hurried
from simulation.moving import Moving, replica_of, same
from simulation.network import TRANSACTION_TIMEOUT_MS, Link, Network, Port, SimulatedLog, Strike
from simulation.new_inputs import FormerTopics
from simulation.nodes import SimulatedNode
from simulation.options import Options, OutputOptions
from simulation.pipeline_file import create_topics, upgraded
from simulation.producing import Producers
from simulation.resharding import Resharding
from simulation.scaled_moves import ScaledMoving
from simulation.scenarios import SCALED, SPLIT
from simulation.scheduler import Process, Scheduler
from simulation.side_ports import SimulatedClock, SimulatedIndex, WorldClock
from simulation.split_moving import SplitMoving
from simulation.stage_replica import NodeDisks, SimulatedReplica
from simulation.stores import CheckpointStore
from simulation.striking import ProcessFaults, Runs
from simulation.tampering import Tampering
from simulation.threads import SimulatedThreads

_OVERTAKING: Final = (
    "zombie",
    fault_plans.COPY_ZOMBIE,
    fault_plans.HELD_START,
    "double",
    "pause",
    "twins",
    "race",
    "fork zombie",
    "power",
    "cut",
    "cut_to",
    "cut_from",
    "slow",
)
"""Faults after which a process that was replaced may still write on the disk."""
_JUDGED_ELSEWHERE: Final = (
    "partner_wrong",  # sold_results
    "replica_ended",  # ends
    "results_given_up",  # state_gaps
    "blocks_gone",  # where nobody may make them again, or could: its reader waits for a peer
)
"""Errors of processing that are due, or that a checker judges by what follows from them."""
_OF_SERVERS: Final = ("index lost", "index cut", fault_plans.STORE_AWAY, fault_plans.NO_LEADER)
_DELETING: Final = ("input deleted", "input recreated", "made anew", fault_plans.CLEANED)
_LOSING_INPUT: Final = ("input deleted", "input recreated")
"""Faults after which an operator gives up what is missing."""
RECOVERY_MS: Final = 90_000
"""Virtual time after healing in which everything must be done: several of the longest
time-outs one after the other.
"""
_LOOK_MS: Final = 200
_RESTART_MS: Final = 500
_SAY_AGAIN_MS: Final = 300
_IDS_COMPARED_MS: Final = 2_500
"""Within this time a source compares the ids of its topics, where nothing else befalls it."""
_INDEX_COPY_MS: Final = (3_000, 100)
"""Ages of the copies with which every other index that is lost comes back, in ms."""
INDEX_RESTORED_MS: Final = REWRITE_MS + 1_000
"""Virtual time within which the index is whole again, from the start of a manager or the end of the
last fault on: the manager may make a pause before it tries again.
"""
_SETTLE_MS: Final = 1_500
"""Virtual time after the end of the work, for what is still under way."""

BUILDERS: Final[dict[str, Callable[[ServiceSettings, ServiceContext], Service]]] = {
    "ingestion": ingestion.build,
    "delivery": delivery.build,
    "consistency_manager": consistency_manager.build,
}


@dataclass(frozen=True)
class Run:
    """Remains of a run, for the checkers."""

    options: Options
    faults: list[Fault]
    pipeline: Pipeline
    managed: Pipeline
    """File of the last consistency manager. Where shards change their number it may be an earlier
    one.
    """
    sent: list[workload.Sent]
    log: LocalEventLog
    index: LocalIndex
    history: History
    visible_ms: dict[tuple[str, int, int], int]
    """When committed readers could see each record of a transaction."""
    trimmed: dict[tuple[str, int, int], Record]
    """Blocks that were deleted, by (topic, partition, offset): the checkers read them still."""
    displaced_by: dict[tuple[str, int, int], int]
    """Error of the timestamp of a record of an input, by (topic, partition, offset)."""
    former: FormerTopics
    """Inputs that were deleted and created again."""
    unexpected: list[str]
    """Errors that were seen during the run, each with the checker that reports it."""
    is_complete: bool
    ended_ms: int
    steps: int


class _Logger:
    """Log lines become part of the history, as probes."""

    def __init__(self, world: World, process: Process) -> None:
        self._world, self._process = world, process

    def _take(self, event: str, **_facts: object) -> None:
        self._world.history.reached(f"log {event}")

    def bind(self, **_facts: object) -> _Logger:
        """Return a logger for a part of the process."""
        return self

    debug = _take
    info = _take
    warning = _take

    def error(self, event: str, **facts: object) -> None:
        """Note an alarm as wrong, unless it is due or a checker judges what follows from it."""
        self._world.history.reached(f"log {event}")
        kind = str(facts.get("kind", ""))
        if self._process in self._world.network.outliving or event in _JUDGED_ELSEWHERE:
            return
        if event == "seller_wrong" and self._world.options.spoils:
            return
        if self._is_due(kind):
            self._world.history.reached(f"alarm {kind}")
            return
        self._world.unexpected.append(f"alarms: {self._process.name}: {event} {facts}")

    def _is_due(self, kind: str) -> bool:
        """Whether an alarm of this kind follows from the options or faults of the run."""
        options = self._world.options
        due = {
            GAP: any(stage.ha == "amnesia" for stage in options.stages),
            INPUT_MISSING: options.scenario in ("input gone", "input recreated"),
            MISMATCH: options.scenario == "outvoted",
            LOG_UNREAD: any(fault.kind == LOG_LOST for fault in self._world.faults),
            OVERLOAD_LASTS: options.may_overload_last,
            REJECTED: options.output_bytes_max is not None,
            ROWS_REJECTED: options.has_notes,
            SPLIT_DIFFERS: True,  # split_checks
            "replica_fenced": options.scenario == "outvoted",
        }
        return due.get(kind, False)


class World:
    """Builds a run and runs it. Use once."""

    MOVING: ClassVar[type[Moving]] = Moving

    def __init__(self, options: Options, faults: list[Fault] | None = None) -> None:
        """``faults``: instead of those of the seed."""
        self.options = options
        self.history = History()
        self.unexpected: list[str] = []
        self.scheduler = Scheduler(random.Random(f"{options.seed}/schedule"))
        self.scheduler.waits_with_locks = self._waits_with_locks
        clock = WorldClock(self.scheduler)
        self.log = LocalEventLog(clock)
        self.index = LocalIndex(clock)
        self._index_copy: LocalIndex | None = None
        """Content of the index after its next loss; None: nothing."""
        self.network = Network(
            self.scheduler,
            self.log,
            self.index,
            self.history,
            random.Random(f"{options.seed}/network"),
        )
        self.network.appended = self._appended
        self.sent = workload.records(options)
        self.keys = keys(options)
        self.faults = fault_plans.draw(options, self.keys) if faults is None else faults
        self.runs = {key: Runs() for key in self.keys}
        for runs in self.runs.values():
            runs.link.latency_max_ms = options.latency_max_ms
        self.machines = {key: Machine() for key in self.keys if key.startswith("processing/")}
        self._store_away_until_ms = 0
        self._store = CheckpointStore(lambda: self.scheduler.now_ms < self._store_away_until_ms)
        self._store.is_hostile = options.store_is_hostile
        rng = random.Random(f"{options.seed}/world")
        self._process_faults = ProcessFaults(
            self.scheduler, self.history, self.runs, self.machines, self.start, rng
        )
        self._outliving: set[Process] = set()
        """Processes that will go on when their topics are created again, or do."""
        self._closed: dict[tuple[str, str], int] = {}
        self._epochs: dict[tuple[str, str], int] = {}
        """Newest epoch of each writer, whether its record was trimmed since or not."""
        self._resharding = Resharding(
            options, self.runs, self._epochs, self.scheduler, self.history, self.start
        )
        self.pipeline = self._resharding.files[-1]
        create_topics(self.log.admin(), self.pipeline, options)
        if options.has_earlier_life:
            earlier_lives.write(self.log, options)
        moving = {SCALED: ScaledMoving, SPLIT: SplitMoving}.get(options.scenario, self.MOVING)
        self._moving = (
            moving(
                options,
                self.pipeline,
                self.network,
                self.runs,
                self.machines,
                self.unexpected,
                self._closed,
                self._epochs,
            )
            if options.moved
            else None
        )
        if self._moving is not None:
            self._moving.is_undisturbed = options.has_store and all(
                fault.kind == "move" for fault in self.faults
            )
        self._last = workload.last_bucket(options)
        self.producers = Producers(
            options, self.sent, self.scheduler, self.log, self.network, self.history
        )
        self._blocks_lost = False
        self._rollout: new_column.Rollout | None = None
        self._rare: dict[str, Callable[[Fault], None]] = {
            leaders_clocks.KIND: self.producers.displace,
            LOG_LOST: self._lose_log,
            fault_plans.OUTLIVES: self._outlive,
            fault_plans.GIVE_UP: lambda fault: self._operate(
                fault.target,
                (workload.BASE_MS + self.scheduler.now_ms) // options.bucket_ms - 1,
            ),
            fault_plans.OLD_CLAIMS: self._repeat_claims,
            "reshard": lambda _: self._resharding.change(),
        }
        """Effects of faults of single scenarios."""
        if any(stage.uses_column for stage in options.stages):
            self._rollout = new_column.Rollout(
                options,
                self.pipeline,
                self.log,
                self.scheduler,
                self.history,
                self.runs,
                self._closed,
                lambda key: self._process_faults.kill(self.runs[key]),
            )
            self._rare[new_column.KIND] = self._rollout.use
        self._tampering = Tampering(self.pipeline, self.log, self.network, self._epochs)

    # ---------------------------------------------------------------- the run

    def run(self) -> Run:
        """Faults until the time of healing, then to the end of the work."""
        with probes.counted(self.history), hurried(self.options), decoded_once():
            return self._run()

    def _run(self) -> Run:
        options, scheduler = self.options, self.scheduler
        try:
            for number, key in enumerate(filter(self._resharding.runs_now, self.keys)):
                self.start(key, delay_ms=number * 5)
            self.producers.begin(self.sent)
            for fault in self.faults:
                scheduler.at(fault.at_ms, lambda fault=fault: self._strike(fault))  # type: ignore[misc]
                if fault.kind == "index lost" and fault.at_ms % 2:
                    age_ms = _INDEX_COPY_MS[fault.at_ms // 2 % 2]
                    scheduler.at(max(0, fault.at_ms - age_ms), self._copy_index)
            scheduler.run_until(options.heal_ms)
            if options.seed % 2:
                self._copy_index()
            self._heal()
            is_complete, deadline_ms = False, options.heal_ms + RECOVERY_MS
            while not is_complete and scheduler.now_ms < deadline_ms:
                scheduler.run_until(scheduler.now_ms + _LOOK_MS)
                if self._is_complete():
                    scheduler.run_until(scheduler.now_ms + _SETTLE_MS)
                    is_complete = self._is_complete()
            if is_complete and any(fault.kind == "index lost" for fault in self.faults):
                # Once more, when all is done: what was written before must be written again. In
                # every other seed it comes back as it was when the faults had ended.
                self._strike(Fault(scheduler.now_ms, "index lost", "index", 0, 0))
                scheduler.run_until(scheduler.now_ms + INDEX_RESTORED_MS)
            if is_complete:
                self._look_for_leaks()
            if self._moving is not None:
                self._moving.check()
            return self.remains(is_complete=is_complete)
        finally:
            scheduler.close()

    def remains(self, *, is_complete: bool) -> Run:
        """Return what the run has left by now, for the checkers."""
        return Run(
            options=self.options,
            faults=self.faults,
            pipeline=self.pipeline,
            managed=self._resharding.last_file_of(MANAGER),
            sent=self.sent,
            log=self.log,
            index=self.index,
            history=self.history,
            visible_ms=self.network.visible_ms,
            trimmed=self.network.trimmed,
            displaced_by=self.producers.displaced_by,
            former=self.network.former,
            unexpected=self.unexpected,
            is_complete=is_complete,
            ended_ms=self.scheduler.now_ms,
            steps=self.scheduler.steps,
        )

    def _is_complete(self) -> bool:
        """All input is closed by all writers, and the output has reached the end. Judged by
        records alone: the checkers look closer.
        """
        last = self._last
        if self.producers.gone:
            return self.options.scenario != "given up" and self._is_all_shown()
        # a partition that was found late may have been waited for by nobody
        if self.producers.unread or not self._resharding.is_over:
            return False
        if self._rollout is not None and not self._rollout.is_over:
            return False
        for stream in self.pipeline.streams():
            for writer in self.pipeline.stream_writers(stream):
                ids = same(f"processing/{stream}.{writer}", self.options)
                processes = [self.runs[key] for key in ids if key in self.runs]
                is_dead = bool(processes) and all(each.is_dead for each in processes)
                is_dead |= self._moving is not None and self._moving.is_lost(stream, writer)
                if not is_dead and self._closed.get((stream, writer), 0) < last:
                    return False
        for runs in self.runs.values():
            replica = replica_of(runs)
            if (
                replica is not None
                and not runs.is_dead
                and not (replica.is_stable or replica.stands_by)
            ):
                return False
        if self._moving is not None and not self._moving.is_over():
            return False
        return all(self._is_delivered(output, last) for output in self.options.outputs)

    def _is_delivered(self, output: OutputOptions, last: int) -> bool:
        """Both topics of ``output`` have everything up to bucket ``last``."""
        machine = None
        for process in output.processes:
            service = self.runs[f"delivery/{process}"].service
            if (
                not isinstance(service, delivery.DeliveryService)
                or (service.status.last_bucket_ms or 0) < last * self.options.bucket_ms
            ):
                return False
            if service._live is not None:
                machine = service._live._machine
        return not output.is_live or (
            machine is not None and machine.progress.stable >= last and machine.progress.shown == 0
        )

    def _is_all_shown(self) -> bool:
        """Return whether, of an input that never comes back, every bucket of which the others have
        something was shown as tentative (AV5: the others are not waited for).
        """
        others = [
            each.row[0]
            for each in self.sent
            if each.row is not None and (each.source, each.partition) not in self.producers.gone
        ]
        last = max(
            (workload.bucket_of(event_time_ms, self.options.bucket_ms) for event_time_ms in others),
            default=0,
        )
        service = self.runs[f"delivery/{self.options.outputs[0].processes[0]}"].service
        live = service._live if isinstance(service, delivery.DeliveryService) else None
        return (
            live is not None and live._machine is not None and live._machine.progress.shown >= last
        )

    def _look_for_leaks(self) -> None:
        """When nothing is left to be done, nothing is left over: neither directories of
        branches, nor of processes before, nor buckets in memory, nor logs that cannot be read.
        """
        for fault in self.faults:
            service = self.runs[fault.target].service if fault.kind == LOG_LOST else None
            if service is not None and service.status.waiting_for:
                self.unexpected.append(
                    f"unread logs: {fault.target} waits for {service.status.waiting_for}, at the"
                    " end (UR3)"
                )
        for key, runs in self.runs.items():
            service = replica_of(runs)
            if service is None or runs.is_dead or service.stands_by:
                continue
            overtaken = len(same(key, self.options)) > 1 or any(
                fault.target == key and fault.kind in _OVERTAKING for fault in self.faults
            )
            extra = [
                name
                for name in self.machines[key].directories
                if name not in (service.stable_query, service.branch)
            ]
            if overtaken:  # whoever was replaced may leave something behind, until the next start
                extra = [
                    name
                    for name in extra
                    if epoch_of(name) == epoch_of(service.stable_query)
                    # A rehearsal's is of epoch 0, which the first primary has, too.
                    and number_of(name) != rehearsing._TIMELINE_NUMBER
                ]
            if extra:
                self.unexpected.append(
                    f"leaks: {key}: in timeline {service.stable_query}, but there are directories"
                    f" {extra}"
                )
            if self.machines[key].other_lives:
                self.unexpected.append(
                    f"leaks: {key}: there are directories of other lives of its log:"
                    f" {sorted(self.machines[key].other_lives)}"
                )
            # What a process that has just begun has read waits for the first request of its query.
            has_asked = self.scheduler.now_ms - runs.lives[-1].begun_ms > BEGINS_MS
            if service.buckets_remembered and has_asked and not self.producers.gone:
                self.unexpected.append(
                    f"leaks: {key}: {service.buckets_remembered} buckets are in memory that all"
                    " queries have read"
                )

    def _appended(self, at: TopicPartition, offset: int, value: bytes | None) -> None:
        """Follow which epochs have begun, and how far writers say that they are."""
        if not at.topic.endswith(".boundaries"):
            return
        names = self.pipeline.topic_names
        for stream in self.pipeline.streams():
            if at.topic == names.boundaries(stream):
                record = self.log.partition(at).at(offset)
                entry = boundary_records.decode(value, record.headers)
                if isinstance(entry, LogSnapshot):
                    self.history.reached("snapshot written")
                if isinstance(entry, EpochStarted):
                    self._epochs[stream, entry.replica] = offset
                if isinstance(entry, BoundaryRecord) and entry.kind is BoundaryKind.STABLE:
                    self._closed[stream, entry.replica] = max(
                        entry.closed, self._closed.get((stream, entry.replica), 0)
                    )
                    self.producers.read(entry.positions, self.log.topic_ids)
                    if (
                        stream in self.options.streams and entry.parts
                    ):  # records with a new stamp are in later buckets than they were sent in
                        self._last = max(
                            self._last,
                            workload.ends(self.options, max(part.bucket for part in entry.parts)),
                        )

    # ---------------------------------------------------------------- processes

    def start(self, key: str, delay_ms: int = 0, strikes: Sequence[Strike] = ()) -> None:
        """Start a new run of a service. Older ones that are alive stay so. ``strikes``: what
        befalls it.
        """
        runs = self.runs[key]
        if runs.is_dead:
            return
        process = Process(key, len(runs.lives))
        link = Link(
            runs.link.latency_max_ms,
            runs.link.cut_to_until_ms,
            runs.link.cut_from_until_ms,
            runs.link.slow_until_ms,
            runs.link.full_until_ms,
            runs.link.planned,
            list(strikes),
            version=runs.link.version,
        )
        runs.link.planned = []
        port = Port(self.network, process, link)
        port.life = Life(self.scheduler.now_ms + delay_ms)
        if self._blocks_lost:
            port.life.struck(ends.BLOCKS_LOST, self.scheduler.now_ms)
        runs.lives.append(port.life)
        clock = SimulatedClock(port, workload.BASE_MS)
        clock.offset_ms = runs.clock_offset_ms
        clock.set_ms = runs.clock_set_ms
        if runs.drift_permille:
            clock.drift(runs.drift_permille)
        runs.current = process
        runs.alive[process] = (link, clock)
        self.scheduler.spawn(process, lambda: self._live(process, port, clock), delay_ms)

    def _waits_with_locks(self, process: Process) -> None:
        """Followers, heartbeats and timers would stand still with it, for as long as a broker
        or a disk is slow. Told once of each process.
        """
        complaint = f"locks: {process.name} waits while it holds {', '.join(sorted(process.locks))}"
        if complaint not in self.unexpected:
            self.unexpected.append(complaint)

    def _live(self, process: Process, port: Port, clock: SimulatedClock) -> None:
        """Run a service to its end, and do what its supervisor does then, also if it was killed
        before it began.
        """
        self.history.add(self.scheduler.now_ms, process.name, "start")
        how = "killed"
        service: Service | None = None
        try:
            port.alive()
            service = self._build(process, port, clock)
            if self.runs[process.key].current is process:
                self.runs[process.key].service = service
            service.start()
            while True:
                service.step()
        except Exception as error:
            how = type(error).__name__
            self._excuse(error, process, port, service)
            if not isinstance(error, AnabranchError):
                raise
            if service is not None:
                service.stop()
            if isinstance(service, SimulatedReplica):
                self.runs[process.key].lost_input = service.lost_input
            self.scheduler.end_threads(process)
        finally:
            port.life.ended_ms = self.scheduler.now_ms
            self._ended(process, how)

    def _excuse(
        self, error: Exception, process: Process, port: Port, service: Service | None
    ) -> None:
        """Judge whether the end of a process follows from something that befell it."""
        now_ms = self.scheduler.now_ms
        others = [
            life
            for key in same(process.key, self.options)
            for life in self.runs[key].lives
            if life is not port.life
        ]
        version = port.link.version
        if process in self.network.outliving:
            self.history.reached(f"outliving process ends: {type(error).__name__}")
            return
        if self._resharding.may_end(error, process):
            return
        if ends.is_superseded(error, process.key, version, self.log, self.pipeline):
            self.history.reached("end because of another version")
            return
        if self._rollout is not None and new_column.is_refusal(error):
            wrong = self._rollout.refused(error, process.key, port.life)
            if wrong:
                self.unexpected.append(f"columns: {process.name}: {error}: {wrong}")
            return
        if ends.is_of_earlier_attempt(error):
            self.history.reached("half begins again for another attempt")
            return
        if self._is_unheard_half(error, service):
            self.history.reached("half ends: its input was trimmed while it was not heard")
            return
        if ends.is_of_other_state(error):
            self.history.reached("state of another function")
            self._begin_anew(process.key, version)
            return
        why = ends.cause(
            error,
            port.life,
            others,
            now_ms,
            TRANSACTION_TIMEOUT_MS,
            self._behind_ms(error),
            self.options.seen_wait_ms,
        )
        self.history.reached(f"end because of {why}")
        if not why:
            self.unexpected.append(
                f"ends: {process.name} at {now_ms} ms: ends without a cause:"
                f" {type(error).__name__}: {error}"
            )
        elif (
            isinstance(error, Fenced)
            and not isinstance(error, Outvoted)
            and not self._is_replaced(error, process, service)
        ):
            self.unexpected.append(
                f"ends: {process.name} at {now_ms} ms: fenced, though nobody replaced it: {error}"
            )

    def _is_unheard_half(self, error: Exception, service: Service | None) -> bool:
        """Return whether ``error`` ended a half of a shard whose input was trimmed while the
        manager did not hear it.
        """
        replica = service.ended_by(error) if isinstance(service, SimulatedNode) else None
        if (
            replica is None
            or replica.died_of is not error
            or not any(replica.stream in those for those in halves.names(self.options).values())
        ):
            return False
        label = f"{replica.stream}.{replica.writer}"
        topic = self.pipeline.topic_names.control("processing", label)
        events = self.history.events
        heard_ms = [*ends.heartbeats_ms(topic, events, self.log, self.network.trimmed)]
        return ends.is_unheard_half(error, replica.built_ms, heard_ms, events, HALF_MS)

    def _behind_ms(self, error: Exception) -> int | None:
        """How long ago the record of a boundary log came that a process wanted and that is
        trimmed; None: it did not end of that.
        """
        wanted = re.search(r"(\S+\.boundaries)\[0\] has offsets \d+ to \d+, not (\d+)", str(error))
        if wanted is None:
            return None
        place = (wanted[1], 0, int(wanted[2]))
        return next(
            (
                self.scheduler.now_ms - each.at_ms
                for each in self.history.events
                if each.what == "append" and each.facts[:3] == place
            ),
            0,
        )

    def _is_replaced(self, error: Exception, process: Process, service: Service | None) -> bool:
        """Return whether the log has a newer epoch than that of a process that says with ``error``
        that it was fenced: of a later process, or of one of an earlier life that has outlived it.
        """
        name = process.key.split("/")[1]
        replica = service.ended_by(error) if isinstance(service, SimulatedNode) else service
        if isinstance(replica, SimulatedReplica):
            stream, epoch = replica.stream, replica.epoch
            writer = replica.writer
            has_newer = len(self.runs[process.key].lives) > process.number + 1
            if has_newer and replica.is_passive:
                return True  # a copy of the newer one may have replaced its directory (TI2)
        elif isinstance(service, ingestion.IngestionService):
            stream, writer = name, ingestion.REPLICA
            epoch = vars(service).get("_epoch", -1)
        else:
            return True  # delivery is fenced by the broker
        if epoch < 0:
            return True  # it read that by itself, before it had begun
        newest = self._epochs.get((stream, writer), -1)
        return max(newest, self._epoch_in_log(stream, writer)) > epoch

    def _epoch_in_log(self, stream: str, writer: str) -> int:
        """Return the newest epoch of ``writer`` that is in the log now; -1: none."""
        topic = self.pipeline.topic_names.boundaries(stream)
        partition = self.log.partition(TopicPartition(topic, 0))
        for offset in reversed(range(partition.start, partition.end)):
            record = partition.at(offset)
            with contextlib.suppress(RemoteProtocolError):
                entry = boundary_records.decode(record.value, record.headers)
                if isinstance(entry, EpochStarted) and entry.replica == writer:
                    return offset
        return -1

    def _ended(self, process: Process, how: str) -> None:
        runs = self.runs[process.key]
        replica = replica_of(runs)
        if replica is not None and runs.current is process and replica.branch is not None:
            self.history.reached("replica row 9: ends with a branch")
        runs.alive.pop(process, None)
        self.history.add(self.scheduler.now_ms, process.name, "end", how)
        self.history.reached(f"end {process.key.split('/')[0]} {how}")
        if runs.current is process and not runs.is_dead:
            runs.current = runs.service = None
            runs.restarts += 1
            again_ms = self.scheduler.now_ms + min(_RESTART_MS << min(runs.restarts - 1, 3), 4_000)
            self.scheduler.at(max(again_ms, runs.away_until_ms), lambda: self._restart(process.key))

    def _restart_soon(self, key: str) -> None:
        """Start a service after the pause that its supervisor makes."""
        self.scheduler.at(self.scheduler.now_ms + _RESTART_MS, lambda: self._restart(key))

    def _restart(self, key: str) -> None:
        """Start a service, unless it runs. Where its machine went away after its process had ended,
        that waits until the machine is back.
        """
        runs = self.runs[key]
        if runs.current is not None:
            return
        if runs.away_until_ms > self.scheduler.now_ms:
            self.history.reached("restart waits: away since the process ended")
            self.scheduler.at(runs.away_until_ms, lambda: self._restart(key))
        else:
            self.start(key)

    def _context(self, process: Process, port: Port, clock: SimulatedClock) -> ServiceContext:
        """Return the context of the service of ``process``."""
        service, name = process.key.split("/")
        token = hash_of(self.options.seed, process.name)
        settings = ServiceSettings.model_construct(
            pipeline=Path("pipeline.yaml"),
            name=name,
            kafka="none:0",
            redis=None,
            state_dir=Path("state"),
            metrics_host="",
            metrics_port=0,
            log_level="info",
            check_config=False,
            restarts=0,
        )
        registry = Registry()
        threads = SimulatedThreads(self.scheduler, process)
        return ServiceContext(
            SimulatedLog(port),
            SimulatedIndex(port) if service == "consistency_manager" else None,
            clock,
            SeededEntropy(token),
            registry,
            ServiceMetrics(registry, pipeline=self.pipeline.name, service=service, name=name),
            settings,
            self._resharding.file_of(process),
            cast("Any", _Logger(self, process)),
            threads.event(),
            threads=threads,
            crash_point=port.crash_point,
        )

    def _is_reachable(self, key: str) -> bool:
        """Return whether others reach the disk of the machine of ``key``."""
        return self.runs[key].unreachable_until_ms <= self.scheduler.now_ms

    def _disk_is_wrong(self, process: Process, what: str) -> None:
        """Note what a process of the present life found wrong on its disk."""
        if process not in self.network.outliving:
            self.unexpected.append(f"disk: {process.name}: {what}")

    def _build(self, process: Process, port: Port, clock: SimulatedClock) -> Service:
        service, name = process.key.split("/")
        token, context = (
            hash_of(self.options.seed, process.name),
            self._context(process, port, clock),
        )
        if service == "processing":
            stage, replica, *_ = name.split(".")
            chosen = next(each for each in self.options.stages if each.name == stage)
            isolated = self.options.isolated
            others = [
                other
                for other in (f"{stage}.{r}" for r in range(chosen.replicas) if str(r) != replica)
                if isolated not in (other, f"{stage}.{replica}")
            ]
            machine, own = self.machines[process.key], f"{stage}.{replica}"

            def disk_of(label: str) -> SimulatedDisk:
                half = label.removesuffix(f".{replica}") if label != own else ""
                return SimulatedDisk(
                    machine.part(label) if half else machine,
                    port.disk,
                    self.history.reached,
                    lambda what: self._disk_is_wrong(process, what),
                    lambda: {
                        number: there.part(f"{half}.{number}") if half else there
                        for other in others
                        if self._is_reachable(f"processing/{other}")
                        for number in [other.split(".")[1]]
                        for there in [self.machines[f"processing/{other}"]]
                    },
                    port.struck,
                    port.disk_write,
                    self._store if self.options.has_store else None,
                )

            context = replace(
                context, pipeline=upgraded(context.pipeline, stage, port.link.version)
            )
            disks = NodeDisks(disk_of)
            stages = {each.name: each for each in (chosen, *halves.of(chosen))}
            engine = SimulatedEngine(context, port, disks.disk_of, stages, random.Random(token))
            engine.cores = scaled.cores(self.options, process.key)
            if self._moving is None or not self._moving.has(process.key):
                node = context.pipeline.places().node_of(name)
                alone = SimulatedReplica(context, engine, disks, node, port=port)
                if self.runs[process.key].lost_input:  # as its node does
                    self.runs[process.key].lost_input = False
                    alone.prove_input()
                return alone
            made = SimulatedNode(
                context,
                port,
                self._moving.node_of(process.key),
                self._moving,
                engine,
                disks,
                lambda error: self._excuse(error, process, port, made),
            )
            return made
        return BUILDERS[service](context.settings, context)

    # ---------------------------------------------------------------- faults

    def _strike(self, fault: Fault) -> None:
        """Let ``fault`` happen."""
        self.history.reached(f"fault {fault.kind}")
        self.history.add(self.scheduler.now_ms, "world", "fault", *fault)
        now_ms = self.scheduler.now_ms
        until_ms = min(now_ms + fault.duration_ms, self.options.heal_ms)
        if fault.kind == "broker away":
            self.producers.silence_all(until_ms)
        if fault.kind == "silent for good":
            self.producers.gone.add((fault.target, fault.value))
        elif fault.kind in ("move", fault_plans.SPLIT) and self._moving is not None:
            self._moving.move(fault)
        elif fault.kind in self._rare:
            self._rare[fault.kind](fault)
        elif "blocks" in fault.kind or fault.kind in _DELETING:
            self._delete(fault)
        elif fault.kind.startswith("silent"):
            partitions = self.options.source_partitions
            chosen = range(partitions) if fault.kind == "silent all" else [fault.value % partitions]
            for partition in chosen:
                self.producers.silence(fault.target, partition, until_ms)
        elif fault.kind == "hostile":
            self._tampering.forge(fault.target, fault.value, self._last, workload.BASE_MS + now_ms)
        elif fault.kind == "old words":
            self._say_again(partial(self._tampering.say_again, fault.target), until_ms)
        elif fault.kind in _OF_SERVERS:
            self._strike_servers(fault, until_ms)
        else:
            self._process_faults.strike(fault, until_ms)

    def _lose_log(self, fault: Fault) -> None:
        """Lose the records of a boundary log for one process, until somebody restores them."""
        streams, now_ms = self.pipeline.streams(), self.scheduler.now_ms
        stream = streams[fault.value // 2 % len(streams)]
        at = TopicPartition(self.pipeline.topic_names.boundaries(stream), 0)
        first = self.log.partition(at).end + 1 - fault.value % 2
        until_ms = min(now_ms + fault.duration_ms, self.options.heal_ms)
        self.network.lost[fault.target, at] = first
        self.history.add(
            now_ms, "world", "log cut", fault.target, stream, at.topic, first, until_ms
        )
        if fault.value % 2:
            self._process_faults.kill(self.runs[fault.target])

        def restore() -> None:
            del self.network.lost[fault.target, at]
            runs = self.runs[fault.target]
            if runs.current is not None and runs.service is not None:
                who, why = runs.current.name, runs.service.status.waiting_for
                self.history.add(self.scheduler.now_ms, who, "log is back", stream, why)

        self.scheduler.at(until_ms, restore)

    def _outlive(self, fault: Fault) -> None:
        """Let the current process of a service go on in the second life, until somebody ends it."""
        process, now_ms = self.runs[fault.target].current, self.scheduler.now_ms
        until_ms = min(now_ms + fault.duration_ms, self.options.heal_ms)
        if process is None:
            return
        self._outliving.add(process)
        if fault.value % 2:
            self.scheduler.pause(process, now_ms + (until_ms - now_ms) // 2)
        self.scheduler.at(until_ms, lambda: self.scheduler.kill(process))

    def _make_anew(self, extent: int) -> None:
        """End all processes, delete topics, and let everything begin again."""
        for key, runs in self.runs.items():
            for process in list(runs.alive):
                if process not in self._outliving:
                    self.scheduler.kill(process)
                elif runs.current is process:
                    runs.current = None
                    self._restart_soon(key)
            runs.service = None
        self.network.outliving |= self._outliving
        spoken = second_lives.last_heartbeats(self.log, self.pipeline)
        if any(stage.name == stream for stage in self.options.stages for stream, _ in self._closed):
            self.history.reached("made anew after results")
        deleted = second_lives.delete(self.log, self.pipeline, self.options, extent)
        for known in (self._closed, self._epochs):
            for stream, writer in list(known):
                if self.pipeline.topic_names.boundaries(stream) in deleted:
                    del known[stream, writer]
        if extent != second_lives.STREAMS_OF_STAGES:
            self.producers.read_again()
        second_lives.forget(self.network, self.history, deleted)
        for delay_ms in second_lives.STOPPED_LATE_MS if extent == second_lives.STREAMS else ():
            now_ms = self.scheduler.now_ms
            self.scheduler.at(now_ms + delay_ms, lambda: self._repeat(spoken))

    def _repeat(self, spoken: list[tuple[TopicPartition, Record]]) -> None:
        """Repeat the heartbeats of processes of an earlier life, which are stopped late."""
        for at, record in spoken:
            self.log.partition(at).append(record)
        self.network.wake({at.topic for at, _ in spoken})

    def _copy_index(self) -> None:
        """Let the index write itself to its disk: that is what it has after its next loss."""
        self._index_copy = self.index.saved()

    def _strike_servers(self, fault: Fault, until_ms: int) -> None:
        """Strike the index, the store of checkpoints, or the leader of a partition."""
        kind = fault.kind
        if kind == fault_plans.NO_LEADER:
            at = TopicPartition(fault.target, fault.value)
            if at.topic in self.log.topics and at.partition < len(self.log.topics[at.topic][1]):
                self.log.leaderless.add(at)
                self.scheduler.at(until_ms, lambda: self._elect(at))
        elif kind == "store away":
            self._store_away_until_ms = max(self._store_away_until_ms, until_ms)
        elif kind == "index lost" and self._index_copy is not None:
            self.index.restore(self._index_copy)
            self._index_copy = None
        elif kind == "index lost":
            self.index.flush_all()
        else:
            self.index.cut_off(cut=True)
            self.scheduler.at(until_ms, lambda: self.index.cut_off(cut=False))

    def _repeat_claims(self, fault: Fault) -> None:
        """Kill a process when it has lowered its claim, and repeat what it claimed before."""
        runs = self.runs[fault.target]

        def strike() -> None:
            until_ms = min(self.scheduler.now_ms + fault.duration_ms, self.options.heal_ms)
            self._process_faults.be_away(runs, until_ms, is_reachable=False)
            self._say_again(partial(self._tampering.claim_again, fault.target), until_ms)

        for link, _ in runs.alive.values():
            link.strikes.append(Strike(1 + fault.value, "claim", None, strike))

    def _elect(self, at: TopicPartition) -> None:
        """Give the partition a leader again."""
        self.log.leaderless.discard(at)
        self.network.wake({at.topic})

    def _delete(self, fault: Fault) -> None:
        """Delete records of an input partition but the last ``duration_ms``; or blocks of one
        writer that others have, too; or all, of what is delivered only where something was: else
        delivery begins later (DE9); or all before the first result of a stage that began late; or
        whole topics; or what the broker's cleaner may delete.
        """
        if fault.kind == "made anew":
            self._make_anew(fault.value)
            return
        if fault.kind == fault_plans.CLEANED:
            retained, read = fault.duration_ms, self.producers.read_upto
            cleaning.clean(self.network, fault.value, retained, read)
            return
        if fault.kind == "input recreated":
            self._recreate_input(fault)
            return
        if fault.kind == "input deleted":
            own = TopicPartition(self.pipeline.topic_names.boundaries(fault.target), 0)
            if self.log.partition(own).end < 2:
                return  # whoever has recorded no position begins with what is there
            at = TopicPartition(workload.topic_of(fault.target), fault.value)
            kept = self.log.partition(at).end - fault.duration_ms
            self.network.delete({at: max(0, kept)}, self.log.admin())
            return
        if fault.kind == ends.BLOCKS_LOST:
            self._lose_partitions(fault.target)
            return
        if fault.kind != "all blocks deleted":
            is_spoilt = fault.kind == "blocks spoilt"
            self._tampering.lose_blocks(fault.target, fault.value, spoils=is_spoilt)
            return
        if fault.value == fault_plans.BEFORE_RESULTS:
            if self._tampering.has_only_begun_late(self.options.last_stage):
                self.history.reached("deleted before the first result")
                self.history.add(self.scheduler.now_ms, "world", "deleted again", fault.target)
                self._tampering.lose_all_blocks(fault.target)
            return
        is_delivered = fault.target in [each.stream for each in self.options.outputs]
        first = self.options.outputs[0].processes[0]
        if not is_delivered or self._tampering.has_delivered(first):
            self._tampering.lose_all_blocks(fault.target)

    def _lose_partitions(self, stream: str) -> None:
        """Lose all blocks of ``stream``, while their partitions grow again."""
        self._blocks_lost = True
        for runs in self.runs.values():
            for life in runs.lives:
                if life.ended_ms is None:
                    life.struck(ends.BLOCKS_LOST, self.scheduler.now_ms)
        self._tampering.lose_partitions(stream)

    def _recreate_input(self, fault: Fault) -> None:
        """Delete the topic of a source that has recorded a position, and create it again at once
        or later. Producers keep meanwhile what they have.
        """
        source, absent_ms = fault.target, fault.duration_ms
        topic, now_ms = workload.topic_of(source), self.scheduler.now_ms
        if not any(each == topic for each, _ in self.producers.read_upto):
            return  # without a position nothing tells the two topics apart
        self.history.reached("input recreated")
        self.network.former.delete(self.network, topic)
        self.producers.forget(topic)
        created_ms = min(now_ms + absent_ms, self.options.heal_ms - 1)
        for life in self.runs[f"ingestion/{source}"].lives:
            if life.ended_ms is None:
                life.struck(ends.INPUT_RECREATED, created_ms)

        def create() -> None:
            self.network.former.create_again(self.network, topic)
            if (
                not absent_ms and not fault.value
            ):  # a limit: what comes before the ids are compared is not told apart
                for partition in range(self.options.source_partitions):
                    self.producers.silence(source, partition, now_ms + _IDS_COMPARED_MS)
            self.producers.find(source)

        self.scheduler.at(created_ms, create) if absent_ms else create()

    def _say_again(self, says: Callable[[int], None], until_ms: int) -> None:
        """Repeat a former heartbeat, again and again. ``says``: write it as of a time."""
        says(workload.BASE_MS + self.scheduler.now_ms)
        again_ms = self.scheduler.now_ms + _SAY_AGAIN_MS
        if again_ms < until_ms:
            self.scheduler.at(again_ms, lambda: self._say_again(says, until_ms))

    def _heal(self) -> None:
        """No more faults from here on."""
        self.history.add(self.scheduler.now_ms, "world", "heal")
        self.index.cut_off(cut=False)
        self.producers.heal()
        for runs in self.runs.values():
            runs.clock_offset_ms = 0
            runs.drift_permille = 0
            runs.away_until_ms = runs.unreachable_until_ms = 0
            for process, (link, clock) in runs.alive.items():
                clock.drift(0)
                self._process_faults.calm(link)
                self.scheduler.resume(process)
            self._process_faults.calm(runs.link)
        for source in sorted(
            {source for source, _ in self.producers.gone if self.options.scenario == "given up"}
        ):
            self.scheduler.at(
                self.scheduler.now_ms + _SETTLE_MS,
                lambda source=source: self._operate(source, self._last),  # type: ignore[misc]
            )

        for source in sorted({each.target for each in self.faults if each.kind in _LOSING_INPUT}):
            self.scheduler.at(
                self.scheduler.now_ms + _SETTLE_MS,
                lambda source=source: self._give_up_missing(source),  # type: ignore[misc]
            )

    def _begin_anew(self, key: str, version: int) -> None:
        """Make a replica begin that cannot continue from its state, as a person does: by the
        command for it, or, in half of the seeds, by deleting the checkpoints.
        """
        if self.options.seed % 4 == 1:
            self._process_faults.forget_state(key)
            return
        stage = key.partition("/")[2].rpartition(".")[0]
        operating.restate(
            self.network,
            Port(self.network, Process(f"operator/{stage}", 0), Link(self.options.latency_max_ms)),
            upgraded(self.pipeline, stage, version),
            stage,
        )

    def _give_up_missing(self, source: str) -> None:
        """Give up, as an operator, what retention has deleted unread."""
        operating.give_up_missing(
            self.network,
            Port(self.network, Process(f"operator/{source}", 0), Link(self.options.latency_max_ms)),
            self.pipeline,
            source,
            workload.BASE_MS + self._last * self.options.bucket_ms,
            hash_of(self.options.seed, f"missing/{source}"),
        )

    def _operate(self, source: str, last: int) -> None:
        """Give up what ``source`` owes up to bucket ``last``, as an operator; then let it come
        back.
        """
        port = Port(
            self.network, Process(f"operator/{source}", 0), Link(self.options.latency_max_ms)
        )
        self.runs[f"ingestion/{source}"].lives.append(port.life)  # its replacement
        until_ms, token = (
            last * self.options.bucket_ms,
            hash_of(self.options.seed, port.process.name),
        )
        operating.give_up(
            self.network,
            port,
            self.pipeline,
            source,
            until_ms,
            token,
            self.producers.gone,
            self.producers.produce,
        )


def keys(options: Options) -> list[str]:
    """Return the services of a run: ``service/name``."""
    found = [f"ingestion/{stream}" for stream in options.streams]
    found += [
        f"processing/{stage.name}.{replica}"
        for stage in options.stages
        for replica in range(stage.replicas)
    ]
    found += [f"processing/{options.moved}{new}" for new in options.new_nodes if options.moved]
    for output in options.outputs:
        found += [f"delivery/{process}" for process in output.every_process]
    if options.has_manager:
        found.append(MANAGER)
    for trader in options.traders:
        found += [f"agent/{trader}", f"contract_broker/{trader}"]
    found += [f"auditor/{options.auditor}"] if options.auditor else []
    return found


def hash_of(seed: int, name: str) -> int:
    """Return a number for a name, the same in every process of Python."""
    return random.Random(f"{seed}/{name}").getrandbits(32)
