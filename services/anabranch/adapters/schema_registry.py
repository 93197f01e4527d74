"""A schema registry by Confluent's protocol, which others speak too."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

import httpx2
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from confluent_kafka.schema_registry.error import SchemaRegistryError
from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from anabranch.adapters.secret_files import readable_files, secret_of
from anabranch.pipeline.addresses import without_password
from anabranch.protocol.errors import ConfigurationError, Unavailable, UnknownSchema

T = TypeVar("T")

PREFIX: Final = "ANABRANCH_SCHEMA_REGISTRY_"
_USER: Final = "basic.auth.user.info"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_TIMEOUT_S: Final = 5
_TRIES_MORE: Final = 2
_WAIT_MS: Final = 500
"""Between two requests, where the first failed."""
_MESSAGE_CHARACTERS_MAX: Final = 400
"""Of what the registry says, in an error of ours."""
_DENIED: Final = (401, 403)
_NOT_FOUND: Final = 404
_TOO_MANY: Final = 429
# From this status on the registry itself is in trouble.
_BROKEN: Final = 500


class RegistrySecurity(BaseSettings):
    """User and TLS, from the environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    tls_ca: Path | None = None
    """PEM file of the authorities that may vouch for the server; None: those of the system."""

    def options(self) -> dict[str, Any]:
        """Settings of the client; files of secrets are read now.

        Raises:
            ConfigurationError: a file cannot be read, a secret is given twice or empty, or one of
                user and password is missing.
        """
        readable_files({f"{PREFIX}TLS_CA": self.tls_ca})
        password = secret_of(self.password, self.password_file, f"{PREFIX}PASSWORD")
        if (self.username is None) != (password is None):
            raise ConfigurationError(
                f"{PREFIX}USERNAME and {PREFIX}PASSWORD_FILE belong together: give both or none"
            )
        found: dict[str, Any] = {}
        if self.username is not None:
            found[_USER] = f"{self.username}:{password}"
        if self.tls_ca is not None:
            found["ssl.ca.location"] = str(self.tls_ca)
        return found


class ConfluentRegistry:
    """See ``ports.SchemaRegistry``."""

    def __init__(self, url: str) -> None:
        """Nothing is contacted yet.

        Raises:
            ConfigurationError: a setting of its security is wrong.
        """
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request
        self._shown, options = without_password(url), RegistrySecurity().options()
        address = urlsplit(url)
        if _USER in options and address.scheme != "https" and address.hostname not in _LOOPBACK:
            raise ConfigurationError(
                f"schema registry {self._shown}: {PREFIX}PASSWORD would be sent without TLS; write"
                " https://"
            )
        try:
            self._client = SchemaRegistryClient(
                {
                    "url": url,
                    "timeout": _TIMEOUT_S,
                    "max.retries": _TRIES_MORE,
                    "retries.wait.ms": _WAIT_MS,
                    **options,
                }
            )
        except (ValueError, TypeError, OSError) as error:
            raise ConfigurationError(f"schema registry {self._shown}: {error}") from error

    def schema(self, schema_id: int) -> str:
        """See the port."""
        found: Schema = self._answer(lambda: self._client.get_schema(schema_id))
        if found.schema_type not in (None, "AVRO"):
            raise ConfigurationError(f"the registry has it as {found.schema_type}, not as Avro")
        if found.references:
            raise ConfigurationError(
                "it refers to other schemas of the registry, which is not supported"
            )
        return found.schema_str or ""

    def register(self, subject: str, schema: str) -> int:
        """See the port."""
        wanted = Schema(schema, "AVRO")
        return int(self._answer(lambda: self._client.register_schema(subject, wanted)))

    def _answer(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except SchemaRegistryError as error:
            status, reason = error.http_status_code, str(error.error_message)
            text = f"schema registry {self._shown}: {reason[:_MESSAGE_CHARACTERS_MAX]}"
            if status >= _BROKEN or status == _TOO_MANY:
                raise Unavailable(text) from error
            if status in _DENIED:
                raise Unavailable(
                    f"{text} ({status}): it needs {PREFIX}USERNAME and {PREFIX}PASSWORD_FILE of a"
                    " user who may do this"
                ) from error
            if status == _NOT_FOUND:
                raise UnknownSchema(text) from error
            raise ConfigurationError(text) from error
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"schema registry {self._shown}: no answer"
                f" ({type(error).__name__}: {str(error)[:_MESSAGE_CHARACTERS_MAX]})"
            ) from error
