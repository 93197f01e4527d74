"""File of an auditor's nonces: those that it has drawn and not revealed yet. Readable by its owner
only.

A nonce is in the file before its hash is in the ledger, and until the nonce itself is. So a crash
at any point loses no nonce that the auditor has committed to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.disk.durable import put_file
from anabranch.protocol.errors import ConfigurationError

_OWNER_ALONE: Final = 0o600


class NonceFile:
    """Nonces of one auditor and pipeline: the implementation of ``ports.AuditNonces``."""

    def __init__(self, path: Path) -> None:
        """Read the file.

        Raises:
            ConfigurationError: the file cannot be read, or is no such file. Removing it loses the
                findings that its nonces would have led to, and nothing else.
        """
        self._path = path
        try:
            found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            self._nonces: dict[str, tuple[bytes, ...]] = {
                movement: tuple(map(bytes.fromhex, nonces)) for movement, nonces in found.items()
            }
        except (OSError, ValueError, AttributeError, TypeError):
            raise ConfigurationError(
                f"{path} does not hold an auditor's nonces, or cannot be read. Without it the"
                " auditor draws new ones, and the findings of the old ones are lost; to accept"
                " this, remove the file"
            ) from None

    def of(self, movement_id: str) -> tuple[bytes, ...]:
        """Return the nonces of a movement, the oldest first."""
        return self._nonces.get(movement_id, ())

    def keep(self, movement_id: str, nonces: Sequence[bytes]) -> None:
        """Replace the nonces of a movement by ``nonces``. They are durable when this returns.

        Raises:
            OSError: the file cannot be written.
        """
        if tuple(nonces) == self.of(movement_id):
            return
        kept = {name: its for name, its in self._nonces.items() if name != movement_id}
        if nonces:
            kept[movement_id] = tuple(nonces)
        text = json.dumps({name: [each.hex() for each in its] for name, its in kept.items()})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        put_file(self._path, text.encode(), _OWNER_ALONE)
        self._nonces = kept
