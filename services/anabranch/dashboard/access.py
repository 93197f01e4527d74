"""Access control of the page.

On loopback every user of the machine may see the page without a token, but only under a loopback
name: otherwise a web page whose own name resolves to 127.0.0.1 (DNS rebinding) could read it.
Beyond loopback a request needs the token. Programs send it as a bearer token. Browsers send it once
by the login form, and then a cookie that is computed from it. The cookie does not reveal the token,
and is valid until the token changes.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

COOKIE: Final = "anabranch_page"
_LOOPBACK: Final = frozenset({"localhost", "127.0.0.1", "[::1]"})
_BEARER: Final = "bearer "


class Access:
    """Decisions on requests."""

    def __init__(self, token: str | None) -> None:
        """Demand ``token``; None, which is for loopback only: demand none."""
        self._token = None if token is None else token.encode()

    @property
    def needs_token(self) -> bool:
        """Whether requests need a token."""
        return self._token is not None

    def is_host(self, host: str) -> bool:
        """Return whether a browser may request the page under the name in the header ``Host``."""
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return self._token is not None or name.lower() in _LOOPBACK

    def is_token(self, given: str) -> bool:
        """Return whether ``given`` is the token, in constant time."""
        return self._token is not None and hmac.compare_digest(
            _digest(self._token), _digest(given.encode())
        )

    def cookie(self) -> str:
        """Return the value of the cookie for a browser that has sent the token."""
        assert self._token is not None, "called where a token is needed"  # noqa: S101
        return hmac.new(self._token, b"anabranch page", hashlib.sha256).hexdigest()

    def admits(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
        """Return whether a request may see the page. Names of headers must be in lower case."""
        if self._token is None:
            return True
        header = headers.get("authorization", "")
        if header[: len(_BEARER)].lower() == _BEARER:
            return self.is_token(header[len(_BEARER) :])
        return hmac.compare_digest(cookies.get(COOKIE, "").encode(), self.cookie().encode())


def _digest(secret: bytes) -> bytes:
    """Return a hash of fixed length, so that comparing takes the same time for any length."""
    return hashlib.sha256(secret).digest()
