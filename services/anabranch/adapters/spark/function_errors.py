"""Explanation of an error that a stage's function raised while it built its query: Spark's sentence
without the plan, and the place in the user's SQL or Python text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException, QueryContextType

from anabranch.pipeline.transforms import raised_at
from anabranch.protocol.errors import headline

if TYPE_CHECKING:
    from anabranch.pipeline.model import Stage

_NOISE: Final = re.compile(r"\s*SQLSTATE: \w+\s*\Z| on search path \[[^]]*\]")
"""Parts of Spark's text that say nothing to the author of a function."""
_PARSER_POSITION: Final = re.compile(r"\(line ([0-9]+), pos ([0-9]+)\)")
"""Position of a syntax error in Spark's text: line from 1, column from 0. The parser's errors have
no query context.
"""
_HINTS: Final = {
    "ATTRIBUTE_NOT_SUPPORTED": "it is neither a column nor a method of this DataFrame",
    "UNBOUND_SQL_PARAMETER": "give it a value in the stage's `parameters`",
    "STREAMING_OUTPUT_MODE.UNSUPPORTED_OPERATION": (
        "a group without a time window never ends: group by window(event_time, '10 seconds') as"
        " well"
    ),
    "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING": (
        "group by window(event_time, '10 seconds'), or derive a processor from"
        " anabranch.stateful.BatchSafeProcessor"
    ),
}
"""Advice by Spark's error condition, where Spark's own sentence gives none that applies here."""
_ASKS_FOR_ROWS: Final = "Queries with streaming sources must be executed with writeStream.start()"
_SORTS: Final = "Sorting is not supported on streaming DataFrames"
"""Spark gives this error and the one before no condition."""
_ONE_SENTENCE: Final = frozenset(
    {
        "NON_TIME_WINDOW_NOT_SUPPORTED_IN_STREAMING",
        "TABLE_OR_VIEW_NOT_FOUND",
        "UNBOUND_SQL_PARAMETER",
    }
)
"""Conditions whose text continues with advice that does not apply to a stage."""


def explain(stage: Stage, reference: str, function: Callable[..., Any], error: Exception) -> str:
    """Explain ``error`` to the author of a stage: return what it says, where it is in the user's
    text, and that line of the text.

    Args:
        stage: The stage.
        reference: The function's name in the pipeline file.
        function: The function that raised the error, or whose query did.
        error: Exception that the function or the query raised.
    """
    said = _sentence(stage, error)
    if stage.sql is not None:
        place = _place_in_sql(stage.sql, error)
        if place is None:
            return f"{reference}: {said}"
        line, start, stop = place
        text = stage.sql.splitlines()[line - 1]
        marks = " " * start + "^" * max(1, min(stop, len(text)) - start)
        return f"{reference}, line {line}, position {start + 1}: {said}\n    {text}\n    {marks}"
    frame = raised_at(error, function)
    if frame is None:
        return f"{reference}: {said}"
    return f"{reference}, {frame.place}: {said}\n    {frame.text}"


def _sentence(stage: Stage, error: Exception) -> str:
    """Return the text of ``error`` in one line, with advice."""
    if isinstance(error, Py4JJavaError):  # one that PySpark has no class for
        return f"raised {headline(str(error.java_exception.toString()))}"
    if not isinstance(error, PySparkException):
        return f"raised {type(error).__name__}: {error}"
    condition = error.getCondition() or ""
    text = _NOISE.sub("", error.getMessage())
    if text.startswith(_ASKS_FOR_ROWS):
        return (
            "asks for rows, as count(), collect(), show() and toPandas() do; a function describes"
            " a query and returns it as a DataFrame, which anabranch runs"
        )
    if text.startswith(_SORTS):
        return "sorts a stream, which has no end; leave it out: outputs are in order of event time"
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    if condition in _ONE_SENTENCE:
        lines = [lines[0].partition(". ")[0]]
    hint = _HINTS.get(condition)
    if condition == "TABLE_OR_VIEW_NOT_FOUND":
        hint = f"a query knows the inputs of its stage by name: {', '.join(stage.arguments)}"
    said = " ".join(lines)
    return said if hint is None else f"{said.rstrip('.')}; {hint}"


def _place_in_sql(sql: str, error: Exception) -> tuple[int, int, int] | None:
    """Return the line of ``sql``, from 1, and the columns, from 0, at which the part that ``error``
    names begins and ends; None: it names none.
    """
    lines = sql.splitlines()
    if not isinstance(error, PySparkException):
        return None
    for context in error.getQueryContext():
        if context.contextType() != QueryContextType.SQL:
            continue
        start, stop = context.startIndex(), context.stopIndex() + 1
        before = sql[:start].splitlines() or [""]
        if sql[:start].endswith("\n"):
            before.append("")
        column = len(before[-1])
        if len(before) <= len(lines):
            return len(before), column, column + stop - start
    parsed = _PARSER_POSITION.search(str(error))
    if parsed is None or not 1 <= int(parsed[1]) <= len(lines):
        return None
    return int(parsed[1]), int(parsed[2]), int(parsed[2]) + 1
