"""``adapters.system.cache``."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from anabranch.adapters.system.cache import cache_dir, locked


def test_the_folder_is_the_one_that_is_named(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path / "a" / "b"))
    assert cache_dir() == tmp_path / "a" / "b"
    assert cache_dir().is_dir()


def test_without_a_name_it_is_in_the_home_of_the_user(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("ANABRANCH_CACHE", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert cache_dir() == tmp_path / ".cache" / "anabranch"


def test_who_comes_second_waits(tmp_path: Path) -> None:
    order: list[str] = []

    def second() -> None:
        with locked(tmp_path / "lock"):
            order.append("second")

    thread = threading.Thread(target=second)
    with locked(tmp_path / "lock"):
        thread.start()
        thread.join(0.2)
        order.append("first")
    thread.join(10)
    assert order == ["first", "second"]
