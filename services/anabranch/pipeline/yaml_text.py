"""Reader of YAML files that keeps line numbers, and names the line at which a text is not YAML."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from ruamel.yaml import YAML
from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from anabranch.protocol.errors import ConfigurationError, headline

PIPELINE_FILE_BYTES_MAX: Final = 256 * 1024
"""Maximum size of a pipeline file, in bytes: every service reads it at start."""


def read_yaml(path: Path, what: str = "pipeline file") -> object:
    """Return the document in the file at ``path``. ``what``: kind of file, for messages.

    Raises:
        ConfigurationError: it cannot be read, is too large, or is not YAML.
    """
    raw = read_limited(path, what)
    try:
        return YAML(typ="rt", pure=True).load(raw.decode("utf-8"))
    except DuplicateKeyError as error:
        problem = str(error.problem).split(" with value", 1)[0]
        raise ConfigurationError(f"{path}:{_mark(error)}: {problem}; keep one of them") from error
    except MarkedYAMLError as error:
        raise ConfigurationError(
            f"{path}:{_mark(error)}: not YAML: {error.problem or error.context}"
        ) from error
    except (
        YAMLError,
        RecursionError,
        ValueError,
        AttributeError,
        TypeError,
        LookupError,
        AssertionError,
    ) as error:
        # The library raises these for some texts that are not YAML, such as a mapping that is
        # merged with itself.
        raise ConfigurationError(
            f"{path}:1: not YAML: {headline(str(error)) or repr(error)}"
        ) from error


def read_limited(path: Path, what: str) -> bytes:
    """Return the content of the file at ``path``. ``what``: kind of file, for messages.

    Raises:
        ConfigurationError: it cannot be read, or is too large.
    """
    try:
        with path.open("rb") as file:
            raw = file.read(PIPELINE_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigurationError(f"{path}: the {what} cannot be read: {error.strerror}") from error
    if len(raw) > PIPELINE_FILE_BYTES_MAX:
        raise ConfigurationError(
            f"{path}: the {what} is larger than {PIPELINE_FILE_BYTES_MAX} bytes"
        )
    return raw


def _mark(error: MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return int(mark.line) + 1 if mark is not None else 1
