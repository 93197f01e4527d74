"""Words of this project alone are not used where stream processing has a word. The left
column of a pattern's line is what was said once.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from harness.syntax import nodes

VAGUE: Final = r"(?:told|held|said|asked|refused)"
NAMES: Final = re.compile(
    rf"(?:^|_|(?<=[a-z0-9])(?=[A-Z]))(?i:{VAGUE})(?:_|$|(?=[A-Z0-9]))|^_*(?i:{VAGUE})(?=[A-Z])"
)
"""What variables, attributes, parameters, functions and classes are not called: a plain verb or
what the value is says more.
"""
SCRIPT_TEXT: Final = re.compile(
    r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", re.DOTALL
)
"""Comments and plain texts of JavaScript. Templates stay: they hold names."""
BINARY: Final = {".avro", ".arrow", ".png", ".jpg", ".gif", ".ico", ".svg", ".jar"}
OWN: Final = {
    "LICENSE",
    "services/anabranch/pipeline/old_keys.py",  # it knows the old keys to name the new ones
    "tests/unit/pipeline/test_old_keys.py",
    "tests/tidy/test_words.py",
}

WORDS: Final = {
    "event_time": r"(?<!tuple_)(?<![a-z])stimes?\b|(?<![a-z])stime_|STIME|\bStime\b",
    "out_of_orderness": r"(?i)(?<![a-z])disorder",
    "idle_timeout": r"(?m)^\s*idle: \{|(?<![\w.])idle\.(?:partition|source)\b",
    "bounded: true": r"\blast_record['\"]|end: last_record",
    "max_ahead": r"(?m)^\s*ahead: (?:\d|unlimited)",
    "late: reassign": r"(?i)restamp",
    "on_missing_input": r"when_late",
    "state_horizon": (
        r"(?m)^\s*reach: |(?<![a-z])reach_(?:ms|buckets)|REACH_MS|protocol\.reach\b|\bBlockReach\b"
    ),
    "stable, not final": r"(?i)\bfinal (?:result|record|answer|bucket|row)s?\b|\.final\b(?!\()",
    "record or row, not tuple": (
        r"TupleId|(?<![a-z])tuple_ids?\b|(?:stable|tentative)_tuples"
        r"|(?<![.\w])(?<!arrays as )(?i:tuples)\b(?!/s)"
    ),
    "log state, not fold": (
        r"(?<![A-Za-z])[Ff]old(?:s|ed|ing|ings)?(?![a-z])|StreamFold|(?<![A-Z])FOLD(?![A-Z])"
    ),
    "log snapshot, not summary": (
        r"(?<![a-z])(?<!pytest's )(?<!terminal_)summar(?:y|ies)\b|(?<![A-Z])SUMMARY|Summary\b"
    ),
    "timeline, not lineage": r"(?i)lineage",
    "stable query, not main": (
        r"\bis_main\b|_main_batch|\*main\*|\b[Mm]ain's\b|runner\.main\b|replica\.main\b"
    ),
    "planner": r"protocol[./:]serialization|\btest_serialization\b",
    "upstream_selection": r"protocol[./:]switching\b|\btest_switching\b",
    "failure_detector": r"protocol[./:]presence\b|\bPresence\b",
    "correction_order": r"(?i)\bstaggering\b",
    "what it is, not surroundings or layout": r"(?i)\bsurroundings\b|ingestion[./]layout\b",
    "recompute": r"(?i)\bresent\b|regenerat|\bresending\b|BlockAsker|\bask_answer\b|AskAnswer",
    "failover": (
        r"(?i)\b(?:take|takes|taking|took|taken)[ _-](?:\w+[ _-]){0,4}over\b(?! (?:the|all) )"
    ),
    "compared, if of one version": r"\bfingerprints[ \n]+are[ \n]+never[ \n]+compared",
    "peer": r"(?i)sibling",
    "rejected": (
        r"(?<![a-z])refusals?\b|(?<![a-z])refused_\w|_refused(?![a-z])|\bRefused\b"
        r"|(?<!new ones )(?<!onnection was )\brefus(?:e|es|ed|ing)\b(?! new ones)"
    ),
}
"""The word to use, with how the old one was written."""

ALLOWED: Final = {
    "stable, not final": ("tests/harness/apicurio.py",),  # a version that others named
    "log snapshot, not summary": ("tests/nightly/report.py", ".github/"),
    # Papers and their figures.
    "record or row, not tuple": ("experiments/", "tests/unit/experiments/"),
    # Connections are refused, by others' errors too.
    "rejected": (
        "services/anabranch/adapters/kafka/client_log.py",
        "tests/unit/adapters/kafka/test_client_log.py",
        "tests/unit/dashboard/test_serving.py",
        "tests/unit/drills/test_proxy.py",
    ),
}
"""Files in which the old word means something else, as everywhere."""


def found(word: str, path: str, text: str) -> list[str]:
    """Where ``text``, the file at ``path``, has the old word for ``word``."""
    if path in OWN or path.startswith(ALLOWED.get(word, ("\0",))):
        return []
    return [
        f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {match[0].strip()!r}"
        for match in re.finditer(WORDS[word], text)
    ]


def names_given(node: ast.AST) -> list[str]:
    """Those that ``node`` itself gives a value, a function, a class or a module."""
    match node:
        case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
            return [name]
        case ast.arg(arg=name):
            return [name]
        case ast.Attribute(attr=name, ctx=ast.Store()) | ast.Name(id=name, ctx=ast.Store()):
            return [name]
        case ast.alias(asname=str(name)) | ast.ExceptHandler(name=str(name)):
            return [name]
        case ast.MatchAs(name=str(name)) | ast.MatchStar(name=str(name)):
            return [name]
        case ast.MatchMapping(rest=str(name)):
            return [name]
        case _:
            return []


def vague_names(path: str, source: str) -> list[str]:
    """Names that ``source`` gives and that are none of the field's. The name of a test is a
    sentence.
    """
    given = {
        (getattr(node, "lineno", 0), name) for node in nodes(source) for name in names_given(node)
    }
    return [
        f"{path}:{line}: {name}"
        for line, name in sorted(given)
        if NAMES.search(name) and not (path.startswith("tests/") and name.startswith("test_"))
    ]


def vague_words(path: str, script: str) -> list[str]:
    """The same of ``script``, in JavaScript."""
    plain = SCRIPT_TEXT.sub(lambda text: "\n" * text[0].count("\n"), script)
    return [
        f"{path}:{number}: {name}"
        for number, line in enumerate(plain.splitlines(), 1)
        for name in re.findall(r"[A-Za-z_$][\w$]*", line)
        if NAMES.search(name)
    ]


@pytest.fixture(scope="module")
def texts(root: Path, files: list[Path]) -> dict[str, str]:
    return {str(path): (root / path).read_text() for path in files if path.suffix not in BINARY}


@pytest.mark.parametrize("word", WORDS)
def test_the_words_of_the_field_are_used(word: str, texts: dict[str, str]) -> None:
    assert [
        line
        for path, text in texts.items()
        for line in [*found(word, path, text), *found(word, path, path)]
    ] == []


def test_names_are_what_the_value_is(texts: dict[str, str]) -> None:
    sources = {
        path: text for path, text in texts.items() if path.endswith(".py") and path not in OWN
    }
    assert {path.partition("/")[0] for path in sources} == {
        "benchmarks",
        "demo",
        "deploy",
        "examples",
        "experiments",
        "services",
        "tests",
    }
    assert [line for path, source in sources.items() for line in vague_names(path, source)] == []


def test_names_in_javascript_are_what_the_value_is(texts: dict[str, str]) -> None:
    scripts = {path: text for path, text in texts.items() if path.endswith((".js", ".mjs"))}
    assert scripts
    assert [line for path, script in scripts.items() for line in vague_words(path, script)] == []


@pytest.mark.parametrize(
    "source",
    [
        "self._asked = 1",
        "held: int = 0",
        "def held_by_cap(): ...",
        "def f(*, said): ...",
        "for told in x: ...",
        "(held for held in x)",
        "class Held: ...",
        "class _Said(Settings): ...",
        "class SaidOtherwise: ...",
        "class TestWhatIsSaid: ...",
        "_ASKED_AT_ONCE = 8",
        "class State(Enum):\n    ASKED = auto()",
        "def test_it(said): ...",
        "def test_it():\n    told: list[str] = []",
        "def who_is_told(): ...",
        "async def ask(self, *asked): ...",
        "lambda held: 1",
        "if (said := answer()): ...",
        "first, (_, told) = x",
        "with connect() as refused: ...",
        "try: ...\nexcept Error as told: ...",
        "import words as said",
        "match x:\n    case [Ask(held), *_]: ...",
        "match x:\n    case [_, *held]: ...",
        "match x:\n    case {1: _, **held}: ...",
        "match x:\n    case Ask() as asked: ...",
    ],
)
def test_a_vague_name_is_found(source: str) -> None:
    assert len(vague_names("tests/x.py", source)) == 1
    assert vague_names("tests/x.py", "withheld = household = HOUSEHELD = cabled.asked") == []


def test_the_name_of_a_test_is_a_sentence() -> None:
    source = "def test_who_is_told(): ..."
    assert vague_names("tests/x.py", source) == []
    assert vague_names("services/x.py", source) == ["services/x.py:1: test_who_is_told"]


@pytest.mark.parametrize(
    "script",
    [
        "const held = 1;",
        "let isAsked;",
        "for (const askedFor of x) {}",
        "text(`${held}`)",
        "f(_said)",
    ],
)
def test_a_vague_name_is_found_in_javascript(script: str) -> None:
    assert len(vague_words("x", script)) == 1
    text = "// held\n/* asked\nsaid */ const household = \"told\"; const withheld = 'asked';"
    assert vague_words("x", text) == []


@pytest.mark.parametrize(
    ("word", "text"),
    [
        ("event_time", "by stime"),
        ("event_time", "anabranch-stime"),
        ("event_time", "STIME_HEADER"),
        ("out_of_orderness", "    disorder: 200ms"),
        ("idle_timeout", "    idle: {partition: 5s}"),
        ("bounded: true", "    end: last_record"),
        ("max_ahead", "    ahead: 1m"),
        ("late: reassign", "restamped"),
        ("on_missing_input", "stage.when_late"),
        ("state_horizon", "reach_ms"),
        ("stable, not final", "the final answer"),
        ("record or row, not tuple", "TupleId(1, 2)"),
        ("record or row, not tuple", "they made other tuples of a bucket"),
        ("log state, not fold", "the fold took it"),
        ("log snapshot, not summary", "a summary of the log"),
        ("timeline, not lineage", "LINEAGES_MAX"),
        ("stable query, not main", "main's checkpoint"),
        ("planner", "from anabranch.protocol.serialization import Plan"),
        ("upstream_selection", "protocol.switching"),
        ("failure_detector", "Presence.of_replicas"),
        ("correction_order", "protocol.staggering"),
        ("what it is, not surroundings or layout", "processing.surroundings"),
        ("recompute", "Resent("),
        ("failover", "a take-over"),
        ("failover", "a newer process took over"),
        ("failover", "another one has taken its replica over"),
        (
            "compared, if of one version",
            "digests of different fingerprints\n    are never compared",
        ),
        ("peer", "a sibling's checkpoint"),
        ("rejected", "anabranch_refused_boundary_records"),
        ("rejected", "a record that was refused"),
    ],
)
def test_an_old_word_is_found(word: str, text: str) -> None:
    assert found(word, "services/anabranch/x.py", f"\n{text}\n") != []


@pytest.mark.parametrize(
    "text",
    [
        "tuple_stime",
        "st.tuples(...)",
        "200000 tuples/s",
        "local_ms",
        "folder",
        "ahead of time",
        "idle processors",
        "unreachable",
        "a connection was refused",
        "closes connections and refuses new ones",
        "presence of mind",
        "def main()",
    ],
)
def test_an_ordinary_word_is_not(text: str) -> None:
    assert [word for word in WORDS if found(word, "services/anabranch/x.py", f"{text}\n")] == []
