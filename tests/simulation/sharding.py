"""A run whose sources have shards, as its checkers judge it: each shard is a source of its own."""

from __future__ import annotations

from dataclasses import replace

from simulation.options import Options
from simulation.world import Run


def by_shard(run: Run) -> Run:
    """``run`` with a source for each shard, which stages read by its own name; what was sent was
    sent to the shard that reads its partition.
    """
    options = run.options
    if options.shards == 1:
        return run
    sent = [
        replace(each, source=f"{each.source}.{each.partition % options.shards}")
        for each in run.sent
    ]
    return replace(run, options=_options(options), sent=sent)


def _options(options: Options) -> Options:
    def streams(reads: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(
            each
            for name in reads
            for each in (
                [f"{name}.{shard}" for shard in range(options.shards)]
                if name in options.sources
                else [name]
            )
        )

    stages = tuple(replace(stage, reads=streams(stage.reads)) for stage in options.stages)
    return replace(options, sources=tuple(options.streams), stages=stages)
