"""The system's randomness."""

from __future__ import annotations

import re

from anabranch.adapters.system.entropy import SystemEntropy


def test_tokens_are_hexadecimal_and_differ() -> None:
    tokens = {SystemEntropy().token() for _ in range(1_000)}
    assert len(tokens) == 1_000
    assert all(re.fullmatch("[0-9a-f]{16}", token) for token in tokens)
