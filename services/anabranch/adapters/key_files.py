"""File of a participant's private key, which only its owner may read."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from anabranch.adapters.secret_files import secret_of
from anabranch.adapters.signing import SigningKey
from anabranch.protocol.errors import ConfigurationError
from anabranch.protocol.federation.published_keys import KEY_ID_CHARACTERS_MAX

if TYPE_CHECKING:
    from anabranch.codec.signed_records import Sign
    from anabranch.pipeline.model import Pipeline

VARIABLE: Final = "ANABRANCH_SIGNING_KEY"
"""Environment variable that names the file, with ``_FILE`` after it."""


class _KeyFile(BaseModel):
    """Contents of a file with a private key."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    participant: str = Field(min_length=1)
    key_id: str = Field(min_length=1, max_length=KEY_ID_CHARACTERS_MAX)
    secret: str = Field(pattern=r"\A[0-9a-f]{64}\z", repr=False)


def write_key(key: SigningKey, path: Path) -> None:
    """Write the key into a new file, which only its owner can read. After a crash there is no file,
    or a torn one, which readers reject: create another.

    Raises:
        ConfigurationError: the file exists already, or cannot be written.
    """
    content = json.dumps(
        {"participant": key.participant, "key_id": key.key_id, "secret": key.secret.hex()}
    )
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise ConfigurationError(
            f"{path} is there already: a key is never written over, since what it has signed would"
            " lose its signer. Name another file"
        ) from None
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(content + "\n")
        file.flush()
        os.fsync(file.fileno())


def read_key(path: Path) -> SigningKey:
    """Read the key in a file.

    Raises:
        ConfigurationError: the file cannot be read, is open to others, or contains no key. The text
            repeats nothing of its content.
    """
    text = secret_of(None, path, VARIABLE) or ""
    try:
        found = _KeyFile.model_validate_json(text)
    except ValidationError:
        raise ConfigurationError(
            f"{path}: not a file that `anabranch keys new` made; a torn one is made anew"
        ) from None
    return SigningKey(found.participant, found.key_id, bytes.fromhex(found.secret))


def key_of_environment(participant: str) -> SigningKey | None:
    """Read the key that the environment names; None if it names none.

    Raises:
        ConfigurationError: as for ``key_for``.
    """
    named = os.environ.get(f"{VARIABLE}_FILE")
    return key_for(participant, Path(named)) if named else None


def key_for(participant: str, path: Path) -> SigningKey:
    """Read the key in a file, which must be this participant's.

    Raises:
        ConfigurationError: as for ``read_key``, or the key is another participant's.
    """
    key = read_key(path)
    if key.participant != participant:
        raise ConfigurationError(
            f"{path} is a key of {key.participant}, and the pipeline file says that this is"
            f" {participant}"
        )
    return key


def signer(pipeline: Pipeline, stream: str, writer: str) -> Sign | None:
    """Return the signer of the boundary records of a published stage; None if it is not published,
    or the environment names no key. ``writer``: the participant that runs the stage.

    Raises:
        ConfigurationError: as for ``key_of_environment``.
    """
    if stream not in pipeline.publish_ms:
        return None
    key = key_of_environment(writer)
    return None if key is None else key.sign_message


def owners_signer(pipeline: Pipeline, stream: str) -> Sign | None:
    """Return the signer of the log snapshots of a published stage, with the key of the pipeline's
    owner, whichever participant runs the stage; None as for ``signer``. If the file names no
    federation, any participant of its stages may be the owner.

    Raises:
        ConfigurationError: as for ``read_key``, or the key is another participant's.
    """
    named = os.environ.get(f"{VARIABLE}_FILE")
    if stream not in pipeline.publish_ms or not named:
        return None
    if pipeline.federation is not None:
        return signer(pipeline, stream, pipeline.federation.participant)
    key = read_key(Path(named))
    owners = sorted({stage.participant for stage in pipeline.stages.values()})
    if key.participant not in owners:
        raise ConfigurationError(
            f"{named} is a key of {key.participant}, who has no stage in the pipeline file; there"
            f" are {', '.join(owners)}"
        )
    return key.sign_message
