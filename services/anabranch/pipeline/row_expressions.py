"""SQL expressions over the columns of a stream that say how much each row matters (``shed: {by:
...}`` of a stage).

They are evaluated on blocks of columns where a stage reads them, before Spark. So they are those of
Polars, as queries of ``anabranch tap``, not of Spark: operators, ``CASE``, and functions of values.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from anabranch.protocol.errors import StageFunctionError

if TYPE_CHECKING:
    import polars as pl
    import pyarrow as pa


CHARS_MAX: Final = 2_000
"""Maximum length of an expression. Polars parses and evaluates a chain of operators by recursion:
one of tens of thousands of characters overflows the stack, which ends the process without a word,
and one of some thousands takes seconds for each block.
"""


def wrong_syntax(expression: str) -> str | None:
    """Return why ``expression`` is none, is too long, or names no column; None if it may be
    one.
    """
    if len(expression) > CHARS_MAX:
        return (
            f"it has {len(expression)} characters, and {CHARS_MAX} are the most: write a function"
            " instead (`shed: {transform: MODULE:FUNCTION}`)"
        )
    try:
        names = _parsed(expression).meta.root_names()
    except Exception as error:  # noqa: BLE001 - Polars has an error of its own for each mistake
        return f"not an SQL expression: {error}"
    return None if names else "it names no column, so all rows would matter as much"


def importance_of(rows: pa.Table, expression: str) -> pa.Array:
    """Return how much each row matters.

    Raises:
        StageFunctionError: a column is missing, or the expression gives no number, or no truth
            value, for each row.
    """
    import polars as pl

    named = f"shed by {expression!r}"
    try:
        parsed = _parsed(expression)
        # Only what it needs: Polars has not every type that a stream may have.
        used = rows.select(list(dict.fromkeys(parsed.meta.root_names())))
        found = pl.DataFrame(pl.from_arrow(used)).select(parsed).to_series()
    except Exception as error:  # Polars has an error of its own for each mistake
        raise StageFunctionError(f"{named}: {type(error).__name__}: {error}") from error
    if not (found.dtype.is_numeric() or found.dtype == pl.Boolean):
        raise StageFunctionError(f"{named}: gives {found.dtype}, not a number or a truth value")
    if len(found) != rows.num_rows:
        raise StageFunctionError(
            f"{named}: gave {len(found)} numbers for {rows.num_rows} rows; it must say of each row"
            " how much it matters"
        )
    return found.cast(pl.Float64).to_arrow()


def check_on(schema: pa.Schema, expression: str) -> None:
    """Check that ``expression`` can be evaluated on rows with the columns of ``schema``.

    Raises:
        StageFunctionError: it cannot.
    """
    importance_of(schema.empty_table(), expression)


def _parsed(expression: str) -> pl.Expr:
    import polars as pl

    return pl.sql_expr(expression)
