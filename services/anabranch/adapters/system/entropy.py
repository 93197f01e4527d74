"""Randomness of this machine: the implementation of ``ports.Entropy``."""

from __future__ import annotations

import os

_TOKEN_BYTES = 8


class SystemEntropy:
    """Source of random tokens from the kernel: different in every process, also after a fork."""

    def token(self) -> str:
        """Return a random token of 16 lower-case hexadecimal digits."""
        return os.urandom(_TOKEN_BYTES).hex()
