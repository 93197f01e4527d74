"""Credentials of a client as arguments, instead of environment variables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource

from anabranch.adapters.kafka.security import KafkaSecurity
from anabranch.protocol.errors import ConfigurationError


class _GivenSecurity(KafkaSecurity):
    """Settings of ``KafkaSecurity`` with its checks, but without values from the environment."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        *_: object,
        **__: object,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Return the only source of values: the arguments."""
        del settings_cls
        return (init_settings,)


@dataclass(frozen=True, slots=True)
class Security:
    """Encryption and credentials of a client.

    ``user`` and ``password`` select SCRAM over TLS; ``certificate`` and ``key``, PEM files, select
    mTLS. ``ca`` is a PEM file of the authorities that may certify the broker; None: those of the
    system. The broker's certificate is always checked. ``Security(plain_text=True)`` selects a
    connection without encryption and credentials.
    """

    user: str | None = None
    password: str | None = None
    mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    ca: Path | str | None = None
    certificate: Path | str | None = None
    key: Path | str | None = None
    key_password: str | None = None
    plain_text: bool = False

    def __repr__(self) -> str:
        """Return a text without secrets, for logs and tracebacks."""
        return f"Security(user={self.user!r}, plain_text={self.plain_text})"

    def options(self) -> dict[str, str]:
        """Return the settings of the Kafka client library.

        Raises:
            ConfigurationError: the settings exclude each other, or a file cannot be read.
        """
        protocol = "PLAINTEXT" if self.plain_text else "SSL" if self.user is None else "SASL_SSL"
        given = {
            "sasl_username": self.user,
            "sasl_password": None if self.password is None else SecretStr(self.password),
            "ssl_ca": self.ca,
            "ssl_certificate": self.certificate,
            "ssl_key": self.key,
            "ssl_key_password": None if self.key_password is None else SecretStr(self.key_password),
        }
        if self.user is not None:
            given["sasl_mechanism"] = self.mechanism
        if self.password is not None and self.user is None:
            raise ConfigurationError("Security: a password needs a user; give user, too")
        if self.plain_text and any(value is not None for value in given.values()):
            raise ConfigurationError(
                "Security: plain_text excludes all other settings; leave it or them out"
            )
        try:
            return _GivenSecurity.model_validate(
                {"security_protocol": protocol, **{k: v for k, v in given.items() if v is not None}}
            ).options()
        except ValidationError as error:
            raise ConfigurationError(
                f"Security: {'; '.join(each['msg'] for each in error.errors(include_input=False))}"
            ) from error
