"""The shards that an output had with other numbers: the first new one sees to it that they have
ended, and each goes on with its partitions. What that means is decided in
``protocol.edge.output_handover``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.codec import control_records
from anabranch.delivery import read_back
from anabranch.ports import TopicPartition
from anabranch.protocol.edge.delivery import check_progress
from anabranch.protocol.edge.output_handover import (
    EndedShards,
    end,
    ends_earlier,
    has_ended,
    inherited,
    inherits,
)
from anabranch.protocol.edge.shards import Shard
from anabranch.protocol.errors import Fenced, Unavailable
from anabranch.runtime.crash_points import crash_point

if TYPE_CHECKING:
    from anabranch.pipeline.model import Output
    from anabranch.protocol.control.records import DeliveryProgress
    from anabranch.protocol.edge.delivery import Inherited
    from anabranch.protocol.edge.origins import Origin
    from anabranch.runtime.service import ServiceContext


def transactional_id(pipeline: str, process: str) -> str:
    """Under which ``process`` writes a corrected topic."""
    return f"{pipeline}.{process}.corrected"


class EarlierShards:
    """Those of one output, as its shard ``process`` finds them."""

    def __init__(
        self,
        context: ServiceContext,
        output: Output,
        process: str,
        waiting: read_back.Waiting,
        origin: Origin,
    ) -> None:
        """Nothing is contacted yet. ``origin``: of the output's records."""
        self.origin = origin
        self._context, self._output = context, output
        self._log, self._names = context.log, context.pipeline.topic_names
        self._process, self._shard = process, output.shard(process)
        self._waiting = waiting
        self._ended: list[EndedShards] | None = None
        """Once all have ended: that is final."""
        self._is_settled = len(output.numbers) == 1

    def check_own(self, progress: DeliveryProgress | None) -> None:
        """Raises ConfigurationError where the process itself has ended."""
        numbers = self._output.numbers
        has_ended(self._output.name, numbers, len(numbers), progress)

    def check_runs(self) -> None:
        """The same by what is to be seen now, whatever is under way."""
        self.check_own(self._look(self._process))

    def check_live(self) -> None:
        """Before and after it has fenced whoever wrote the live topic, which is that of all
        numbers.

        Raises:
            ConfigurationError: the process itself has ended.
            Unavailable: earlier shards have not.
        """
        if not self._is_settled:
            raise Unavailable(f"the earlier shards of output {self._output.name} have not ended")
        self.check_runs()

    def inherited(self, progress: DeliveryProgress | None, partitions: int) -> Inherited | None:
        """What the process inherits, with its newest ``progress``; None: nothing, or it has
        passed that.

        Raises:
            ConfigurationError: the shards before are not those that the file says, or have ended
                for others. Nothing has changed then.
            Unavailable: one has not ended, or the broker does not answer.
            OutcomeUnknown: the next attempt finds out.
        """
        if len(self._output.numbers) == 1 or not inherits(progress):
            self._is_settled = True
            return None
        if self._ended is None:
            self._ended = self._all_ended(partitions)
        self._is_settled = True
        return inherited(self._output.name, self._shard, partitions, self._ended, progress)

    def _all_ended(self, partitions: int) -> list[EndedShards]:
        found: list[EndedShards] = []
        for generation in range(1, len(self._output.numbers)):
            processes = self._output.generation(generation)
            for index, each in enumerate(processes):
                self._check(generation, Shard(index, len(processes)), self._look(each), partitions)
            ends = tuple(self._end_of(each, generation) for each in processes)
            beginning = None
            if (first := processes[0]) != self._output.name:
                topic = self._names.progress(first)
                beginning = read_back.last_progress(
                    self._log, topic, self._output.name, self.origin.life
                )
            found.append(EndedShards(ends, beginning))
        return found

    def _look(self, process: str) -> DeliveryProgress | None:
        return read_back.last_progress(
            self._log, self._names.progress(process), process, self.origin.life
        )

    def _check(
        self, generation: int, shard: Shard, progress: DeliveryProgress | None, partitions: int
    ) -> None:
        has_ended(self._output.name, self._output.numbers, generation, progress)
        if progress is not None and progress.positions:
            check_progress(self._output.name, progress, partitions, shard)

    def _end_of(self, process: str, generation: int) -> DeliveryProgress:
        """The end of ``process``, as readers see it."""
        found = self._look(process)
        if not has_ended(self._output.name, self._output.numbers, generation, found):
            if not ends_earlier(self._shard):
                first = self._output.processes()[0]
                raise Unavailable(f"{first} has not ended {process} yet")
            found = self._end(process, generation)
        assert found is not None, "has_ended says so"  # noqa: S101
        return found

    def _end(self, process: str, generation: int) -> DeliveryProgress | None:
        """Replace ``process``, and write its end. A crash before the end is committed leaves an old
        shard that goes on when it is started again.

        Raises:
            Unavailable: it has begun anew meanwhile.
        """
        output, topic = self._output, self._names.progress(process)
        life = self.origin.life
        writer = self._log.transactional_writer(
            transactional_id(self._context.pipeline.name, process)
        )
        crash_point("delivery.earlier_fenced")
        try:
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
            raise Unavailable(f"{process}, which is to end, has begun anew: {error}") from error
        finally:
            writer.close()
        has_ended(output.name, output.numbers, generation, last)
        return last
