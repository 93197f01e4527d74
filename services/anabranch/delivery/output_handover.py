"""End of the shards that an output had under earlier numbers of shards. The first new shard ends
them; every new shard continues the partitions that it takes over.
``protocol.edge.output_handover`` holds the rules.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.codec import control_records
from anabranch.delivery import read_back
from anabranch.ports import TopicPartition
from anabranch.process.crash_points import crash_point
from anabranch.protocol.edge.output_handover import (
    EndedShards,
    check_earlier,
    end,
    ends_earlier,
    has_ended,
    inherited,
    inherits,
)
from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.errors import Fenced, Unavailable

if TYPE_CHECKING:
    from anabranch.pipeline.model import Output
    from anabranch.process.frame import ServiceContext
    from anabranch.protocol.control.records import DeliveryProgress
    from anabranch.protocol.edge.delivery import Inherited
    from anabranch.protocol.edge.origins import Origin


def transactional_id(pipeline: str, process: str) -> str:
    """Return the transactional id with which ``process`` writes the corrected topic."""
    return f"{pipeline}.{process}.corrected"


class EarlierOutputShards:
    """Earlier shards of one output, seen from its present shard ``process``."""

    def __init__(
        self,
        context: ServiceContext,
        output: Output,
        process: str,
        waiting: read_back.Waiting,
        origin: Origin,
    ) -> None:
        """Keep the arguments; contact nothing. ``origin`` is that of the output's records."""
        self.origin = origin
        self._context, self._output = context, output
        self._log, self._names = context.log, context.pipeline.topic_names
        self._process, self._shard = process, output.shard(process)
        self._waiting = waiting
        self._ended: list[EndedShards] | None = None
        """Ends of the earlier shards once all have ended, which is final; None before."""
        self._is_settled = len(output.numbers) == 1

    def check_own(self, progress: DeliveryProgress | None) -> None:
        """Check, by its newest ``progress``, that this process itself has not been ended.

        Raises:
            ConfigurationError: the process has been ended for another number of shards.
        """
        numbers = self._output.numbers
        has_ended(self._output.name, numbers, len(numbers), progress)

    def check_runs(self) -> None:
        """Check, by the progress that is committed now, that this process has not been ended.
        Does not wait for open transactions.

        Raises:
            ConfigurationError: the process has been ended for another number of shards.
        """
        self.check_own(self._progress_of(self._process))

    def check_live(self) -> None:
        """Check that this process may write the live topic, which all numbers of shards share.
        Called before and after it fences the topic's previous writer.

        Raises:
            ConfigurationError: this process has been ended for another number of shards.
            Unavailable: the earlier shards have not ended yet.
        """
        if not self._is_settled:
            raise Unavailable(f"the earlier shards of output {self._output.name} have not ended")
        self.check_runs()

    def inherited(self, progress: DeliveryProgress | None, partitions: int) -> Inherited | None:
        """Return what this process, at its newest ``progress``, takes over from earlier shards.
        None if there is nothing to take over, or it has passed that.

        Raises:
            ConfigurationError: the earlier shards are not those that the file names, or have ended
                for others. Nothing was changed.
            Unavailable: one has not ended, or the broker does not answer.
            OutcomeUnknown: an end may or may not be written; the next attempt finds out.
        """
        if len(self._output.numbers) == 1 or not inherits(progress):
            self._is_settled = True
            return None
        if self._ended is None:
            self._ended = self._all_ended(partitions)
        self._is_settled = True
        return inherited(self._output.name, self._shard, partitions, self._ended, progress)

    def _all_ended(self, partitions: int) -> list[EndedShards]:
        """Return the ends of the shards of every earlier number, ending those that run."""
        found: list[EndedShards] = []
        for generation in range(1, len(self._output.numbers)):
            processes = self._output.generation(generation)
            for index, each in enumerate(processes):
                check_earlier(
                    self._output.name,
                    self._output.numbers,
                    generation,
                    Shard(index, len(processes)),
                    self._progress_of(each),
                    partitions,
                )
            ends = tuple(self._end_of(each, generation) for each in processes)
            beginning = None
            if (first := processes[0]) != self._output.name:
                topic = self._names.progress(first)
                beginning = read_back.last_progress(
                    self._log, topic, self._output.name, self.origin.life
                )
            found.append(EndedShards(ends, beginning))
        return found

    def _progress_of(self, process: str) -> DeliveryProgress | None:
        """Return the newest committed progress of ``process``."""
        return read_back.last_progress(
            self._log, self._names.progress(process), process, self.origin.life
        )

    def _end_of(self, process: str, generation: int) -> DeliveryProgress:
        """Return the end of ``process``, written by this process if that is its task.

        Raises:
            Unavailable: another shard must end it and has not yet.
        """
        found = self._progress_of(process)
        if not has_ended(self._output.name, self._output.numbers, generation, found):
            if not ends_earlier(self._shard):
                first = self._output.processes()[0]
                raise Unavailable(f"{first} has not ended {process} yet")
            found = self._end(process, generation)
        assert found is not None, "has_ended says so"  # noqa: S101
        return found

    def _end(self, process: str, generation: int) -> DeliveryProgress | None:
        """Fence ``process``, write its end and return it. After a crash before the commit the old
        shard can be started again and continues.

        Raises:
            Unavailable: the process was started again meanwhile and fenced this attempt.
        """
        output, topic = self._output, self._names.progress(process)
        life = self.origin.life
        writer = self._log.transactional_writer(
            transactional_id(self._context.pipeline.name, process)
        )
        crash_point("delivery.earlier_fenced")
        try:
            # Read again behind the fence: the old shard may have committed until then.
            last = read_back.last_progress(self._log, topic, process, life, self._waiting)
            if not has_ended(output.name, output.numbers, generation, last):
                heirs, now_ms = output.numbers[generation], self._context.clock.now_ms()
                value = control_records.encode(end(process, last, heirs, now_ms, life))
                writer.begin()
                writer.send(TopicPartition(topic, 0), value, process.encode())
                writer.commit()
                crash_point("delivery.earlier_ended")
                self._context.logger.info("a shard has ended", shard=process, heirs=heirs)
                last = read_back.last_progress(self._log, topic, process, life, self._waiting)
        except Fenced as error:
            raise Unavailable(
                f"{process}, which this shard is ending, was started again: {error}"
            ) from error
        finally:
            writer.close()
        has_ended(output.name, output.numbers, generation, last)
        return last
