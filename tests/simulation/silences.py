"""Which silences of inputs a run has, those of its faults and those of its data, and what
they leave to be judged.
"""

from __future__ import annotations

from anabranch.pipeline.waits import waits
from simulation import workload
from simulation.world import Run


def only_silence(run: Run) -> bool:
    """Nothing fails but inputs."""
    return (
        run.options.is_honest
        and not run.options.changes
        and all(f.kind.startswith("silent") for f in run.faults)
    )


def is_ever_silent_for(run: Run, silence_ms: int) -> bool:
    """Whether a partition of an input has no good record for so long, before the data ends,
    without any fault.
    """
    return bool(silent_by_themselves(run, silence_ms))


def silent_by_themselves(run: Run, silence_ms: int) -> set[str]:
    """Return the sources of which a partition has no good record for so long, before the data ends,
    without any fault.
    """
    spoken = {
        (source, partition): 0
        for source in run.options.sources
        for partition in run.options.partitions_of(source)
    }
    found: set[str] = set()
    for each in run.sent:
        if each.at_ms - spoken.get((each.source, each.partition), 0) >= silence_ms:
            found.add(each.source)
        if each.row is not None:
            spoken[each.source, each.partition] = each.at_ms
    return found | {
        source
        for (source, _), at_ms in spoken.items()
        if workload.data_end_ms(run.options) - at_ms >= silence_ms
    }


def speaks_in_time(run: Run) -> bool:
    """No producer is silent by itself for so long that a stage would not wait for it: a
    bucket is whole some time after its last record.
    """
    wait_ms = min(
        (waits(run.pipeline, stage.name).first_ms for stage in run.options.stages), default=0
    )
    return not is_ever_silent_for(
        run, wait_ms - run.options.bucket_ms - run.options.out_of_orderness_ms
    )


def is_for_good(run: Run) -> bool:
    """Return whether an input never comes back, and no one gives it up."""
    return run.options.scenario != "given up" and any(
        fault.kind == "silent for good" for fault in run.faults
    )
