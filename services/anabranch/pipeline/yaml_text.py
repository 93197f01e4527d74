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
_ADVICE: Final = (
    ("character '\\t'", "there is a tab; indent with spaces"),
    (
        "mapping values are not allowed",
        "a colon is out of place: either the line before lacks one, or a text has to be in quotes",
    ),
    (
        "but found '<block mapping start>'",
        "the line is not indented like the other keys of its mapping",
    ),
    ("but found ']'", "a ']' closes nothing"),
    ("but found '}'", "a '}' closes nothing"),
    ("but found another document", "a second document begins; leave '---' out"),
)
"""Part of a text of the library, and what a person should do about it."""


def read_yaml(path: Path, what: str = "pipeline file") -> object:
    """Return the document in the file at ``path``. ``what``: kind of file, for messages.

    Raises:
        ConfigurationError: the file cannot be read, is too large, or is not YAML.
    """
    raw = read_limited(path, what)
    try:
        return YAML(typ="rt", pure=True).load(raw.decode("utf-8"))
    except DuplicateKeyError as error:
        problem = str(error.problem).split(" with value", 1)[0]
        raise ConfigurationError(f"{path}:{_mark(error)}: {problem}; keep one of them") from error
    except MarkedYAMLError as error:
        line, problem = _explained(error)
        raise ConfigurationError(f"{path}:{line}: not YAML: {problem}") from error
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise ConfigurationError(
            f"{path}:{line}: not YAML: byte {raw[error.start]:#x} is not UTF-8; save the file as"
            " UTF-8"
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
        ConfigurationError: the file cannot be read, or is too large.
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


def _explained(error: MarkedYAMLError) -> tuple[int, str]:
    """Return the line that has to be changed, and what is wrong there.

    The library names the place at which it could not continue. What is not closed began earlier,
    and the library calls that the context.
    """
    problem, line = str(error.problem or error.context or ""), _mark(error)
    began = line if error.context_mark is None else int(error.context_mark.line) + 1
    for kind, signs in (("mapping", "{}"), ("sequence", "[]")):
        if str(error.context).startswith(f"while parsing a flow {kind}"):
            at_end = "<stream end>" in problem
            if began == line and not at_end:
                break
            end = "the end" if at_end else f"line {line}"
            return began, f"{signs[0]!r} is not closed by {signs[1]!r} before {end}"
    if "end of stream" in problem and str(error.context).startswith("while scanning a quoted"):
        return began, "the quotation mark is not closed"
    if "could not find expected ':'" in problem:
        return began, "a key needs a colon and a space after it"
    for sign, advice in _ADVICE:
        if sign in problem:
            return line, advice
    return line, f"{problem}; put texts with special characters in quotes"


def _mark(error: MarkedYAMLError) -> int:
    mark = error.problem_mark or error.context_mark
    return int(mark.line) + 1 if mark is not None else 1
