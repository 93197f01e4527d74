"""Addresses as they are shown, without passwords."""

from __future__ import annotations

import pytest

from anabranch.pipeline.addresses import holds_password, without_password


@pytest.mark.parametrize(
    ("url", "shown", "secret"),
    [
        ("redis://127.0.0.1:1/0", "redis://127.0.0.1:1/0", False),
        ("redis://:secret@r:2/0", "redis://r:2/0", True),
        ("rediss://u:p@ss@r:2/0", "rediss://r:2/0", True),
        ("rediss://u@r:2/0", "rediss://r:2/0", False),
        ("redis://r:2/0?password=secret", "redis://r:2/0", True),
        ("redis//u:secret@r:2/0", "r:2/0", True),
        ("broker-1:9092", "broker-1:9092", False),
        ("unix:///run/redis.sock", "unix:///run/redis.sock", False),
    ],
)
def test_passwords_are_not_shown(url: str, shown: str, secret: bool) -> None:
    assert without_password(url) == shown
    assert holds_password(url) == secret
