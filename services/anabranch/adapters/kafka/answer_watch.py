"""Watch for a client that contacts no broker any more.

If a broker that shuts down names no broker in its last metadata, librdkafka forgets the only one
that it knew, and answers no request of this client again (its issue 5301, open in 2.16). Nothing
tells such a client from one whose broker is away, so one that has long given no answer is replaced:
while the broker is away, a new client does no harm.
"""

from __future__ import annotations

from typing import Final

UNANSWERED_S: Final = 10.0
"""Time without any answer, in s, after which a client is replaced. Long, so that a client with a
slow connection is not replaced before it has one.
"""


class AnswerWatch:
    """Watch of one client's requests. Times are of a monotonic clock, in s."""

    def __init__(self) -> None:
        """Start with a client that was asked nothing."""
        self._since_s: float | None = None
        """Time of the first request since the last answer; None: each request was answered."""

    def answered(self) -> None:
        """Note that a broker has answered a request."""
        self._since_s = None

    def has_stopped(self, asked_s: float, now_s: float) -> bool:
        """Note that the request made at ``asked_s`` got no answer. Return whether the client must
        be replaced; then the watch begins anew, for the next client.
        """
        since_s = asked_s if self._since_s is None else self._since_s
        has_stopped = now_s - since_s >= UNANSWERED_S
        self._since_s = None if has_stopped else since_s
        return has_stopped
