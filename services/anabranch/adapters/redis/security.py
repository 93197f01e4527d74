"""Security of connections to Redis, from the environment or files only:
``ANABRANCH_REDIS_PASSWORD_FILE`` and so on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final
from urllib.parse import parse_qs, urlsplit

from pydantic import SecretStr
from pydantic_settings import BaseSettings, SettingsConfigDict

from anabranch.adapters.secret_files import from_environment, kept_secret, readable_files, secret_of
from anabranch.pipeline.addresses import holds_password
from anabranch.protocol.errors import ConfigurationError

PREFIX: Final = "ANABRANCH_REDIS_"
"""Prefix of the variables."""
_TLS: Final = ("tls_ca", "tls_certificate", "tls_key")
_QUERY: Final = frozenset({"db", "username", "password"})
"""Options that a URL may have after ``?``. The client accepts any of its own there and lets it
override what is set here: one of them disables the check of certificates, another replaces the
authorities, a third removes the timeout.
"""


class RedisSecurity(BaseSettings):
    """ACL user and TLS. A user and password in the URL override those of the environment."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    username: str | None = None
    password: SecretStr | None = None
    password_file: Path | None = None
    tls_ca: Path | None = None
    """PEM file of the authorities that sign the server's certificate; None: those of the system."""
    tls_certificate: Path | None = None
    """PEM file of the client's certificate, for a server that requires one."""
    tls_key: Path | None = None

    def options(self, url: str) -> dict[str, object]:
        """Return the arguments of the client beside ``url``. Files of secrets are read now.

        Raises:
            ConfigurationError: a file cannot be read, a secret is given twice or empty, TLS is set
                for a URL without TLS, or the URL has an option that is not allowed.
        """
        for name in parse_qs(urlsplit(url).query, keep_blank_values=True):
            if name not in _QUERY:
                raise ConfigurationError(
                    f"the URL of the index has the option {name[:40]!r}: only"
                    f" {', '.join(sorted(_QUERY))} are allowed; name the files of TLS in"
                    f" {PREFIX}TLS_CA, {PREFIX}TLS_CERTIFICATE and {PREFIX}TLS_KEY"
                )
        found: dict[str, object] = {}
        password = secret_of(self.password, self.password_file, f"{PREFIX}PASSWORD")
        if self.username is not None and password is None and not holds_password(url):
            raise ConfigurationError(
                f"{PREFIX}USERNAME is set without {PREFIX}PASSWORD_FILE or {PREFIX}PASSWORD"
            )
        if self.username is not None:
            found["username"] = self.username
        if password is not None:
            found["password"] = password
        given = {f"{PREFIX}{name.upper()}": getattr(self, name) for name in _TLS}
        if not url.startswith("rediss://"):
            for variable, path in given.items():
                if path is not None:
                    raise ConfigurationError(
                        f"{variable} is set, but the URL of the index has no TLS: give"
                        " rediss://HOST:PORT/DB"
                    )
            return found
        if (self.tls_certificate is None) != (self.tls_key is None):
            raise ConfigurationError(
                f"{PREFIX}TLS_CERTIFICATE and {PREFIX}TLS_KEY belong together: give both or none"
            )
        readable_files(given)
        if self.tls_key is not None:
            kept_secret(self.tls_key, f"{PREFIX}TLS_KEY")
        found |= {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
        names = {
            "ssl_ca_certs": self.tls_ca,
            "ssl_certfile": self.tls_certificate,
            "ssl_keyfile": self.tls_key,
        }
        return found | {name: str(path) for name, path in names.items() if path is not None}


def security_from_environment() -> RedisSecurity:
    """Return the security that the environment sets.

    Raises:
        ConfigurationError: a variable is wrong; the text names the variable, never a secret.
    """
    return from_environment(RedisSecurity)


def reject_security_for(what: str) -> None:
    """Check that the environment sets no security, for a server that has none. ``what``: reason,
    for the message.

    Raises:
        ConfigurationError: the environment names a user, a password or files of TLS.
    """
    found = security_from_environment()
    for name in RedisSecurity.model_fields:
        if getattr(found, name) is not None:
            raise ConfigurationError(
                f"{PREFIX}{name.upper()} is set, but {what}: unset it, or name your own server with"
                " --redis or ANABRANCH_REDIS"
            )
