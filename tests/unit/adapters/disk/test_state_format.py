"""State directories of this version and of others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from anabranch.adapters.disk.state_format import FILE_NAME, FORMAT, claim
from anabranch.protocol.errors import ConfigurationError


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_one_that_is_new_is_made_and_is_one_s_own_from_then_on(tmp_path: Path) -> None:
    for state_dir in (tmp_path / "new" / "state", tmp_path):
        for _ in range(2):
            claim(state_dir)
            assert json.loads((state_dir / FILE_NAME).read_text()) == {"format": FORMAT}
            (state_dir / "processing").mkdir(exist_ok=True)
    assert not list(tmp_path.rglob("*.new"))


def test_one_that_holds_no_state_is_taken(tmp_path: Path) -> None:
    """The log of `up --detach` exists before the state does, and so may an embedded
    broker's data.
    """
    for name in ("kafka", "logs"):
        (tmp_path / name).mkdir()
    claim(tmp_path)
    assert listed(tmp_path) == [FILE_NAME, "kafka", "logs"]


def test_sd1_checkpoints_without_a_format_are_of_an_older_version(tmp_path: Path) -> None:
    (tmp_path / "processing").mkdir()
    with pytest.raises(ConfigurationError, match=r"another version .*format none.* --state-dir"):
        claim(tmp_path)
    assert listed(tmp_path) == ["processing"], "nothing is changed"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (json.dumps({"format": FORMAT + 1}), f"format {FORMAT + 1}, this version has {FORMAT}"),
        (json.dumps({"format": "1"}), "format unknown"),
        ("[]", "format unknown"),
        ('{"form', "format unreadable"),
        ("\ufffd", "format unreadable"),
    ],
)
def test_another_format_is_rejected(tmp_path: Path, content: str, message: str) -> None:
    (tmp_path / FILE_NAME).write_text(content)
    with pytest.raises(ConfigurationError, match=message):
        claim(tmp_path)
    assert (tmp_path / FILE_NAME).read_text() == content
