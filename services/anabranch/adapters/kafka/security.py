"""Security of connections to Kafka, from the environment or files only:
``ANABRANCH_KAFKA_SECURITY_PROTOCOL`` and so on. For another owner's cluster, ``south`` in the
pipeline file, the variables are ``ANABRANCH_CLUSTER_SOUTH_SECURITY_PROTOCOL`` and so on; those of
the own cluster do not apply to it.

Every client of this process, of the processes that Spark starts from it and of the commands of
``anabranch`` has the same security: they inherit the environment. None of it can be given on a
command line, where others on the machine would see it. Executors of a Spark cluster receive the
names of the files that hold the secrets, never a secret.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final, Literal, Self

from pydantic import SecretStr, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from anabranch.adapters.secret_files import from_environment, kept_secret, readable_files, secret_of
from anabranch.pipeline.addresses import variables_of
from anabranch.protocol.errors import ConfigurationError

PREFIX: Final = "ANABRANCH_KAFKA_"
"""Prefix of the variables for the own cluster."""
_TLS: Final = ("ssl_ca", "ssl_certificate", "ssl_key", "ssl_key_password", "ssl_key_password_file")
_SASL: Final = ("sasl_username", "sasl_password", "sasl_password_file")


class KafkaSecurity(BaseSettings):
    """Encryption and identity of a client. Without any, connections are plain text, which is for a
    single machine only.
    """

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, extra="ignore", frozen=True, hide_input_in_errors=True
    )

    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_SSL"] = "PLAINTEXT"
    """Protocol of connections. SASL without TLS is not available: an eavesdropper could take over
    the connection.
    """
    sasl_mechanism: Literal["SCRAM-SHA-512", "SCRAM-SHA-256", "PLAIN"] = "SCRAM-SHA-512"
    sasl_username: str | None = None
    sasl_password: SecretStr | None = None
    sasl_password_file: Path | None = None
    ssl_ca: Path | None = None
    """PEM file of the authorities that sign brokers' certificates; None: those of the system."""
    ssl_certificate: Path | None = None
    """PEM file of the client's certificate and its chain, for mTLS."""
    ssl_key: Path | None = None
    ssl_key_password: SecretStr | None = None
    ssl_key_password_file: Path | None = None

    @model_validator(mode="after")
    def _belongs_together(self) -> Self:
        """Reject settings that would silently be less secure than intended."""
        tls, sasl = self.security_protocol != "PLAINTEXT", self.security_protocol == "SASL_SSL"
        variable = self.variable
        protocol = variable("security_protocol")
        for fields, wanted, needed in ((_TLS, tls, "SSL or SASL_SSL"), (_SASL, sasl, "SASL_SSL")):
            for name in fields:
                if getattr(self, name) is not None and not wanted:
                    raise ValueError(
                        f"{variable(name)} is set, which needs {protocol}={needed};"
                        f" it is {self.security_protocol}"
                    )
        if sasl and not self.sasl_username:
            raise ValueError(f"{protocol}=SASL_SSL needs {variable('sasl_username')}")
        if sasl and self.sasl_password is None and self.sasl_password_file is None:
            raise ValueError(
                f"{protocol}=SASL_SSL needs {variable('sasl_password_file')} or"
                f" {variable('sasl_password')}"
            )
        if (self.ssl_certificate is None) != (self.ssl_key is None):
            raise ValueError(
                f"{variable('ssl_certificate')} and {variable('ssl_key')} belong together: give"
                " both or none"
            )
        return self

    def variable(self, name: str) -> str:
        """Return the environment variable of the field ``name``."""
        return f"{self.model_config.get('env_prefix', '')}{name.upper()}"

    def shown_environment(self) -> dict[str, str]:
        """Return the variables that give another process the same security, for places where others
        may read them on the way.

        Raises:
            ConfigurationError: a variable holds a secret itself.
        """
        found = {}
        for name in sorted(self.model_fields_set):
            value = getattr(self, name)
            if isinstance(value, SecretStr):
                raise ConfigurationError(
                    f"{self.variable(name)} would be shown to others on its way to Spark's"
                    f" executors: give the secret in a file, the same on every machine, and name it"
                    f" in {self.variable(name)}_FILE"
                )
            found[self.variable(name)] = str(value)
        return found

    def options(self) -> dict[str, str]:
        """Return the client's options. Files of secrets are read now.

        Raises:
            ConfigurationError: a file cannot be read, or a secret is given twice or empty.
        """
        if self.security_protocol == "PLAINTEXT":
            return {}
        files = {
            "ssl.ca.location": self.ssl_ca,
            "ssl.certificate.location": self.ssl_certificate,
            "ssl.key.location": self.ssl_key,
        }
        readable_files(
            {
                self.variable(name): getattr(self, name)
                for name in ("ssl_ca", "ssl_certificate", "ssl_key")
            }
        )
        if self.ssl_key is not None:
            kept_secret(self.ssl_key, self.variable("ssl_key"))
        options = {
            "security.protocol": self.security_protocol,
            # Both are defaults, set explicitly: an unchecked certificate, or that of another host,
            # gives no protection.
            "enable.ssl.certificate.verification": "true",
            "ssl.endpoint.identification.algorithm": "https",
            **{option: str(path) for option, path in files.items() if path is not None},
        }
        key_password = secret_of(
            self.ssl_key_password, self.ssl_key_password_file, self.variable("ssl_key_password")
        )
        if key_password is not None:
            options["ssl.key.password"] = key_password
        if self.security_protocol == "SASL_SSL":
            password = secret_of(
                self.sasl_password, self.sasl_password_file, self.variable("sasl_password")
            )
            options |= {
                "sasl.mechanism": self.sasl_mechanism,
                "sasl.username": str(self.sasl_username),
                "sasl.password": str(password),
            }
        return options

    def tls(self) -> ssl.SSLContext | None:
        """Return the TLS context for a connection that librdkafka does not open; None:
        plain text.

        Raises:
            ConfigurationError: a file cannot be read or is not what it should be.
        """
        options = self.options()
        if not options:
            return None
        try:
            context = ssl.create_default_context(cafile=options.get("ssl.ca.location"))
            if "ssl.certificate.location" in options:
                context.load_cert_chain(
                    options["ssl.certificate.location"],
                    options["ssl.key.location"],
                    options.get("ssl.key.password", ""),
                )
        except OSError as error:
            raise ConfigurationError(
                f"the files of {self.variable('ssl_*')} cannot be used:"
                f" {error.strerror or type(error).__name__}"
            ) from None
        return context


def security_from_environment(cluster: str = "") -> KafkaSecurity:
    """Return the security that the environment sets. ``cluster``: another owner's cluster by its
    name in the pipeline file; empty: the own one.

    Raises:
        ConfigurationError: a variable is wrong; the text names the variable, never a secret.
    """
    if not cluster:
        return from_environment(KafkaSecurity)

    class Elsewhere(KafkaSecurity):
        """Settings of the other cluster, by its own variables."""

        model_config = SettingsConfigDict(env_prefix=variables_of(cluster))

    return from_environment(Elsewhere)


def reject_security_for(what: str) -> None:
    """Check that the environment sets no security, for a broker that has none. ``what``: reason,
    for the message.

    Raises:
        ConfigurationError: the environment asks for encryption or identity.
    """
    if security_from_environment().security_protocol != "PLAINTEXT":
        raise ConfigurationError(
            f"{PREFIX}SECURITY_PROTOCOL is set, but {what}: unset it, or name your own cluster with"
            " --kafka"
        )
