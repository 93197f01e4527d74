"""Server process of the fault drills' proxy (``local.drill_proxy``)."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.local import drill_links
from anabranch.local.drill_links import Link
from anabranch.local.owned_server import OwnedServer
from anabranch.local.tcp_ports import LOOPBACK, port_is_free

START_TIMEOUT_S: Final = 20.0
STOP_TIMEOUT_S: Final = 2.0

_PAUSE_MS: Final = 20


class EmbeddedProxy(OwnedServer):
    """Proxy of all links of a deployment. Not thread-safe. Listens on the links' ports; cuts
    outlive its crash.
    """

    def __init__(self, state_dir: Path, of: Sequence[Link]) -> None:
        """Write the links ``of`` the deployment to ``state_dir``, none of them cut; start
        nothing.
        """
        folder = drill_links.directory_of(state_dir)
        drill_links.lay(folder, of)
        super().__init__("proxy of the drills", folder, "proxy.log", pause_ms=_PAUSE_MS)
        self._of = tuple(of)

    @property
    def address(self) -> str:
        """Range of ports on which it listens, for messages."""
        ports = sorted(link.port for link in self._of)
        return f"{LOOPBACK}, {len(ports)} ports from {ports[0]}" if ports else LOOPBACK

    def start(self, timeout_s: float = START_TIMEOUT_S) -> str:
        """Start the proxy, unless it runs, wait until it listens, and return its address.

        Raises:
            Unavailable: the proxy ended (a port is taken) or did not listen in time; the text has
                the end of its log.
        """
        if self.alive():
            return self.address
        if self._run(
            [sys.executable, "-m", "anabranch.local.drill_proxy", str(self._dir)],
            self._answers,
            timeout_s,
        ):
            return self.address
        raise self._ended()

    def stop(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Stop the proxy. Idempotent."""
        super().stop(timeout_s)

    def _answers(self) -> bool:
        """Return whether the proxy listens on the ports of all links."""
        return not any(port_is_free(link.port) for link in self._of)
