"""Commits say in one line what they do, ``area: what it does``, short enough for every list, and
below it why.

What the imperative is, and whether the body says why, no test can tell.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

SINCE: Final = "23892878935b7fa8a55628caa41bd0c7713b2e11"
"""Commits after this one are looked at."""

SUBJECT_MAX: Final = 72
AREA: Final = r"[a-z][a-z0-9_-]*(?:[ /][a-z0-9_-]+)*"
FORM: Final = re.compile(rf"{AREA}(?:, {AREA})*: \S.*")
ELSEWHERE: Final = re.compile(r"(?:Merge|Revert) ")
"""Written by git itself."""


def defects(message: str) -> list[str]:
    """What is wrong with the form of a commit's message."""
    subject, *rest = message.rstrip("\n").split("\n")
    if ELSEWHERE.match(subject):
        return []
    found = []
    if not FORM.fullmatch(subject):
        found.append("no area before a colon")
    if len(subject) > SUBJECT_MAX:
        found.append(f"{len(subject)} characters, more than {SUBJECT_MAX}")
    if subject.endswith((".", ";", ",")):
        found.append("ends like a sentence")
    if not any(rest):
        found.append("no body")
    elif rest[0]:
        found.append("no empty line below the subject")
    return found


def messages(root: Path, since: str) -> dict[str, str] | None:
    """Commit -> message of every commit after ``since``; None: without git, or where the history
    does not reach so far, as in a shallow clone.
    """
    try:
        listed = subprocess.run(
            ["git", "log", "-z", "--format=%h%n%B", f"{since}..HEAD"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    split = (each.partition("\n") for each in listed.split("\0") if each)
    return {commit: message for commit, _, message in split}


def test_new_commits_have_a_subject_with_an_area_and_a_body(root: Path) -> None:
    found = messages(root, SINCE)
    if found is None:
        pytest.skip("no git, or a history that does not reach so far")
    assert [
        f"{commit} {message.splitlines()[0]!r}: {defect}"
        for commit, message in found.items()
        for defect in defects(message)
    ] == []


def test_commits_are_found_by_their_place(root: Path, tmp_path: Path) -> None:
    found = messages(root, "HEAD~1")
    if found is None:
        pytest.skip("no git, or a shallow clone")
    assert len(found) >= 1
    assert messages(root, "HEAD") == {}
    assert messages(root, "0" * 40) is None
    assert messages(tmp_path, SINCE) is None


@pytest.mark.parametrize(
    "message",
    [
        "Read back before the first write\n\nWhy.",
        "Delivery: read back before the first write\n\nWhy.",
        "delivery:read back\n\nWhy.",
        "delivery: read back before the first write.\n\nWhy.",
        "delivery: " + "x" * 63 + "\n\nWhy.",
        "delivery: read back\nbefore the first write",
        "delivery: read back before the first write",
        "delivery: read back before the first write\n\n",
    ],
)
def test_a_wrong_message_is_found(message: str) -> None:
    assert len(defects(message)) == 1


@pytest.mark.parametrize(
    "message",
    [
        "Merge branch 'delivery'",
        "ingestion, pipeline file: a source may begin late\n\nWhy.\n",
        "consistency_manager: say once what differs\n\nWhy.\n",
        'Revert "delivery: read back before the first write"\n\nThis reverts it.',
    ],
)
def test_a_right_one_is_not(message: str) -> None:
    assert defects(message) == []
