"""What did a query die of? The true cause, in words for whoever wrote the function."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final

from anabranch.protocol.errors import (
    AnabranchError,
    ConfigurationError,
    DataMissing,
    StageFunctionError,
    Unavailable,
)
from anabranch.runtime.logs import short

_REPORTED: Final = re.compile(r"anabranch\.protocol\.errors\.(\w+): (.*)")
"""An error of this project in the traceback of a task."""
_FUNCTION_SIGNS: Final = (
    "PythonException",
    "UDF",
    "SparkArithmeticException",
    "SparkRuntimeException",
    "MapInBatchEvaluator",
)
"""What stands in Spark's text when a function fails in a task; the last: its batches have too
few columns.
"""


def cause_of(
    error: Exception,
    stage: str,
    functions: Sequence[str],
    buckets: tuple[int, int] | None,
    known: BaseException | None,
) -> Exception:
    """The error to end the process with.

    Args:
        error: What Spark raised.
        stage: The stage's name.
        functions: Of the stage, as the pipeline file names them.
        buckets: First and last of the batch that ran; None: none did.
        known: What this process itself met in the batch, or in planning.
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
    if reported is not None:  # of the reader or writer in a task: not the function's fault
        kinds = {kind.__name__: kind for kind in (DataMissing, Unavailable, ConfigurationError)}
        return kinds.get(reported[1], AnabranchError)(reported[2])
    if any(sign in text for sign in _FUNCTION_SIGNS):
        return StageFunctionError(
            f"stage {stage}{where}, function {', '.join(functions)}: {short(text)}"
        )
    return error
