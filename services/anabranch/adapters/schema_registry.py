"""Client of a schema registry that speaks Confluent's protocol."""

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

from anabranch.adapters.secret_files import from_environment, kept_secret, readable_files, secret_of
from anabranch.codec.writer_schema import (
    REFERENCES_MAX,
    SchemaDocument,
    SchemaKey,
    SchemaKind,
    WriterSchema,
)
from anabranch.pipeline.addresses import without_password
from anabranch.protocol.errors import ConfigurationError, Unavailable, UnknownSchema

T = TypeVar("T")

PREFIX: Final = "ANABRANCH_SCHEMA_REGISTRY_"
_USER: Final = "basic.auth.user.info"
_LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_TIMEOUT_S: Final = 5
_TRIES_MORE: Final = 2
_WAIT_MS: Final = 500
"""Pause between a failed request and its repetition, in ms."""
_MESSAGE_CHARACTERS_MAX: Final = 400
"""Maximum length, in characters, of the registry's message in an error."""
_ID_MAX: Final = 2**31 - 1
"""Largest id that a registry assigns. Larger ones are not requested: the answer to them looks like
that of a server which is no registry.
"""
_DENIED: Final = (401, 403)
_NOT_FOUND: Final = 404
_UNKNOWN_CODES: Final = range(40_401, 40_500)
"""Codes of a registry that lacks a subject, a version or a schema. Another server answers 404
without one of them.
"""
_TOO_MANY: Final = 429
# From this status on the registry itself is in trouble.
_BROKEN: Final = 500


class RegistrySecurity(BaseSettings):
    """User or token, and TLS, from the environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    token: SecretStr | None = None
    token_file: Path | None = None
    """File of a bearer token. It is read for each request, so a new file renews it."""
    logical_cluster: str = ""
    """Name of the cluster that a hosted registry wants beside a token."""
    tls_ca: Path | None = None
    """PEM file of the authorities that may vouch for the server; None: those of the system."""
    tls_certificate: Path | None = None
    """PEM file of the client's certificate, for a server that requires one."""
    tls_key: Path | None = None

    @property
    def has_secret(self) -> bool:
        """Whether requests carry a password or a token."""
        return self.username is not None or self._has_token

    @property
    def _has_token(self) -> bool:
        return self.token is not None or self.token_file is not None

    def options(self) -> dict[str, Any]:
        """Return the settings of the client. Reads the files of secrets now.

        Raises:
            ConfigurationError: a file cannot be read, a secret is given twice or empty, or one of
                two settings that belong together is missing.
        """
        files = {
            f"{PREFIX}{name.upper()}": getattr(self, name)
            for name in ("tls_ca", "tls_certificate", "tls_key")
        }
        readable_files(files)
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigurationError(
                f"{PREFIX}TLS_CERTIFICATE and {PREFIX}TLS_KEY belong together: give both or none"
            )
        if self.tls_key is not None:
            kept_secret(self.tls_key, f"{PREFIX}TLS_KEY")
        names = {
            "ssl.ca.location": self.tls_ca,
            "ssl.certificate.location": self.tls_certificate,
            "ssl.key.location": self.tls_key,
        }
        found = {name: str(path) for name, path in names.items() if path is not None}
        return found | self._user() | self._bearer()

    def _user(self) -> dict[str, Any]:
        password = secret_of(self.password, self.password_file, f"{PREFIX}PASSWORD")
        if (self.username is None) != (password is None):
            raise ConfigurationError(
                f"{PREFIX}USERNAME and {PREFIX}PASSWORD_FILE belong together: give both or none"
            )
        return {} if self.username is None else {_USER: f"{self.username}:{password}"}

    def _bearer(self) -> dict[str, Any]:
        if not self._has_token:
            return {}
        if self.username is not None:
            raise ConfigurationError(
                f"{PREFIX}USERNAME and {PREFIX}TOKEN_FILE are both set: give one of them"
            )
        secret_of(self.token, self.token_file, f"{PREFIX}TOKEN")
        return {
            "bearer.auth.credentials.source": "CUSTOM",
            "bearer.auth.custom.provider.function": self._fields,
            "bearer.auth.custom.provider.config": {},
        }

    def _fields(self, _: object) -> dict[str, str]:
        """Return what the client sends with a request."""
        try:
            token = secret_of(self.token, self.token_file, f"{PREFIX}TOKEN")
        except ConfigurationError as error:
            # It could be read at the start: whoever renews it may be about to write it. The records
            # must wait, and not be rejected for it.
            raise Unavailable(str(error)) from error
        return {
            "bearer.auth.token": str(token),
            "bearer.auth.logical.cluster": self.logical_cluster,
        }


