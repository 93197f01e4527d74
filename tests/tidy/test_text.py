"""Tests of what no file may contain: paths of one machine, addresses of registries, unfinished
work, tests that sleep, skips without need.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from harness.syntax import dotted, nodes

# Written in pieces, so that this file does not hold what it forbids.
MACHINE_PATH = re.compile(
    r"(?<![\w.$~}/])/(?:wor" + r"k|roo" + r"t|hom" + r"e|User" + r"s)/[A-Za-z]"
)
REGISTRY = re.compile(
    r"https?://[^\s\"'<>]*(?:pypi"
    r"\.org|pythonhosted\.org|maven"
    r"\.org|npmjs\.(?:org|com)|/(?:simple|mav"
    r"en2)(?:/|\b))"
)
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")
ELSEWHERE = re.compile(r"\bspe" + r"cs/\w|\bDES" + r"IGN \d")
"""Texts that the project was made from, and that no reader has."""
CONFLICT = re.compile(r"^(?:<{7} |>{7} )", re.MULTILINE)

OWN_FORMAT = re.compile(r"# fm" + r"t: (?:skip|off)\b")
"""A place that the formatter leaves alone: no line is laid out by hand."""

BINARY = {".avro", ".arrow", ".png", ".jpg", ".gif", ".ico", ".svg", ".jar"}
LICENSES = {"LICENSE"}


def texts(root: Path, files: list[Path]) -> dict[Path, str]:
    return {
        path: (root / path).read_text()
        for path in files
        if path.suffix not in BINARY and path.name not in LICENSES
    }


def hits(pattern: re.Pattern[str], text: str) -> list[int]:
    """Line numbers of what ``pattern`` finds."""
    return [text.count("\n", 0, match.start()) + 1 for match in pattern.finditer(text)]


def sleeps(source: str) -> list[int]:
    calls = nodes(source, ast.Call)
    return [node.lineno for node in calls if dotted(node.func) in {"time.sleep", "sleep"}]


def skips(source: str) -> list[int]:
    """Return the lines at which a test may be left out: ``pytest.skip``, ``skipif``,
    ``importorskip``, ``xfail``.
    """
    names = {
        "pytest.skip",
        "pytest.importorskip",
        "pytest.mark.skip",
        "pytest.mark.skipif",
        "pytest.mark.xfail",
    }
    return sorted({node.lineno for node in nodes(source, ast.Attribute) if dotted(node) in names})


@pytest.mark.parametrize(
    "pattern",
    [MACHINE_PATH, REGISTRY, UNFINISHED, CONFLICT, ELSEWHERE, OWN_FORMAT],
    ids=["machine path", "registry", "unfinished", "conflict", "elsewhere", "own format"],
)
def test_no_file_holds(pattern: re.Pattern[str], root: Path, files: list[Path]) -> None:
    found = [
        f"{path}:{line}"
        for path, text in texts(root, files).items()
        for line in hits(pattern, text)
    ]
    assert found == []


def test_tests_wait_for_conditions_and_do_not_sleep(root: Path, files: list[Path]) -> None:
    """Only the one waiting loop may sleep."""
    tests = [
        path
        for path in files
        if path.suffix == ".py"
        and path.parts[0] == "tests"
        and path != Path("tests/harness/waiting.py")
    ]
    assert [f"{path}:{line}" for path in tests for line in sleeps((root / path).read_text())] == []


def test_only_a_missing_docker_engine_or_browser_skips_a_test(
    root: Path, files: list[Path]
) -> None:
    """A missing broker, Redis or Java is a failure: a test that was left out proves nothing."""
    tests = [
        path
        for path in files
        if path.suffix == ".py" and path.parts[0] == "tests" and path.parts[1] != "tidy"
    ]
    allowed = [
        path
        for path in tests
        if skips((root / path).read_text())
        and not re.search(r"mark\.docker|docker engine|no browser", (root / path).read_text())
    ]
    assert [str(path) for path in allowed] == []


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (MACHINE_PATH, "see /wor" + "k/main/x"),
        (MACHINE_PATH, 'open("/hom' + 'e/me/x")'),
        (REGISTRY, "https://py" + "pi.org/project/x"),
        (REGISTRY, "https://mirror.example/artifactory/sim" + "ple/polars"),
        (UNFINISHED, "# TO" + "DO: later"),
        (CONFLICT, "<" * 7 + " HEAD"),
        (OWN_FORMAT, "x = (1,2)  # fm" + "t: skip"),
        (ELSEWHERE, "as spe" + "cs/dpc.md 4 says"),
        (ELSEWHERE, "(DES" + "IGN 3.3)"),
    ],
)
def test_a_forbidden_text_is_found(pattern: re.Pattern[str], text: str) -> None:
    assert hits(pattern, f"first line\n{text}\n") == [2]


@pytest.mark.parametrize(
    "text",
    [
        "~/.cache/anabranch",
        "$HOME/.cache",
        "/tmp/x",
        "a/home/b",
        "https://kafka.apache.org/documentation",
    ],
)
def test_an_ordinary_text_is_not(text: str) -> None:
    assert not any(
        hits(pattern, text) for pattern in (MACHINE_PATH, REGISTRY, UNFINISHED, CONFLICT, ELSEWHERE)
    )


def test_a_sleep_and_a_skip_are_found() -> None:
    assert sleeps("import time\ntime.sleep(1)\n") == [2]
    assert skips("import pytest\n@pytest.mark.skipif(True, reason='')\ndef test(): ...\n") == [2]
