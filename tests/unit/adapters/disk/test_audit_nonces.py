"""File of an auditor's nonces."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch.adapters.disk.audit_nonces import NonceFile
from anabranch.protocol.errors import ConfigurationError

ONE, OTHER = b"\1" * 32, b"\2" * 32


def test_what_is_kept_is_there_again_and_what_is_revealed_is_not(tmp_path: Path) -> None:
    path = tmp_path / "auditor" / "p.numbers.json"
    kept = NonceFile(path)
    kept.keep("m", ())
    assert not path.exists(), "nothing is written for nothing"
    kept.keep("m", [ONE])
    kept.keep("o", [OTHER])
    kept.keep("m", [ONE, OTHER])
    again = NonceFile(path)
    assert (again.of("m"), again.of("o"), again.of("x")) == ((ONE, OTHER), (OTHER,), ())
    again.keep("m", ())
    assert (NonceFile(path).of("m"), NonceFile(path).of("o")) == ((), (OTHER,))
    assert path.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("text", ["{", "[]", '{"m": 1}', '{"m": ["xy"]}', '{"m": [1]}'])
def test_what_is_no_such_file_is_rejected(tmp_path: Path, text: str) -> None:
    path = tmp_path / "numbers.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="does not hold an auditor's nonces"):
        NonceFile(path)
