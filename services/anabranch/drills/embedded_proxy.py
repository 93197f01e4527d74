"""The process of the proxy that the fault drills cut and heal (``drills.proxy``)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.drills import links
from anabranch.drills.links import Link
from anabranch.up.owned_server import OwnedServer
from anabranch.up.tcp_ports import LOOPBACK, port_is_free

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 2.0

_PAUSE_MS: Final = 20


class EmbeddedProxy(OwnedServer):
    """The proxy of all links of a deployment. Not thread-safe. Its ports are the links'; cuts
    outlive a crash of it.
    """

    def __init__(self, state_dir: Path, of: Sequence[Link]) -> None:
        """Nothing is started; the links are described in ``state_dir``, none of them cut."""
        folder = links.directory_of(state_dir)
        links.lay(folder, of)
        super().__init__("proxy of the drills", folder, "proxy.log", pause_ms=_PAUSE_MS)
        self._of = tuple(of)

    @property
    def address(self) -> str:
        """Where it listens, for people."""
        ports = sorted(link.port for link in self._of)
        return f"{LOOPBACK}, {len(ports)} ports from {ports[0]}" if ports else LOOPBACK

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start it and wait until it listens; its address. Does nothing when it runs already.

        Raises:
            Unavailable: it ended (a port is taken) or did not listen in time; the text has the end
                of its log.
        """
        if self.alive():
            return self.address
        if self._run(
            [sys.executable, "-m", "anabranch.drills.proxy", str(self._dir)],
            self._answers,
            timeout_s,
        ):
            return self.address
        raise self._ended()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """End it. Idempotent."""
        super().stop(timeout_s)

    def _answers(self) -> bool:
        return not any(port_is_free(link.port) for link in self._of)
