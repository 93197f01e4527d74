"""States of the boundary logs that a run left, as the services' own log state has them."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.protocol.log.boundary_log import LogState, Outcome
from anabranch.protocol.log.records import LogEntry
from simulation.raw_logs import appended_ms, boundary_log
from simulation.world import Run


def log_states(run: Run, stream: str) -> Iterator[tuple[int, int, LogEntry, Outcome, LogState]]:
    """Yield (time, offset, record, what became of it, state after it) of each record of the
    boundary log of ``stream``, trimmed ones included. There is one state, which changes.
    """
    log_state, at_ms = LogState(run.pipeline.stream_writers(stream)), 0
    if (source := run.pipeline.sources.get(stream.partition(".")[0])) is not None:
        source.stream(stream).tell(log_state)
    times = appended_ms(run, run.pipeline.topic_names.boundaries(stream))
    for offset, entry in boundary_log(run, stream):
        at_ms = times.get(offset, at_ms)
        yield at_ms, offset, entry, log_state.apply(offset, entry), log_state