class ConfluentRegistry:
    """See ``ports.SchemaRegistry``."""

    def __init__(self, url: str) -> None:
        """Nothing is contacted yet.

        Raises:
            ConfigurationError: a setting of its security is wrong.
        """
        logging.getLogger("httpx2").setLevel(logging.WARNING)  # a line for each request
        security = from_environment(RegistrySecurity)
        self._shown, options = without_password(url), security.options()
        address = urlsplit(url)
        if security.has_secret and address.scheme != "https" and address.hostname not in _LOOPBACK:
            what = "PASSWORD" if security.username is not None else "TOKEN"
            raise ConfigurationError(
                f"schema registry {self._shown}: {PREFIX}{what} would be sent without TLS; write"
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

    def schema(self, key: SchemaKey, kind: SchemaKind) -> WriterSchema:
        """See the port."""
        form = "serialized" if kind == "PROTOBUF" else None
        if isinstance(key, str):
            ask = lambda: self._client.get_schema_by_guid(key, form)  # noqa: E731
        elif key > _ID_MAX:
            raise UnknownSchema(f"ids of registries end at {_ID_MAX}")
        else:
            ask = lambda: self._client.get_schema(key, fmt=form)  # noqa: E731
        found: Schema = self._answer(ask, is_lookup_by_guid=isinstance(key, str))
        written = found.schema_type or "AVRO"
        if written != kind:
            raise ConfigurationError(f"the registry has it as {written}, not as {kind}")
        parts: dict[str, SchemaDocument] = {}
        self._add_references(found, kind, parts, set())
        whole = self._part("", found, kind, parts)
        if kind == "PROTOBUF":
            from anabranch.adapters.protobuf_files import with_built_in

            return WriterSchema(with_built_in([*parts.values(), whole]))
        return WriterSchema((*parts.values(), whole))

    def register(self, subject: str, schema: str) -> int:
        """See the port."""
        wanted = Schema(schema, "AVRO")
        return int(self._answer(lambda: self._client.register_schema(subject, wanted)))

    def _add_references(
        self, of: Schema, kind: SchemaKind, parts: dict[str, SchemaDocument], asked: set[str]
    ) -> None:
        """Add to ``parts`` what ``of`` refers to, each after what it refers to itself. ``asked``
        are the names that were asked for: no registry lets schemas refer to each other in a circle,
        but a server might.
        """
        form = "serialized" if kind == "PROTOBUF" else None
        for each in of.references or ():
            if each.name in asked:
                continue
            asked.add(each.name)
            if len(asked) > REFERENCES_MAX:
                raise ConfigurationError(f"it refers to more than {REFERENCES_MAX} schemas")
            # Deleted ones too: records that were written with them are still there.
            ask = lambda: self._client.get_version(each.subject, each.version, True, form)  # noqa: B023, E731
            try:
                found = self._answer(ask).schema
            except UnknownSchema as error:
                raise UnknownSchema(
                    f"it refers to version {each.version} of {each.subject}: {error}"
                ) from error
            self._add_references(found, kind, parts, asked)
            parts[each.name] = self._part(each.name, found, kind, parts)

    def _part(
        self, name: str, of: Schema, kind: SchemaKind, before: dict[str, SchemaDocument]
    ) -> SchemaDocument:
        text = of.schema_str or ""
        if kind != "PROTOBUF":
            return SchemaDocument(name, text.encode())
        from anabranch.adapters.protobuf_files import file_of

        try:
            return file_of(name or "schema.proto", text, before.values())
        except ConfigurationError as error:
            raise ConfigurationError(f"{name}: {error}" if name else str(error)) from error

    def _answer(self, ask: Callable[[], T], *, is_lookup_by_guid: bool = False) -> T:
        try:
            return ask()
        except SchemaRegistryError as error:
            raise self._mistake(error, is_lookup_by_guid) from error
        except httpx2.HTTPError as error:
            raise Unavailable(
                f"schema registry {self._shown}: no answer"
                f" ({type(error).__name__}: {str(error)[:_MESSAGE_CHARACTERS_MAX]})"
            ) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            # The client takes the answer apart without looking.
            raise Unavailable(
                f"schema registry {self._shown}: its answer is not one of a registry"
                f" ({type(error).__name__}); is the URL right?"
            ) from error

    def _mistake(
        self, error: SchemaRegistryError, is_lookup_by_guid: bool
    ) -> ConfigurationError | Unavailable:
        """Return what a registry's error means."""
        status, reason = error.http_status_code, str(error.error_message)
        text = f"schema registry {self._shown}: {reason[:_MESSAGE_CHARACTERS_MAX]}"
        if status >= _BROKEN or status == _TOO_MANY:
            return Unavailable(text)
        if status in _DENIED:
            return Unavailable(
                f"{text} ({status}): it needs {PREFIX}USERNAME and {PREFIX}PASSWORD_FILE, or"
                f" {PREFIX}TOKEN_FILE, of a user who may do this"
            )
        if status != _NOT_FOUND:
            return ConfigurationError(text)
        # Registries without GUIDs do not know the path, and say so like any server.
        if is_lookup_by_guid or error.error_code in _UNKNOWN_CODES:
            return UnknownSchema(text)
        return Unavailable(f"{text} (404): nothing is there that is a registry; is the URL right?")
