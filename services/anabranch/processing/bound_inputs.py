"""The inputs of a stage that belong to other owners, and the clusters on which they are: what is
different about them for a replica.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.speakers import bound_speakers, neighbours_of
from anabranch.protocol.errors import Unavailable
from anabranch.runtime.distant_control import DistantControl, JointControl
from anabranch.runtime.heartbeats import ControlReader
from anabranch.runtime.log_end import OwnContact
from anabranch.runtime.stream_logs import open_elsewhere, open_stream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from anabranch.ports import EventLog
    from anabranch.runtime.boundary_reader import StreamReader
    from anabranch.runtime.service import ServiceContext, ServiceStatus

_LOOK_S: Final = 1.0
"""So often for topics that are not there yet."""


class BoundInputs:
    """Of one replica of ``stage``."""

    def __init__(self, context: ServiceContext, stage: str) -> None:
        """Nothing is contacted yet."""
        self._context, self._stage = context, stage
        self._pipeline = context.pipeline
        self._reads = self._pipeline.inputs(stage)
        self.elsewhere: dict[str, EventLog] = {
            stream: context.log_of(stream)
            for stream in self._reads
            if self._pipeline.cluster_of(stream)
        }
        """The clusters of inputs that are not on the own one."""

    def await_topics(self, status: ServiceStatus) -> bool:
        """Whether the topics of other pipelines that it reads are there; False: it must stop.

        Their owners may start later, or never: the other stages of the node go on. What is on a
        cluster that does not answer is not waited for: the stage does without it.
        """
        clusters = sorted({self._pipeline.cluster_of(stream) for stream in self._reads})
        return all(self._await_on(cluster, status) for cluster in clusters)

    def _await_on(self, cluster: str, status: ServiceStatus) -> bool:
        context, pipeline = self._context, self._pipeline
        reads = [
            stream
            for stream in self._reads
            if stream in pipeline.bindings and pipeline.cluster_of(stream) == cluster
        ]
        missing = {pipeline.topic_names.boundaries(stream) for stream in reads}
        missing |= bound_speakers(pipeline, reads, cluster).keys()
        if not missing:
            return True
        admin = context.log_of(reads[0]).admin()
        try:
            while missing and not context.stopping.is_set():
                try:
                    missing -= set(admin.partitions(sorted(missing)))
                    what = f"{', '.join(sorted(missing))}, of another pipeline"
                except Unavailable as error:
                    what = str(error)
                    if cluster:
                        context.logger.warning("cluster_silent", cluster=cluster, why=what)
                        break
                if missing:
                    # Ready as far as it can be: whether they come is not for its owner to say.
                    status.state, status.waiting_for = "waiting", what
                    context.stopping.wait(_LOOK_S)
        finally:
            admin.close()
        status.state, status.waiting_for = "starting", None
        return not context.stopping.is_set()

    def open(self, stream: str, lock: AbstractContextManager[object]) -> StreamReader:
        """A reader of an input, whosever it is, which holds ``lock`` while its log state changes.

        Raises:
            Unavailable: as of ``open_stream``, where it is on the own cluster.
        """
        there = self.elsewhere.get(stream)
        if there is not None:
            return open_elsewhere(there, self._pipeline, stream, lock=lock)
        return open_stream(self._context.log, self._pipeline, stream, lock=lock)

    def hearing(self) -> JointControl:
        """The neighbours of the replica, and who makes inputs elsewhere."""
        pipeline = self._pipeline
        return JointControl(
            ControlReader(self._context.log, neighbours_of(pipeline, self._stage)),
            [
                DistantControl(log, bound_speakers(pipeline, [stream], pipeline.cluster_of(stream)))
                for stream, log in self.elsewhere.items()
            ],
        )

    def contact(self) -> OwnContact:
        """What asks whether the own cluster answers; whoever takes it closes it."""
        names = self._pipeline.topic_names
        return OwnContact(self._context.log, names.boundaries(self._stage), self._context.threads)
