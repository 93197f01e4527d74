"""Addresses that may hold a password: detection, display without it, and the environment variables
that hold it instead.

Both functions err on the side of secrecy: text that only looks like a password counts as one.
"""

from __future__ import annotations

_QUERY = "password="


def holds_password(url: str) -> bool:
    """Return whether ``url`` is itself a secret: ``scheme://user:password@host``, or ``password=``
    among its options.
    """
    user, at, _ = url.partition("://")[2].rpartition("@") if "://" in url else url.rpartition("@")
    return bool(at and ":" in user) or _QUERY in url


def without_password(url: str) -> str:
    """Return ``url`` as it may be shown: without user, password and options."""
    scheme, mark, rest = url.partition("://") if "://" in url else ("", "", url)
    return f"{scheme}{mark}{rest.rpartition('@')[2].partition('?')[0]}"


def variables_of(cluster: str) -> str:
    """Return the prefix of the environment variables that hold the user and secret for ``cluster``,
    another owner's cluster by its name in the pipeline file.
    """
    return f"ANABRANCH_CLUSTER_{cluster.upper().replace('-', '_')}_"
