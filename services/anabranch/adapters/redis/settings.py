"""Settings of the Redis client: short timeouts, because every caller can do without the index."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class RedisSettings:
    """Address of the index, and time allowed for an answer."""

    url: str = field(repr=False)
    """``redis://host:port/db``, or ``rediss://`` for TLS."""
    prefix: str = ""
    """Prefix of every key, so that pipelines can share a server: a pipeline's name with a
    separator, such as ``toll-road:``.
    """
    timeout_ms: int = 500
    """Timeout of connecting and of each answer, in ms. The client's own default of 5 s is longer
    than the bound on a pipeline's delay.
    """
