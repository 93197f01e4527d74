"""Formats of users' values that sources have and outputs do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NoReturn

from anabranch.protocol.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import pyarrow as pa

    from anabranch.codec.framing import Register, SchemaOf
    from anabranch.codec.record_schema import RecordSchema


class ReadOnlyFormat:
    """Format without an encoder. ``name`` is its name in the pipeline file."""

    name = ""
    is_written: Final = False
    needs_registry: Final = True

    def encoder(self, _: pa.Schema, name: str, _register: Register | None, /) -> NoReturn:
        """Fail: see ``formats.Format``.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(f"output {name}: format {self.name} is only for sources")

    def from_json(
        self, record: RecordSchema, _: Register | None, /
    ) -> Callable[[Sequence[bytes]], list[bytes]]:
        """Fail: see ``formats.Format``.

        Raises:
            ConfigurationError: always.
        """
        raise ConfigurationError(
            f"record {record.name} is of format {self.name}, which is only read: send it with a"
            " producer of your own"
        )


def required(schema_of: SchemaOf | None, name: str) -> SchemaOf:
    """Return ``schema_of``, which the format ``name`` cannot do without.

    Raises:
        ConfigurationError: ``schema_of`` is None.
    """
    if schema_of is None:
        raise ConfigurationError(
            f"format {name} needs the registry that has its schemas: schema_registry: URL"
        )
    return schema_of
