"""The numbers that the auditor has drawn and not revealed yet, in a file for its owner alone.

A number is in the file before its hash is in the ledger, and until the ledger has the number. So a
crash at any point loses none that the auditor has committed to.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from anabranch.adapters.disk.durable import put_file
from anabranch.protocol.errors import ConfigurationError

_OWNER_ALONE: Final = 0o600


class NumbersFile:
    """``ports.KeptNumbers``: of one auditor and pipeline."""

    def __init__(self, path: Path) -> None:
        """Read what is kept.

        Raises:
            ConfigurationError: the file is none of these; whoever removes it loses what the numbers
                in it would have found, and nothing else.
        """
        self._path = path
        try:
            found = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
            self._numbers: dict[str, tuple[bytes, ...]] = {
                movement: tuple(map(bytes.fromhex, numbers)) for movement, numbers in found.items()
            }
        except (OSError, ValueError, AttributeError, TypeError):
            raise ConfigurationError(
                f"{path} does not hold an auditor's numbers, or cannot be read; without it the"
                " auditor draws new ones, and what the old ones would have found is lost"
            ) from None

    def of(self, movement_id: str) -> tuple[bytes, ...]:
        """Those of a movement, the oldest first."""
        return self._numbers.get(movement_id, ())

    def keep(self, movement_id: str, numbers: Sequence[bytes]) -> None:
        """These of a movement, and no others. Durable when it returns.

        Raises:
            OSError: they cannot be written.
        """
        if tuple(numbers) == self.of(movement_id):
            return
        kept = {name: its for name, its in self._numbers.items() if name != movement_id}
        if numbers:
            kept[movement_id] = tuple(numbers)
        text = json.dumps({name: [each.hex() for each in its] for name, its in kept.items()})
        self._path.parent.mkdir(parents=True, exist_ok=True)
        put_file(self._path, text.encode(), _OWNER_ALONE)
        self._numbers = kept
