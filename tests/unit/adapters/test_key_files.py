"""The file of a private key."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.key_files import VARIABLE, key_of_environment, read_key, write_key
from anabranch.adapters.signing import SigningKey
from anabranch.protocol.errors import ConfigurationError


def test_a_key_comes_back_and_nobody_else_can_read_it(tmp_path: Path) -> None:
    key, path = SigningKey.generate("north", "1"), tmp_path / "north.key"
    write_key(key, path)
    assert path.stat().st_mode & 0o777 == 0o600
    found = read_key(path)
    assert (found.participant, found.key_id, found.secret) == ("north", "1", key.secret)


def test_a_key_is_never_written_over(tmp_path: Path) -> None:
    key, path = SigningKey.generate("north", "1"), tmp_path / "north.key"
    write_key(key, path)
    with pytest.raises(ConfigurationError, match="is there already"):
        write_key(SigningKey.generate("north", "2"), path)
    assert read_key(path).secret == key.secret
    with pytest.raises(ConfigurationError, match="cannot be written"):
        write_key(key, tmp_path / "none" / "north.key")


@pytest.mark.parametrize("change", [0o640, 0o604, 0o666])
def test_a_file_that_others_can_read_is_rejected(tmp_path: Path, change: int) -> None:
    path = tmp_path / "north.key"
    write_key(SigningKey.generate("north", "1"), path)
    path.chmod(change)
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_key(path)


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        '{"participant": "north", "key_id": "1"}',
        '{"participant": "north", "key_id": "1", "secret": "5ec7e7"}',
        '{"participant": "north", "key_id": "", "secret": "' + "5ec7" * 16 + '"}',
        '{"participant": "north", "key_id": "1", "secret": "' + "5ec7" * 16 + '\\n"}',
        '{"participant": 1, "key_id": "1", "secret": "' + "5ec7" * 16 + '"}',
        '{"participant": "north", "key_id": "1", "more": 1, "secret": "' + "5ec7" * 16 + '"}',
    ],
)
def test_what_is_no_key_is_rejected_and_not_shown(tmp_path: Path, content: str) -> None:
    path = tmp_path / "north.key"
    path.write_text(content)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as raised:
        read_key(path)
    assert "5ec7" not in str(raised.value)


def test_the_environment_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "north.key"
    write_key(SigningKey.generate("north", "1"), path)
    monkeypatch.delenv(f"{VARIABLE}_FILE", raising=False)
    assert key_of_environment("north") is None
    monkeypatch.setenv(f"{VARIABLE}_FILE", str(path))
    found = key_of_environment("north")
    assert found is not None
    assert found.participant == "north"
    with pytest.raises(ConfigurationError, match="a key of north"):
        key_of_environment("south")
