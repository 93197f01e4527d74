"""Options of one input as the driver passes them to Spark's Python workers, as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """Settings of a reader, passed as one JSON option."""

    blocks: Mapping[str, str]
    """Topics of the blocks, by stream of this input, without a dot and the replica's id."""
    query: str
    """Name of the query that reads: a replica may run two."""
    stream: str
    """Name of the input."""
    kafka: str
    cluster: str
    """Name of the cluster in the pipeline file; empty for the pipeline's own."""
    socket: str
    schema: str
    """Columns of the stream (``codec.blocks.schema_text``)."""
    columns: tuple[str, ...]
    """Columns that the query uses. The others are passed as null, which costs nothing."""
    optional: tuple[str, ...]
    """Columns of a source that may be null. They are null in blocks from before the record had
    them.
    """
    width_ms: int
    splits_max: int
    is_own: bool
    """Whether the stage's participant also writes the stream (``streams.block_reader``)."""
    ordered: bool
    """Whether to give the rows of a batch in canonical order, in one split: for plans that are not
    batch-safe.
    """
    kept_salt: int
    """Salt of the choice of rows that a plan keeps (``protocol.stage.kept_rows``)."""
    kept_by: tuple[str, ...] | None = None
    """Key columns by which that choice is made; empty: each row counts by all of its columns;
    None: the input is read whole, whatever the plan keeps.
    """
    kept_function: str = ""
    """Function, as ``module:function``, by which the choice is made in place of chance; empty:
    none.
    """
    kept_expression: str = ""
    """Expression by which it is made (``pipeline.row_expressions``); empty: none."""
    kept_schema: str = ""
    """Columns of the stream for that function or expression, used by the query or not; empty
    without one.
    """
    share_by: tuple[str, ...] = ()
    """Key columns by which the rows of the input are divided among the shards of the stage; empty:
    the stage takes all rows.
    """
    share_bits: str = ""
    """Interval of the key's hash that the stage takes (``protocol.stage.intervals``)."""
    pipeline: str = ""
    """Path of the pipeline file, next to which the function is found."""

    @property
    def keeps_by_importance(self) -> bool:
        """Whether a function or an expression says which rows a plan keeps."""
        return bool(self.kept_function or self.kept_expression)

    @property
    def shards(self) -> int:
        """Number of shards of equal size that together take all rows of the input."""
        return 1 << len(self.share_bits) if self.share_by else 1

    def to_json(self) -> str:
        """Return the value of the option ``config``."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @classmethod
    def from_json(cls, text: str) -> SourceOptions:
        """Parse what ``to_json`` returned."""
        fields = json.loads(text)
        listed = {name: tuple(fields[name]) for name in ("columns", "optional", "share_by")}
        if fields["kept_by"] is not None:
            listed["kept_by"] = tuple(fields["kept_by"])
        return cls(**(fields | listed))
