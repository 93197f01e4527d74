"""Parts as lists that JSON can carry: in the offsets of a query, and from Spark's tasks to the
driver.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

from anabranch.codec.boundary_guard import check_part
from anabranch.protocol.errors import RemoteProtocolError
from anabranch.protocol.log.records import Part


def parts_to_json(parts: Iterable[Part]) -> list[list[Any]]:
    """Return ``parts`` as lists that JSON can carry: first the attempts, then one list per part
    that names its attempt by number.

    Digests are texts: other readers of JSON keep numbers as doubles.
    """
    attempts: dict[str, int] = {}
    rows = [
        [
            p.bucket,
            p.partition,
            attempts.setdefault(p.attempt, len(attempts)),
            p.blocks,
            p.offset_first,
            p.offset_next,
            p.rows,
            f"{p.digest:x}",
            p.size_bytes,
        ]
        for p in parts
    ]
    return [list(attempts), *rows]


def parts_from_json(value: object) -> tuple[Part, ...]:
    """Return the parts that ``parts_to_json`` wrote.

    Raises:
        RemoteProtocolError: ``value`` was not written by ``parts_to_json``.
    """
    if not isinstance(value, list):
        raise RemoteProtocolError("not a list of parts")
    try:
        attempts, *rows = cast("list[list[Any]]", value)
        parts = tuple(
            [
                Part(b, p, attempts[a], n, first, end, count, int(digest, 16), size)
                for b, p, a, n, first, end, count, digest, size in rows
            ]
        )
        for part in parts:
            check_part(part)
    except (TypeError, ValueError, IndexError, KeyError) as error:
        raise RemoteProtocolError(f"not a list of parts: {error}") from error
    return parts
