"""Addresses that may hold a password: whether one does, and how it is shown.

Both err on the side of secrecy: what only looks like a password is one.
"""

from __future__ import annotations

_QUERY = "password="


def holds_password(url: str) -> bool:
    """Whether ``url`` is a secret itself: ``scheme://user:password@host``, or ``password=``
    among its options.
    """
    user, at, _ = url.partition("://")[2].rpartition("@") if "://" in url else url.rpartition("@")
    return bool(at and ":" in user) or _QUERY in url


def without_password(url: str) -> str:
    """``url`` as it may be shown: without user, password and options."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}"
