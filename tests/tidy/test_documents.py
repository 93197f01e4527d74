"""The documents and the commands agree with what is there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

from harness.syntax import tree

LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
README_BYTES_MAX = 8_000
"""A stranger reads it to the end; the rest is in docs/."""


def anchors(text: str) -> set[str]:
    """Return the anchors that a link may name behind ``#``: the headings of a Markdown text, as the
    hosts of repositories write them.
    """
    headings = re.findall(
        r"^#{1,6} +(.+?) *$",
        re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL),
        re.MULTILINE,
    )
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(path: Path, text: str) -> list[str]:
    """Relative links of a Markdown file that lead nowhere: no such file, or no such heading
    in it.
    """
    found = []
    for target in (
        each for each in LINK.findall(text) if not each.startswith(("http:", "https:", "mailto:"))
    ):
        name, _, anchor = target.partition("#")
        file = path.parent / name if name else path
        there = (
            text
            if not name
            else file.read_text()
            if file.suffix == ".md" and file.exists()
            else None
        )
        if (name and not file.exists()) or (
            anchor and there is not None and anchor not in anchors(there)
        ):
            found.append(f"{path}: {target}")
    return found


def is_nightly(source: str) -> bool:
    """Return whether all tests of a module have the mark ``nightly``."""
    body = tree(source).body
    marks = [each for each in body if isinstance(each, ast.Assign)]
    tests = [
        each for each in body if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]
    return any("mark.nightly" in ast.unparse(each) for each in marks) or all(
        any(ast.unparse(mark) == "pytest.mark.nightly" for mark in test.decorator_list)
        for test in tests
    )


def unsaid_nights(path: Path, text: str) -> list[str]:
    """Return the tests that a table's row names as if every run had them, but that run at night
    or on a cluster.
    """
    return [
        f"{target}: runs at night"
        for row in text.splitlines()
        if row.startswith("|") and "nightly" not in row and "cluster-test" not in row
        for target in LINK.findall(row)
        if target.endswith(".py") and "/test_" in target
        if is_nightly((path.parent / target).read_text())
    ]


def drawn_folders(text: str) -> set[str]:
    """Return the folders in the drawing of the tree, which is the first block of code in
    ``text``.
    """
    found: set[str] = set()
    above: list[tuple[int, str]] = []
    for line in text.split("```")[1].splitlines():
        match = re.match(r"( *)((?:[\w./]+(?:/|\.py)(?: |$))+)", line)
        if match is None:
            continue
        depth = len(match[1])
        above = [each for each in above if each[0] < depth]
        folder = above[-1][1] if above else ""
        names = [f"{folder}{name}" for name in match[2].split() if name.endswith("/")]
        found.update(name.rstrip("/") for name in names)
        above += [(depth, names[-1])] if names else []
    return found


def wrongly_drawn(drawn: set[str], real: set[str]) -> list[str]:
    """Return the differences between a drawing of the package and its folders: drawn ones that do
    not exist, and existing ones that are not drawn, if any folder beside them is.
    """
    package = "services/anabranch"
    parents = {str(Path(name).parent) for name in drawn if name.startswith(package + "/")}
    return [
        *(f"{name} is drawn and not there" for name in sorted(drawn - real)),
        *(
            f"{name} is there and not drawn"
            for name in sorted(real - drawn)
            if str(Path(name).parent) in parents
        ),
    ]


def pins(text: str) -> dict[str, int]:
    """Return requirement ``name==version``, without extras -> number of its hashes."""
    found: dict[str, int] = {}
    name = ""
    for line in text.splitlines():
        if match := re.match(r"([A-Za-z0-9_.-]+)(?:\[[^\]]*\])?(==[^\s;\\]+)", line):
            name = "".join(match.groups())
            found[name] = 0
        found[name] = found.get(name, 0) + line.count("--hash=sha256:")
    return found


def targets(makefile: str) -> dict[str, str]:
    """Target -> its help text; only those that a person may call."""
    return dict(re.findall(r"^([a-z][a-z-]*):[^=\n]*?## (.+)$", makefile, re.MULTILINE))


def test_links_lead_somewhere(root: Path, files: list[Path]) -> None:
    assert [
        line
        for path in files
        if path.suffix == ".md"
        for line in broken_links(root / path, (root / path).read_text())
    ] == []


def test_a_guarantee_says_where_it_is_shown_by_night_alone(root: Path) -> None:
    page = root / "docs" / "guarantees.md"
    assert unsaid_nights(page, page.read_text()) == []


def test_a_test_that_runs_at_night_is_told_from_others(tmp_path: Path) -> None:
    night = "import pytest\n\n@pytest.mark.nightly\ndef test_a() -> None: ...\n"
    for name, text in {
        "test_a.py": night,
        "test_b.py": f"{night}\ndef test_b() -> None: ...\n",
        "test_c.py": "pytestmark = [pytest.mark.nightly]\n\ndef test_c() -> None: ...\n",
    }.items():
        (tmp_path / name).write_text(text)
    rows = [f"| all of it | [it](./test_{name}.py){{}} |" for name in "abc"]
    said = [row.format(" (`make nightly`)") for row in rows]
    found = unsaid_nights(
        tmp_path / "page.md", "\n".join([*said, *(row.format("") for row in rows)])
    )
    assert found == ["./test_a.py: runs at night", "./test_c.py: runs at night"]


def test_the_drawing_of_the_tree_is_that_of_the_folders(root: Path, files: list[Path]) -> None:
    drawn = drawn_folders((root / "CONTRIBUTING.md").read_text())
    real = {str(folder) for path in files for folder in path.parents}
    assert {"services/anabranch/protocol/log", "services/anabranch/adapters"} <= drawn
    assert wrongly_drawn(drawn, real) == []


def test_a_folder_that_is_missing_in_the_drawing_or_in_the_tree_is_found() -> None:
    drawing = (
        "```\nservices/anabranch/   all\n  protocol/    rules\n    log/  x\n  gone/ up/  y\n```"
    )
    drawn = drawn_folders(drawing)
    inside = {"protocol", "protocol/log", "protocol/new", "up", "up/deep", "other"}
    assert wrongly_drawn(
        drawn, {"services/anabranch", *(f"services/anabranch/{name}" for name in inside)}
    ) == [
        "services/anabranch/gone is drawn and not there",
        "services/anabranch/other is there and not drawn",
        "services/anabranch/protocol/new is there and not drawn",
    ]


def test_each_page_that_a_text_names_is_there(root: Path, files: list[Path]) -> None:
    """Docstrings, messages of commands, comments: what is not a link in Markdown."""
    sources = [
        path
        for path in files
        if path.suffix in (".py", ".yaml", ".yml", ".avsc", ".toml")
        or path.name in ("Makefile", "Dockerfile")
    ]
    named = [
        (path, page)
        for path in sources
        for page in re.findall(r"\bdocs/[\w/]+\.md\b", (root / path).read_text())
    ]
    assert len(named) > 10
    assert [f"{path}: {page}" for path, page in named if not (root / page).exists()] == []


def test_the_readme_is_short(root: Path) -> None:
    assert len((root / "README.md").read_bytes()) <= README_BYTES_MAX


def test_the_changelog_has_a_place_for_the_next_change(root: Path) -> None:
    text = (root / "CHANGELOG.md").read_text()
    assert re.findall(r"^## (.*)$", text, re.MULTILINE)[0].endswith("- unreleased")
    assert "### Safety" in text


def test_requirements_are_locked_by_hash_and_name_no_registry(root: Path) -> None:
    runtime, development = (
        pins((root / name).read_text()) for name in ("requirements.txt", "requirements-dev.txt")
    )
    assert runtime
    assert [name for name, hashes in {**runtime, **development}.items() if not hashes] == []
    assert sorted(set(runtime) - set(development)) == [], "the services run with what was tested"
    text = (root / "requirements.txt").read_text() + (root / "requirements-dev.txt").read_text()
    assert not re.search(r"https?:|--(?:extra-)?index-url|--find-links", text)


def test_each_dependency_is_locked(root: Path) -> None:
    project = tomllib.loads((root / "pyproject.toml").read_text())
    wanted = [
        *project["project"]["dependencies"],
        *project["project"]["optional-dependencies"]["run"],
    ]
    names = [re.split(r"[\[<>=;~! ]", each)[0] for each in wanted]
    locked = {each.partition("==")[0] for each in pins((root / "requirements.txt").read_text())}
    assert sorted({name.replace(".", "-").lower() for name in names} - locked) == []


def test_each_command_says_what_it_does_and_has_what_it_runs(root: Path) -> None:
    makefile = (root / "Makefile").read_text()
    phony = set(re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE))
    assert phony - set(targets(makefile)) == {"openssl"}, "a check that others call"
    scripts = re.findall(r"\$\(BIN\)/python ([\w/]+\.py)", makefile) + re.findall(
        r"\$\(PYTEST\) (tests/\w+(?: tests/\w+)*)", makefile
    )
    scripts += [
        f"{module.replace('.', '/')}.py"
        for module in re.findall(
            r"\$\(BIN\)/python -m ((?:benchmarks|demo|deploy|examples|experiments)[\w.]*)", makefile
        )
    ]
    parts = [root / part for script in scripts for part in script.split()]
    assert [
        part
        for part in parts
        if not part.exists() and not (part.with_suffix("") / "__main__.py").exists()
    ] == []


def test_ci_runs_the_commands_of_the_makefile(root: Path) -> None:
    script = root / ".ci/run"
    assert script.stat().st_mode & 0o111
    assert "make test" in script.read_text()
    assert "set -euo pipefail" in script.read_text()


def test_every_test_folder_is_run(root: Path, files: list[Path]) -> None:
    folders = {
        path.parts[1]
        for path in files
        if path.parts[0] == "tests" and path.name.startswith("test_")
    }
    assert folders - set(re.findall(r"tests/(\w+)", (root / "Makefile").read_text())) == set()


def test_images_are_pinned(root: Path) -> None:
    texts = [(root / name).read_text() for name in ("docker-compose.yml", "Dockerfile")]
    images = [
        image
        for text in texts
        for image in re.findall(r"^\s*(?:image:|FROM) +(\S+)", text, re.MULTILINE)
    ]
    assert images
    assert [
        image
        for image in images
        if not re.search(r":\$?\{?[\w.-]*\d", image) and not image.startswith("anabranch")
    ] == []


def test_decisions_are_numbered_without_gaps(root: Path) -> None:
    names = sorted(path.name for path in (root / "docs/adr").glob("[0-9]*.md"))
    assert [int(name[:4]) for name in names] == list(range(1, len(names) + 1))
    for name in names:
        text = (root / "docs/adr" / name).read_text()
        assert all(f"## {part}" in text for part in ("Context", "Decision", "Consequences")), name


@pytest.mark.parametrize(
    "text",
    [
        "[x](nowhere.md)",
        "see [x](../nowhere/y.py#part)",
        "[x](#part)",
        "[x](b.md#part)",
        "```\n# Part\n```\n[x](#part)",
    ],
)
def test_a_broken_link_is_found(tmp_path: Path, text: str) -> None:
    (tmp_path / "b.md").write_text("# A `part` of it, and another\n")
    assert len(broken_links(tmp_path / "a.md", text)) == 1
    assert (
        broken_links(
            tmp_path / "a.md",
            "[x](https://kafka.apache.org) [y](#part) [z](b.md#a-part-of-it-and-another)\n##"
            " Part\n",
        )
        == []
    )


def test_an_unhashed_requirement_is_found() -> None:
    assert pins("a==1 \\\n    --hash=sha256:00\nb==2\n") == {"a==1": 1, "b==2": 0}
