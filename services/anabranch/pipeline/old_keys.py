"""Renamed keys and values of pipeline files: each old one is one mistake that names the new one,
and reading continues with the new one.
"""

from __future__ import annotations

from typing import Final

KEYS: Final = {
    "stime": "event_time",
    "disorder": "out_of_orderness",
    "idle": "idle_timeout",
    "ahead": "max_ahead",
    "when_late": "on_missing_input",
    "reach": "state_horizon",
}
"""Old key to new key; the values are the same as before."""

ENTRIES: Final[dict[tuple[str, object], tuple[str, object]]] = {
    ("end", "last_record"): ("bounded", True),
    ("end", "never"): ("bounded", False),
    ("late", "restamp"): ("late", "reassign"),
}
"""(old key, old value) to (new key, new value)."""


def renamed(key: str, value: object, known: tuple[str, ...]) -> tuple[str, object, str] | None:
    """Return (new key, new value, message) of a renamed entry of a mapping that takes the keys
    ``known``; None: the entry was not renamed.
    """
    if key in KEYS and KEYS[key] in known and key not in known:
        return KEYS[key], value, f"{key} is now called {KEYS[key]}; rename it"
    if not isinstance(value, str) or (key, value) not in ENTRIES:
        return None
    new, to = ENTRIES[key, value]
    if new not in known:
        return None
    return (
        new,
        to,
        (
            f"{key}: {value} is now {new}: {to if isinstance(to, str) else str(to).lower()};"
            " replace it"
        ),
    )
