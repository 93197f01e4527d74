"""Followers of all inputs of a replica: opened with the replica, closed at its end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.codec.blocks import stream_schema
from anabranch.pipeline.offer_columns import not_as_offered
from anabranch.pipeline.source_columns import source_schema
from anabranch.processing.bound_inputs import BoundInputs
from anabranch.processing.follower import InputFollower
from anabranch.protocol.errors import ConfigurationError, RemoteProtocolError

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa

    from anabranch.process.frame import ServiceContext, ServiceStatus
    from anabranch.processing.replica import ReplicaRunner
    from anabranch.processing.replica_identity import ReplicaIdentity
    from anabranch.streams.boundary_reader import StreamReader

_SCHEMA_WAIT_S: Final = 0.1
"""Timeout for one wait for an input's columns, in seconds, between two checks of the stop signal.
"""


class InputFollowers:
    """Followers of a replica's inputs. They share one lock, which guards their log states."""

    def __init__(self, context: ServiceContext, own: ReplicaIdentity) -> None:
        """Note the inputs; no broker is contacted yet."""
        self._context, self._own = context, own
        self.bound = BoundInputs(context, own.stage_name)
        """The same inputs, by cluster and owner."""
        self.contact = self.bound.open_contact()
        """Probe that checks whether the pipeline's own cluster answers."""
        self.changed = context.threads.condition()
        """Lock of all log states, notified of new records."""
        self.by_stream: dict[str, InputFollower] = {}
        """Follower of each input; empty until ``start``."""

    @property
    def readers(self) -> Mapping[str, StreamReader]:
        """Reader of each input's log."""
        return {stream: follower.reader for stream, follower in self.by_stream.items()}

    def start(self) -> None:
        """Open the inputs' logs and follow them.

        Raises:
            Unavailable: the pipeline's own cluster does not answer.
        """
        for stream in self._own.reads:
            reader = self.bound.open(stream, self.changed)
            follower = self.by_stream[stream] = InputFollower(
                stream, reader, self.changed, self._context.threads
            )
            follower.start()

    def follow_through(self, runner: ReplicaRunner) -> None:
        """Let ``runner`` decide from now on how far each log is read."""
        for follower in self.by_stream.values():
            follower.runner = runner

    def check(self) -> None:
        """Raise the error that ended a follower, or that one is stuck. Call it every second."""
        for follower in self.by_stream.values():
            follower.check(self._context.clock.monotonic_ms())

    def schemas(self, status: ServiceStatus) -> Mapping[str, pa.Schema] | None:
        """Return the columns of each input; None if told to stop. Those of another stage's stream
        are in its log: wait until its first process has written them.

        Raises:
            ConfigurationError: the columns are not those that the stream's owner offers.
        """
        schemas: dict[str, pa.Schema] = {}
        for name in self._own.stage.reads:
            schema = self._schema(name, status)
            if schema is None or self._context.stopping.is_set():
                return None
            schemas[name] = schema
        return schemas

    def _schema(self, name: str, status: ServiceStatus) -> pa.Schema | None:
        """Return the columns of input ``name``; None if told to stop."""
        pipeline = self._context.pipeline
        stream = pipeline.input_streams(name)[0]
        if stream not in pipeline.stages:
            return source_schema(pipeline, name)
        follower, schema = self.by_stream[stream], None
        with self.changed:
            while schema is None and not self._context.stopping.is_set():
                follower.raise_error()
                schema, wanted = usable_columns(follower.columns())
                if schema is None:
                    status.state, status.waiting_for = "starting", f"{stream} to {wanted}"
                    self.changed.wait(_SCHEMA_WAIT_S)
        status.waiting_for = None
        if schema is None:
            return None
        made_by = pipeline.stages[stream]
        if made_by.offered is not None and (wrong := not_as_offered(made_by, schema)):
            raise ConfigurationError(f"stage {stream}, function {made_by.functions[0]}: {wrong}")
        return schema

    def slowest(self, runner: ReplicaRunner) -> str:
        """Return the input that delays the stage, with the trouble of reading it, if any."""
        name = runner.waiting_for()
        reader = self.by_stream[name].reader
        trouble = reader.trouble or reader.refused
        return f"{name}: {trouble}" if trouble else name

    def is_refused(self) -> bool:
        """Return whether an input that another owner writes does not count although it can be read
        (``StreamReader.refused``).
        """
        return any(follower.reader.refused for follower in self.by_stream.values())

    def close(self) -> None:
        """Ask the followers to end. Idempotent. ``contact`` stays open for them; the caller
        closes it last.
        """
        for follower in self.by_stream.values():
            follower.close()


def usable_columns(text: str) -> tuple[pa.Schema | None, str]:
    """Return the columns that a stream's log states in ``text``, or None and what the stream must
    do first, for a message. The participant that runs the stage may have written anything, and may
    still correct it.
    """
    if not text:
        return None, "start"
    try:
        return stream_schema(text), ""
    except RemoteProtocolError as error:
        return None, f"name columns that can be used: {error}"
