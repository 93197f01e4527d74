"""Secrets from environment variables or files, and errors that never repeat them.

A secret in a file is read each time that it is needed, so a new one is used from the next
connection on, without a restart.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import Final, TypeVar

from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings

from anabranch.protocol.errors import ConfigurationError

_SECRET_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a secret's file, in bytes: a larger one was named by mistake."""

_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO
"""Permissions of group and others."""

S = TypeVar("S", bound=BaseSettings)


def from_environment(kind: type[S]) -> S:
    """Read the settings of ``kind`` from the environment.

    Raises:
        ConfigurationError: a setting is wrong; the text names its variable and never its value.
    """
    prefix = str(kind.model_config.get("env_prefix", ""))
    try:
        return kind()
    except ValidationError as error:
        lines = []
        for mistake in error.errors(include_input=False, include_context=False, include_url=False):
            where = f"{prefix}{str(mistake['loc'][0]).upper()}: " if mistake["loc"] else ""
            lines.append(where + mistake["msg"].removeprefix("Value error, "))
        raise ConfigurationError("\n".join(lines)) from None  # the cause would show the values


def secret_of(value: SecretStr | None, file: Path | None, variable: str) -> str | None:
    """Return the secret in ``value``, from ``variable``, or in the file that ``variable``_FILE
    names; None if neither is given. A line end after it is not part of it.

    Raises:
        ConfigurationError: both are given, the file cannot be read, or the secret is empty.
    """
    if value is not None and file is not None:
        raise ConfigurationError(f"{variable} and {variable}_FILE are both set: give one of them")
    if value is not None:
        secret = value.get_secret_value()
    elif file is not None:
        secret = _content(file, f"{variable}_FILE")
    else:
        return None
    if not secret:
        raise ConfigurationError(
            f"{variable if file is None else f'{variable}_FILE'}: the secret is empty"
        )
    return secret


def readable_files(files: Mapping[str, Path | None]) -> None:
    """Check that the files (by their variable) can be read, so that a mistake is reported by name
    and not by a library.

    Raises:
        ConfigurationError: a file cannot be read.
    """
    for variable, path in files.items():
        if path is None:
            continue
        try:
            path.open("rb").close()
        except OSError as error:
            raise ConfigurationError(
                f"{variable}: {path} cannot be read: {error.strerror}"
            ) from None


def kept_secret(path: Path, variable: str) -> None:
    """Check that only its owner can access a secret's file. If the file is another user's, such as
    a mounted secret, check only that not everyone may write it.

    Raises:
        ConfigurationError: others can; the text says how to correct that.
    """
    try:
        found = path.stat()
    except OSError as error:
        raise ConfigurationError(f"{variable}: {path} cannot be read: {error.strerror}") from None
    loose = _OTHERS if found.st_uid == os.geteuid() else stat.S_IWOTH
    if stat.S_ISREG(found.st_mode) and found.st_mode & loose:
        raise ConfigurationError(
            f"{variable}: {path} is open to others (mode {found.st_mode & 0o777:03o}): chmod 600"
            f" {path}"
        )


def _content(path: Path, variable: str) -> str:
    kept_secret(path, variable)
    try:
        with path.open("rb") as file:
            content = file.read(_SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{variable}: {path} cannot be read: {error.strerror}") from None
    if len(content) > _SECRET_BYTES_MAX:
        raise ConfigurationError(
            f"{variable}: {path} is larger than {_SECRET_BYTES_MAX} bytes: it cannot be a secret"
        )
    try:
        return content.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise ConfigurationError(f"{variable}: {path} is not text") from None
