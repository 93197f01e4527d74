"""Who may look at the page.

On loopback whoever is on the machine, and nobody whom a foreign name leads there (a web page that
has its own name point to 127.0.0.1 would otherwise read it). Beyond loopback whoever has the token:
programs send it as a bearer token, browsers once, by the form, and then a cookie that follows from
it. The cookie does not tell the token, and holds for as long as the token is the same.
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
    """``token``: None on loopback only."""

    def __init__(self, token: str | None) -> None:
        self._token = None if token is None else token.encode()

    @property
    def needs_token(self) -> bool:
        """Whether anybody has to say one."""
        return self._token is not None

    def is_host(self, host: str) -> bool:
        """Whether a browser may request the page under this name (the header ``Host``)."""
        name = host if host.endswith("]") else host.rpartition(":")[0] or host
        return self._token is not None or name.lower() in _LOOPBACK

    def is_token(self, given: str) -> bool:
        """Whether that is the token."""
        return self._token is not None and hmac.compare_digest(
            _digest(self._token), _digest(given.encode())
        )

    def cookie(self) -> str:
        """The value of the cookie for who has sent the token."""
        assert self._token is not None, "called where a token is needed"  # noqa: S101
        return hmac.new(self._token, b"anabranch page", hashlib.sha256).hexdigest()

    def admits(self, headers: Mapping[str, str], cookies: Mapping[str, str]) -> bool:
        """Whether a request with these may see the page. Names of headers are in lower case."""
        if self._token is None:
            return True
        header = headers.get("authorization", "")
        if header[: len(_BEARER)].lower() == _BEARER:
            return self.is_token(header[len(_BEARER) :])
        return hmac.compare_digest(cookies.get(COOKIE, "").encode(), self.cookie().encode())


def _digest(secret: bytes) -> bytes:
    """Of one length, so that comparing tells nothing of the other's."""
    return hashlib.sha256(secret).digest()
