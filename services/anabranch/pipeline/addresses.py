"""Addresses that may hold a password: whether one does, and how it is shown; and where the password
stands instead.

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


def variables_of(cluster: str) -> str:
    """What the variables begin with that say who reads on a cluster of another owner, which the
    pipeline file names so.
    """
    return f"ANABRANCH_CLUSTER_{cluster.upper().replace('-', '_')}_"
