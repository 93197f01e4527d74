"""Let a stage begin anew with a function whose state means something else: write the decision down
(``protocol.stage.restating``).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from functools import partial

from anabranch.operating.known_topic import check_topic
from anabranch.pipeline.model import Pipeline
from anabranch.pipeline.times import format_time
from anabranch.pipeline.waits import horizon_buckets
from anabranch.ports import Clock, EventLog, TopicPartition
from anabranch.protocol.control.records import Restated
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.log.boundary_log import LogState
from anabranch.protocol.log.buckets import bound_ms
from anabranch.protocol.stage.restating import RestatedStage, Restatement, restatement
from anabranch.streams.gone_blocks import last_gone
from anabranch.streams.placement import append_decision
from anabranch.streams.stream_logs import open_stream


class Restating:
    """One such command, for one stage. Nothing is written before ``do``; after a crash within it
    the command may be given again.
    """

    def __init__(
        self, log: EventLog, pipeline: Pipeline, stage: str, from_ms: int | None, clock: Clock
    ) -> None:
        """Check the names; nothing is contacted yet.

        Args:
            log: The pipeline's broker.
            pipeline: The pipeline with the changed function.
            stage: Name of the stage; of a shard, where the stage has shards.
            from_ms: Time from which input is to be taken, in ms; None: as far back as results need.
            clock: Source of the time in the record.

        Raises:
            ConfigurationError: the pipeline has no such stage.
        """
        if stage not in pipeline.stages:
            raise ConfigurationError(
                f"the pipeline {pipeline.name} has no stage {stage}; it has"
                f" {', '.join(pipeline.stages)}"
            )
        self._log, self._pipeline = log, pipeline
        self._stage = stage
        self._from_ms, self._clock = from_ms, clock
        self._at = TopicPartition(pipeline.topic_names.placement(), 0)

    def plan(self) -> Restatement:
        """Return what ``do`` would decide, as the logs are now.

        Raises:
            ConfigurationError: the decision would change nothing, or could not be kept; or the
                pipeline has not run on this broker.
            Unavailable: the broker does not answer.
        """
        pipeline = self._pipeline
        check_topic(self._log, self._at.topic, pipeline.name)
        gone, width_ms = self._gone(), pipeline.bucket_ms
        stage = RestatedStage(
            self._stage,
            pipeline.stages[self._stage].version,
            horizon_buckets(pipeline, self._stage),
            self._log_state(self._stage),
            gone,
            width_ms,
        )
        return restatement(stage, self._from_ms, format_time(bound_ms(gone, width_ms)))

    def do(self) -> Restatement:
        """Write the decision down, and return what it comes to.

        Raises:
            ConfigurationError, Unavailable: as ``plan``; or it is not known whether the decision
                was written.
        """
        decided = self.plan()
        entry = Restated(
            self._stage,
            self._pipeline.stages[self._stage].version,
            decided.after,
            self._clock.now_ms(),
        )
        append_decision(self._log, self._at, entry, "decision")
        return decided

    def _log_state(self, stream: str) -> LogState:
        with closing(open_stream(self._log, self._pipeline, stream)) as reader:
            reader.read_to_end()
            return reader.log_state

    def _gone(self) -> int:
        """Return the last bucket of which blocks of an input are gone; 0: none is. Inputs on other
        clusters are not asked: a replica that finds less there begins later.
        """
        names, gone = self._pipeline.topic_names, [0]
        with closing(self._log.reader(committed=False, headers=False)) as reader:
            for stream in self._pipeline.inputs(self._stage):
                if self._pipeline.cluster_of(stream):
                    continue
                log_state = self._log_state(stream)
                gone.append(log_state.whole_after)
                gone.append(last_gone(reader, partial(names.blocks, stream), log_state))
        return max(gone)


def describe(
    stage: str, version: int, decided: Restatement, width_ms: int, say: Callable[[str], None]
) -> None:
    """Say what is decided, and what follows."""
    begins = format_time(bound_ms(decided.after, width_ms)) if decided.after else "its beginning"
    upto = format_time(bound_ms(decided.kept_upto, width_ms))
    say(f"stage {stage}: version {version} begins with empty state, from the input after {begins}")
    say(
        f"  results up to {upto}, and those until it has caught up, stay as the version before made"
        " them"
    )
    if decided.given_up_upto:
        given_up = format_time(bound_ms(decided.given_up_upto, width_ms))
        say(
            f"  results after {upto} up to {given_up} are left out, since their input is not"
            " retained: their buckets are closed empty, and name all inputs as missing. The version"
            " before still makes those that it closes first"
        )
    else:
        say("  no result is left out")
