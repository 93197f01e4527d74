"""How the Redis client behaves: quick to give up, because every caller can do without the index."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Where the index is and how long an answer may take."""

    url: str = field(repr=False)
    """``redis://host:port/db``, ``rediss://`` for TLS."""
    prefix: str = ""
    """Stands before every key, so that pipelines can share a server; a pipeline's name with a
    separator, such as ``toll-road:``.
    """
    timeout_ms: int = 500
    """For connecting and for each answer. The client's own default is 5 s: longer than the
    bound on a pipeline's delay.
    """
