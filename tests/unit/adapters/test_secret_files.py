"""A secret's file is its owner's alone, or it is not used."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from pydantic import SecretStr

from anabranch.adapters.kafka.security import KafkaSecurity
from anabranch.adapters.redis.security import RedisSecurity
from anabranch.adapters.secret_files import kept_secret, secret_of
from anabranch.protocol.errors import ConfigurationError


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_text("planted\n")
    path.chmod(0o600)
    return path


def test_a_secret_by_file_or_by_environment(secret: Path) -> None:
    assert secret_of(None, secret, "X") == "planted"
    assert secret_of(SecretStr("given"), None, "X") == "given"
    assert secret_of(None, None, "X") is None


@pytest.mark.parametrize("mode", [0o604, 0o640, 0o644, 0o620, 0o606])
def test_a_file_that_others_may_read_or_write_is_rejected(secret: Path, mode: int) -> None:
    secret.chmod(mode)
    with pytest.raises(
        ConfigurationError, match=rf"X_FILE: .* is open to others .mode {mode:03o}.: chmod 600"
    ):
        secret_of(None, secret, "X")


@pytest.mark.parametrize(("mode", "is_taken"), [(0o444, True), (0o440, True), (0o646, False)])
def test_of_a_mounted_secret_only_that_not_everybody_writes_it(
    secret: Path, monkeypatch: pytest.MonkeyPatch, mode: int, is_taken: bool
) -> None:
    """Its mode is not ours to change: container engines mount secrets as another user's."""
    secret.chmod(mode)
    monkeypatch.setattr(os, "geteuid", lambda: secret.stat().st_uid + 1)
    if is_taken:
        kept_secret(secret, "X")
    else:
        with pytest.raises(ConfigurationError, match="open to others"):
            kept_secret(secret, "X")


def test_keys_are_secrets_and_certificates_are_not(secret: Path, tmp_path: Path) -> None:
    public = tmp_path / "certificate"
    public.write_text("public")
    public.chmod(0o644)
    kafka = KafkaSecurity(
        security_protocol="SSL", ssl_ca=public, ssl_certificate=public, ssl_key=secret
    )
    redis = RedisSecurity(tls_ca=public, tls_certificate=public, tls_key=secret)
    assert kafka.options()
    assert redis.options("rediss://h:1/0")
    secret.chmod(0o644)
    for ask in (kafka.options, lambda: redis.options("rediss://h:1/0")):
        with pytest.raises(ConfigurationError, match=r"KEY: .* is open to others"):
            ask()
