"""Headers whose names are not UTF-8, which Kafka allows and the Python client cannot give.

The client makes a list of (name, value), in which such a name stays unset, and raises the error of
the first one. The list stays with the message; reading an unset name crashes the interpreter.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from typing import Any, Final

from anabranch.ports import Headers

UNKNOWN_NAME: Final = "\udcff"
"""Name of a header whose bytes the client does not give: of several names in one record that are
not UTF-8, it gives the first one.
"""


def first_name(error: SystemError) -> bytes | None:
    """Return the first name that is not UTF-8, of which ``error`` came; None: another cause."""
    cause = error.__cause__
    while isinstance(cause, SystemError):  # one for each further name
        cause = cause.__cause__
    return cause.object if isinstance(cause, UnicodeDecodeError) else None


def readable_headers(headers: Sequence[Any], first: bytes) -> Headers:
    """Return ``headers``, as the client made them, with all names set.

    Bytes of a name that are not UTF-8 become surrogates (``surrogateescape``), which no other name
    has. ``first`` is the first name that is not UTF-8.
    """
    # The collector's view of a pair has no unset entries: a pair without a name is its value alone.
    unset = [id(pair) for pair in headers if len(gc.get_referents(pair)) == 1]
    names = dict.fromkeys(unset[1:], UNKNOWN_NAME)
    names |= {pair: first.decode("utf-8", "surrogateescape") for pair in unset[:1]}
    return [
        (names[id(pair)], gc.get_referents(pair)[0]) if id(pair) in names else pair
        for pair in headers
    ]
