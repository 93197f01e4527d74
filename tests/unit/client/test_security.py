"""How a client proves who it is, said in the program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from anabranch.client import Security
from anabranch.protocol.errors import ConfigurationError


def test_a_user_comes_over_tls_with_a_checked_certificate(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").touch()
    options = Security(user="ann", password="s3cret", ca=tmp_path / "ca.pem").options()
    assert options["security.protocol"] == "SASL_SSL"
    assert (options["sasl.username"], options["sasl.password"], options["sasl.mechanism"]) == (
        "ann",
        "s3cret",
        "SCRAM-SHA-512",
    )
    assert (options["ssl.ca.location"], options["enable.ssl.certificate.verification"]) == (
        str(tmp_path / "ca.pem"),
        "true",
    )


def test_the_environment_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ANABRANCH_KAFKA_SECURITY_PROTOCOL", "SASL_SSL")
    monkeypatch.setenv("ANABRANCH_KAFKA_SASL_USERNAME", "other")
    monkeypatch.setenv("ANABRANCH_KAFKA_SASL_PASSWORD", "other")
    assert Security(plain_text=True).options() == {}
    assert "sasl.username" not in Security().options()
    assert Security().options()["security.protocol"] == "SSL"


@pytest.mark.parametrize(
    "given",
    [
        {"user": "ann"},
        {"password": "x"},
        {"certificate": "c.pem"},
        {"plain_text": True, "user": "ann", "password": "x"},
        {"ca": "/no/such.pem"},
    ],
)
def test_settings_that_exclude_each_other_are_rejected(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        Security(**given).options()


def test_secrets_are_not_shown() -> None:
    assert "s3cret" not in repr(Security(user="ann", password="s3cret", key_password="s3cret"))
