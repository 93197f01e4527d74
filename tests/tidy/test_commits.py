"""Commits say in one line what they do: ``area: what it does``, short enough for every list.

What the imperative is, and whether the body says why, no test can tell.
"""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

SINCE: Final = "a40bdc4751cc246a40c29eaab5d8df65825c2195"
"""Commits after this one are looked at,"""
FROM_S: Final = 1795539600
"""if they were written at this time or later (2026-11-24 17:00 UTC): what was under way when the
rule came keeps its subject.
"""

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
    if rest and rest[0]:
        found.append("no empty line below the subject")
    return found


def messages(root: Path, since: str, from_s: int) -> dict[str, str] | None:
    """Commit -> message of every commit after ``since`` that was written at ``from_s`` or later;
    None: without git, or where the history does not reach so far, as in a shallow clone.
    """
    try:
        listed = subprocess.run(
            ["git", "log", "-z", "--format=%h %at%n%B", f"{since}..HEAD"],
            cwd=root,
            check=True,
            capture_output=True,
            text=True,
        ).stdout
    except (OSError, subprocess.CalledProcessError):
        return None
    found = {}
    for each in filter(None, listed.split("\0")):
        head, _, message = each.partition("\n")
        commit, written_s = head.split(" ")
        if int(written_s) >= from_s:
            found[commit] = message
    return found


def test_new_commits_name_their_area_and_are_short(root: Path) -> None:
    found = messages(root, SINCE, FROM_S)
    if found is None:
        pytest.skip("no git, or a history that does not reach so far")
    assert [
        f"{commit} {message.splitlines()[0]!r}: {defect}"
        for commit, message in found.items()
        for defect in defects(message)
    ] == []


def test_a_history_that_is_not_there_is_none(root: Path, tmp_path: Path) -> None:
    assert messages(tmp_path, SINCE, 0) is None
    assert messages(root, "0" * 40, 0) is None


def test_commits_are_found_by_their_place_and_their_time(tmp_path: Path) -> None:
    def git(*words: str, written_s: int = 0) -> str:
        who = ("-c", "user.name=a", "-c", "user.email=a@b")
        environment = {
            **os.environ,
            "GIT_AUTHOR_DATE": f"{written_s} +0000",
            "GIT_COMMITTER_DATE": "1000000000 +0000",
        }
        command = ["git", *who, *words]
        run = subprocess.run(
            command, cwd=tmp_path, check=True, capture_output=True, text=True, env=environment
        )
        return run.stdout.strip()

    git("init", "--quiet")
    commits = []
    for written_s, message in ((3, "a: one"), (1, "b: two"), (2, "c: three\n\nWhy.")):
        git("commit", "--quiet", "--allow-empty", "-m", message, written_s=10**9 + written_s)
        commits.append(git("rev-parse", "--short", "HEAD"))
    assert messages(tmp_path, commits[0], 10**9 + 2) == {commits[2]: "c: three\n\nWhy.\n"}


@pytest.mark.parametrize(
    "message",
    [
        "Read back before the first write",
        "Delivery: read back before the first write",
        "delivery:read back",
        "delivery: read back before the first write.",
        "delivery: " + "x" * 63,
        "delivery: read back\nbefore the first write",
    ],
)
def test_a_wrong_message_is_found(message: str) -> None:
    assert len(defects(message)) == 1


@pytest.mark.parametrize(
    "message",
    [
        "delivery: read back before the first write",
        "ingestion, pipeline file: a source may begin late\n\nWhy.\n",
        "consistency_manager: say once what differs\n",
        'Revert "delivery: read back before the first write"\n\nThis reverts it.',
    ],
)
def test_a_right_one_is_not(message: str) -> None:
    assert defects(message) == []
