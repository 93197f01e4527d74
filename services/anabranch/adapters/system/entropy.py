"""The system's randomness behind ``ports.Entropy``."""

from __future__ import annotations

import os

_TOKEN_BYTES = 8


class SystemEntropy:
    """Random tokens from the kernel: different in every process, also after a fork."""

    def token(self) -> str:
        """16 lower-case hexadecimal digits."""
        return os.urandom(_TOKEN_BYTES).hex()
