"""Cause of a query's failure, in words for the author of the stage's function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from anabranch.process.logging_setup import short
from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    StageFunctionError,
    Unavailable,
)

_REPORTED: Final = re.compile(r"anabranch\.protocol\.errors\.(\w+): (.*)")
"""Pattern of an error of this project in the traceback of a task."""
_DISK: Final = re.compile(
    r"Mkdirs failed to create \S+"
    r"|java\.(?:io|nio\.file)\.\w+: [^\n]*?"
    r"(?:No space left on device|Read-only file system|Permission denied)"
    r"|java\.nio\.file\.AccessDeniedException: \S+"
    r"|\[CANNOT_LOAD_STATE_STORE[^\n]*"
)
"""Pattern of a disk's error in Java's text. A task that keeps state runs within the one that gives
results, so such a text may contain the signs of a function, too.
"""
_EXECUTOR: Final = re.compile(r"\((\S+) executor [0-9]+\)")
"""Pattern of the machine that ran a task on a cluster, in Spark's text."""
_FUNCTION_SIGNS: Final = (
    "PythonException",
    "UDF",
    "SparkArithmeticException",
    "SparkRuntimeException",
    "MapInBatchEvaluator",
)
"""Words in Spark's text when a function fails in a task. The last: its batches have too few
columns.
"""


def cause_of(
    error: Exception,
    stage: str,
    functions: Sequence[str],
    buckets: tuple[int, int] | None,
    known: BaseException | None,
) -> Exception:
    """Return the error to end the process with.

    Args:
        error: The error that Spark raised.
        stage: The stage's name.
        functions: The stage's functions, as the pipeline file names them.
        buckets: First and last bucket of the batch that ran; None if none did.
        known: The error that this process itself raised in the batch or in planning.
    """
    where = "" if buckets is None else f", buckets {buckets[0]}..{buckets[1]}"
    if isinstance(known, StageFunctionError):
        return StageFunctionError(f"stage {stage}{where}: {known}")
    if isinstance(known, Exception):
        return known
    text = str(error)
    reported = _REPORTED.search(text)
    if reported is not None and reported[1] == "StageFunctionError":
        return StageFunctionError(f"stage {stage}{where}: {reported[2]}")
    if reported is not None:  # from the reader or writer in a task, not from the function
        kinds = {kind.__name__: kind for kind in (DataMissing, Unavailable, ConfigurationError)}
        return kinds.get(reported[1], AnabranchError)(reported[2])
    disk, executor = _DISK.search(text), _EXECUTOR.search(text)
    if disk is not None:
        there = "" if executor is None else f"executor on {executor[1]}: "
        return Unavailable(
            f"{there}Spark cannot use its checkpoint: {disk[0]}: see that the disk of --state-dir"
            " has space, and that Spark's user may read and write there, on a cluster from each"
            " machine"
        )
    if any(sign in text for sign in _FUNCTION_SIGNS):
        return StageFunctionError(
            f"stage {stage}{where}, function {', '.join(functions)}: {short(text)}"
        )
    return error
