"""Inputs of a stage that belong to other pipelines, or are on other clusters: how a replica waits
for them, reads them, and receives their heartbeats.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.pipeline.control_topics import bound_control_topics, neighbour_control_topics
from anabranch.protocol.errors import Unavailable
from anabranch.streams.distant_control import DistantControl, JointControl
from anabranch.streams.heartbeats import ControlReader
from anabranch.streams.log_end import OwnContact
from anabranch.streams.stream_logs import input_state, open_elsewhere, open_stream

if TYPE_CHECKING:
    from contextlib import AbstractContextManager

    from anabranch.ports import EventLog
    from anabranch.process.frame import ServiceContext, ServiceStatus
    from anabranch.streams.boundary_reader import StreamReader

_LOOK_S: Final = 1.0
"""Interval between checks for missing topics of another pipeline, in seconds."""


class BoundInputs:
    """Inputs of one replica of ``stage``, with the clusters of those that are not on the pipeline's
    own.
    """

    def __init__(self, context: ServiceContext, stage: str) -> None:
        """Note the inputs; no broker is contacted yet."""
        self._context, self._stage = context, stage
        self._pipeline = context.pipeline
        self._reads = self._pipeline.inputs(stage)
        self.elsewhere: dict[str, EventLog] = {
            stream: context.log_of(stream)
            for stream in self._reads
            if self._pipeline.cluster_of(stream)
        }
        """Cluster of each input that is not on the pipeline's own."""
        self._opened: dict[str, StreamReader] = {}

    def await_topics(self, status: ServiceStatus) -> bool:
        """Wait for the topics of other pipelines that the stage reads. Return False if told to
        stop.

        Their owners may create them later, or never; the node's other stages run meanwhile. Topics
        on a cluster that does not answer are not waited for: the stage starts without that input.
        """
        clusters = sorted({self._pipeline.cluster_of(stream) for stream in self._reads})
        return all(self._await_on(cluster, status) for cluster in clusters)

    def _await_on(self, cluster: str, status: ServiceStatus) -> bool:
        """Wait for the topics on ``cluster``; empty: the pipeline's own."""
        context, pipeline = self._context, self._pipeline
        reads = [
            stream
            for stream in self._reads
            if stream in pipeline.bindings and pipeline.cluster_of(stream) == cluster
        ]
        missing = {pipeline.topic_names.boundaries(stream) for stream in reads}
        missing |= bound_control_topics(pipeline, reads, cluster).keys()
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
                    # "waiting" counts as ready: this pipeline's owner cannot create these topics.
                    status.state, status.waiting_for = "waiting", what
                    context.stopping.wait(_LOOK_S)
        finally:
            admin.close()
        status.state, status.waiting_for = "starting", None
        return not context.stopping.is_set()

    def open(self, stream: str, lock: AbstractContextManager[object]) -> StreamReader:
        """Open a reader of an input, which holds ``lock`` while its log state changes. The inputs
        have to be opened in the order of the pipeline: each shard before its halves.

        Raises:
            Unavailable: the input is on the pipeline's own cluster, which does not answer.
        """
        there = self.elsewhere.get(stream)
        if there is not None:
            return open_elsewhere(there, self._pipeline, stream, lock=lock)
        reader = open_stream(
            self._context.log,
            self._pipeline,
            stream,
            lock=lock,
            new_state=input_state(self._pipeline, stream, self._opened),
        )
        self._opened[stream] = reader
        return reader

    def open_control(self) -> JointControl:
        """Open a reader of the control topics of the replica's neighbours and of the writers of
        inputs on other clusters.
        """
        pipeline = self._pipeline
        return JointControl(
            ControlReader(self._context.log, neighbour_control_topics(pipeline, self._stage)),
            [
                DistantControl(
                    log, bound_control_topics(pipeline, [stream], pipeline.cluster_of(stream))
                )
                for stream, log in self.elsewhere.items()
            ],
        )

    def open_contact(self) -> OwnContact:
        """Return a probe that checks whether the pipeline's own cluster answers. The caller closes
        it.
        """
        names = self._pipeline.topic_names
        return OwnContact(self._context.log, names.boundaries(self._stage), self._context.threads)
