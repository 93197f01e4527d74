"""Commits say in one line what they do, ``area: do this``, short enough for every list, and below
it why.

Whether the body says why no test can tell. Whether a subject is imperative shows in its first word:
a list of verbs knows it.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Final

import pytest

SINCE: Final = "23892878935b7fa8a55628caa41bd0c7713b2e11"
"""Commits after this one are looked at."""

IMPERATIVE_SINCE: Final = "ec8de13131d75bc03555394604f8d72b6f1c4af0"
"""Commits after this one begin with a verb."""

_VERBS: Final = """
accept add adopt align allow answer apply ask assert avoid begin bind bound break build call catch
change check choose clean close collect compare compute configure connect convert copy correct
count cover create cut date decide declare decode define delay delete derive describe detect
document drain draw drop encode end enforce ensure exclude expect explain expose extend extract
fail feed fetch filter find fix follow forbid fork free freeze generate give grant group guard
halve hand handle hash hide hold hunt ignore import include index initialise insert install join
judge keep key know land lay leave let limit link list load lock log look lower make map mark
match measure mend merge migrate model move name narrow note number omit open order pack parse
pass pause permit pin place plan plant prefer prepare print process profile prove publish put
quote raise read rebuild record recover reduce refer regroup reject relax release reload remove
rename repair repeat replace report reproduce request require reset resolve respect restart
restore restrict retry return reuse revert review rewrite round run sample save say schedule scope
see select send separate serve set share shorten show shrink sign simplify skip slow sort speed
split start state stop store strengthen stress strip support survive switch take teach tell test
tighten time trace track translate treat trigger trim trust try tune turn type undo unify update
upgrade use validate verify wait wake walk want warm warn weigh widen wire withdraw wrap write
"""
VERBS: Final = frozenset(_VERBS.split())
"""With which a subject may begin; add what is missing."""

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


def is_imperative(message: str) -> bool:
    """Whether the subject's first word behind the area is a verb as it is used to command."""
    subject = message.partition("\n")[0]
    words = subject.partition(": ")[2].split()
    return ELSEWHERE.match(subject) is not None or (bool(words) and words[0] in VERBS)


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


def test_new_subjects_are_imperative(root: Path) -> None:
    found = messages(root, IMPERATIVE_SINCE)
    if found is None:
        pytest.skip("no git, or a history that does not reach so far")
    assert [
        f"{commit} {message.splitlines()[0]!r}"
        for commit, message in found.items()
        if not is_imperative(message)
    ] == []


@pytest.mark.parametrize(
    ("subject", "expected"),
    [
        ("delivery: read back before the first write", True),
        ("Merge branch 'delivery'", True),
        ("delivery: the first write is read back", False),
        ("delivery: reads back before the first write", False),
        ("delivery: ", False),
    ],
)
def test_an_imperative_is_known_by_its_verb(subject: str, *, expected: bool) -> None:
    assert is_imperative(f"{subject}\n\nWhy.") is expected


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
