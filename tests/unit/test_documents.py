"""Tests that the documents match the code: commands, files, settings, metrics."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pydantic
import pytest
import typer

from anabranch import cli
from anabranch.adapters.spark.settings import SparkSettings
from anabranch.codec.formats import FORMATS
from anabranch.pipeline import bindings, file, model, output_section, source_section, stage_section
from anabranch.pipeline.durations import format_ms
from anabranch.pipeline.file import load
from anabranch.process.settings import argument_parser
from anabranch.protocol.limits import MIB

ROOT = Path(__file__).parents[2]
SERVICES = (
    "ingestion",
    "processing",
    "delivery",
    "consistency_manager",
    "contract_broker",
    "agent",
)


COMMAND_OF = cache(typer.main.get_command)
"""With all below it, which takes half a second to put together."""


def code_blocks(text: str) -> Iterator[tuple[int, str]]:
    """(line number, line) of what a Markdown text shows as code: between fences, or indented
    below an empty line.
    """
    fenced, before = False, ""
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
        elif fenced or (
            line.startswith("    ") and (not before.strip() or before.startswith("    "))
        ):
            yield number, line.strip()
        before = line


def commands(line: str) -> list[list[str]]:
    """Return the simple commands of a line as a person would type it: without prompt and comment,
    cut at ``;``, ``|``, ``>`` and ``&&``.
    """
    lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    found: list[list[str]] = [[]]
    try:
        for word in lexer:
            if set(word) <= set("();<>|&"):
                found.append([])
            else:
                found[-1].append(word)
    except ValueError:  # an apostrophe in what a program prints
        return []
    return [words for words in found if words]


def mistake(words: list[str]) -> str | None:
    """Why the command's own parser does not take it; None: it does, or it is none of ours.
    Nothing is run.
    """
    if words[0] == "anabranch":
        return _parsed(words[1:])
    service = (
        re.fullmatch(r"anabranch\.(\w+)", words[2])
        if words[:2] == ["python", "-m"] and len(words) > 2
        else None
    )
    if service is None or service[1] not in SERVICES:
        return None
    try:
        argument_parser(service[1]).parse_args(words[3:])
    except SystemExit as error:
        return None if error.code == 0 else f"{' '.join(words)}: not taken"
    return None


def _parsed(arguments: list[str]) -> str | None:
    command = COMMAND_OF(cli.app)
    name: str | None = "anabranch"
    rest, context = arguments, None
    try:
        while isinstance(command, typer.core.TyperGroup):
            context = command.make_context(name, rest, parent=context)
            left = [*context._protected_args, *context.args]
            if not left and command.invoke_without_command:
                return None
            name, found, rest = command.resolve_command(context, left)
            assert found is not None
            command = found
        command.make_context(name, rest, parent=context)
    except typer.Exit:
        return None
    except Exception as error:  # noqa: BLE001 - usage errors of the library that typer carries along
        return f"anabranch {' '.join(arguments)}: {getattr(error, 'message', error)!s}"
    return None


def mistakes(text: str) -> list[str]:
    found = (
        (number, mistake(words)) for number, line in code_blocks(text) for words in commands(line)
    )
    return [f"{number}: {why}" for number, why in found if why]


def documents() -> list[Path]:
    return [
        ROOT / "README.md",
        ROOT / "CONTRIBUTING.md",
        *sorted((ROOT / "docs").glob("*.md")),
        *sorted((ROOT / "examples").glob("*/README.md")),
    ]


@pytest.mark.parametrize("path", documents(), ids=lambda path: f"{path.parent.name}/{path.name}")
def test_every_command_that_is_shown_is_one(path: Path) -> None:
    assert mistakes(path.read_text()) == []


def helps(group: typer.core.TyperGroup) -> Iterator[str]:
    """Yield the help of every command, with those of its subcommands."""
    for command in group.commands.values():
        yield command.help or ""
        if isinstance(command, typer.core.TyperGroup):
            yield from helps(command)


def test_every_command_that_help_shows_is_one() -> None:
    group = COMMAND_OF(cli.app)
    assert isinstance(group, typer.core.TyperGroup)
    shown = [line.strip() for text in helps(group) for line in text.splitlines()]
    examples = [
        words for line in shown if line.startswith("anabranch ") for words in commands(line)
    ]
    assert len(examples) > 20
    assert [why for words in examples if (why := mistake(words))] == []


@pytest.mark.parametrize(
    "line",
    [
        "anabranch tail tolls pipeline.yaml --from-beginning",
        "$ anabranch up --kafka-prot 9092   # no such option",
        "true; anabranch uppp | cat",
        "python -m anabranch.ingestion --nothing x",
    ],
)
def test_a_command_that_is_none_is_found(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(mistakes(f"text\n```\n{line}\n```\n")) == 1
    assert len(mistakes(f"text\n\n    {line}\n")) == 1
    assert mistakes(f"text `{line}` text\n{line}\n") == []


@pytest.mark.parametrize(
    "line",
    [
        "anabranch --version",
        "$ anabranch up -f p.yaml --drills   # it's so",
        "anabranch --help >x",
        "don't anabranch",
    ],
)
def test_an_ordinary_line_is_not(line: str) -> None:
    assert mistakes(f"```\n{line}\n```\n") == []


def files_of(text: str) -> dict[str, str]:
    """Name -> content, where a paragraph that begins with a file's name in back quotes stands
    before a block of code.
    """
    return dict(
        re.findall(r"^`([\w.]+)`,[^\n]*:\n\n```\w+\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    )


def test_the_pipeline_of_the_readme_is_one(tmp_path: Path) -> None:
    files = files_of((ROOT / "README.md").read_text())
    assert sorted(files) == ["pipeline.yaml", "reading.avsc", "stages.py"]
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    pipeline = load(tmp_path / "pipeline.yaml")
    assert [name for service, name in pipeline.processes() if service != "consistency_manager"] == [
        "readings",
        "local.0",
        "hottest",
    ]


def tables(text: str, header: str = "|") -> list[dict[str, list[str]]]:
    """Each table of a Markdown text whose header begins so: first cell, without back quotes -> the
    others.
    """
    found: list[dict[str, list[str]]] = []
    before, is_wanted = "", False
    for line in text.splitlines():
        if re.fullmatch(r"\|(-+\|)+", line):
            is_wanted = before.startswith(header)
            if is_wanted:
                found.append({})
        elif line.startswith("|") and is_wanted and before.startswith("|"):
            first, *others = (cell.strip() for cell in line.strip("|").split(" | "))
            found[-1][first.strip("` ")] = others
        before = line
    return found


PIPELINE_TABLES: dict[str, tuple[tuple[str, ...], type[pydantic.BaseModel]]] = {
    "file": (file._FILE_KEYS, model.Pipeline),
    "source": (source_section._SOURCE_KEYS, model.Source),
    "idle_timeout": (("partition", "source"), model.IdleTimeout),
    "stage": (stage_section._STAGE_KEYS, model.Stage),
    "binding": (bindings.BINDING_KEYS, model.Binding),
    "output": (output_section._OUTPUT_KEYS, model.Output),
    "sink": (output_section._LIVE_KEYS, model.LiveSink),
}


def keys_of(fields: type[pydantic.BaseModel]) -> set[str]:
    """Return the names of a model's fields in the file."""
    own = {
        name.removesuffix("_ms")
        .removesuffix("_bytes")
        .removesuffix("_records")
        .removeprefix("named_")
        for name in fields.model_fields
    } - {"path", "name", "stage_shards", "shards_before"}
    if "share" in own:
        own = own - {"share", "parent"} | {"shards", "shard_by", "halvings"}
    return own | {"pipeline"} if fields is model.Pipeline else own


def test_every_key_of_the_pipeline_file_is_documented_and_no_other() -> None:
    found = tables((ROOT / "docs" / "pipeline.md").read_text(), "| key |")
    assert len(found) == len(PIPELINE_TABLES)
    for rows, (known, fields) in zip(found, PIPELINE_TABLES.values(), strict=True):
        assert set(rows) == set(known) == keys_of(fields)
        if "format" in rows:
            formats = [
                name for name, each in FORMATS.items() if "key" not in rows or each.is_written
            ]
            assert rows["format"][0] == ", ".join(f"`{name}`" for name in formats)


def test_the_documented_defaults_are_those_of_a_file_that_leaves_all_out(tmp_path: Path) -> None:
    for name, content in files_of((ROOT / "README.md").read_text()).items():
        (tmp_path / name).write_text(content)
    whole = (tmp_path / "pipeline.yaml").read_text()
    (tmp_path / "pipeline.yaml").write_text(
        re.sub(r"^ *(?:idle_timeout|partitions): .*\n", "", whole, flags=re.MULTILINE)
    )
    pipeline = load(tmp_path / "pipeline.yaml")
    live = pipeline.outputs["hottest"].live
    values = [
        pipeline,
        pipeline.sources["readings"],
        pipeline.sources["readings"].idle_timeout,
        pipeline.stages["hottest"],
        model.Binding(
            name="b", pipeline="q", stream="s", record=pipeline.sources["readings"].record
        ),
        pipeline.outputs["hottest"],
        live,
    ]
    for rows, value in zip(
        tables((ROOT / "docs" / "pipeline.md").read_text(), "| key |"), values, strict=True
    ):
        for key, (_, default, _) in rows.items():
            actual: Any = getattr(value, key, getattr(value, f"{key}_ms", None))
            if isinstance(value, model.Stage) and key == "shards":
                actual = len(pipeline.input_streams(value.name))
            if isinstance(value, model.Stage) and key == "halvings":
                actual = len(pipeline.halves(value.name))
            if isinstance(actual, model.Shed):
                actual = actual.kind
            if (of_bytes := getattr(value, f"{key}_bytes", None)) is not None:
                assert default == f"`{of_bytes // MIB}m`", key
            elif (written := re.fullmatch(r"`(\w+)`", default)) is not None:
                text = (
                    format_ms(actual)
                    if hasattr(value, f"{key}_ms") and actual is not None
                    else str(actual).lower()
                )
                assert written[1] == ("never" if actual is None else text), key


def test_every_setting_of_a_stages_spark_is_documented_with_its_default() -> None:
    (rows,) = [
        table for table in tables((ROOT / "docs" / "speed.md").read_text()) if "PACE_MS" in table
    ]
    assert set(rows) == {name.upper() for name in SparkSettings.model_fields}
    for name, field in SparkSettings.model_fields.items():
        assert rows[name.upper()][0].replace(" ", "").strip("`").startswith(str(field.default)), (
            name
        )


def metrics_of(source: str) -> dict[str, tuple[str, ...]]:
    """Return exported name -> labels of the metrics that a module registers. A function may compose
    a name: ``f"a_{name}"``.
    """
    if "prometheus_client" not in source:
        return {}
    tree = ast.parse(source)
    constants = {
        target.id: ast.literal_eval(node.value)
        for node in tree.body
        if isinstance(node, ast.Assign | ast.AnnAssign) and isinstance(node.value, ast.Tuple)
        for target in (node.targets if isinstance(node, ast.Assign) else [node.target])
        if isinstance(target, ast.Name) and target.id == "_LABELS"
    }
    calls = [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    ]
    found = {}
    for call in calls:
        kind = call.func.id if isinstance(call.func, ast.Name) else ""
        if kind in ("Counter", "Gauge", "Histogram") and len(call.args) == 3:
            labels = eval(ast.unparse(call.args[2]), {}, constants)
            for name in _names(call.args[0], calls):
                found[f"{name}_total" if kind == "Counter" else name] = tuple(labels)
    return found


def _names(name: ast.expr, calls: list[ast.Call]) -> list[str]:
    if isinstance(name, ast.Constant):
        return [str(name.value)]
    assert isinstance(name, ast.JoinedStr)
    start = str(ast.literal_eval(name.values[0]))
    ends = [
        call.args[0]
        for call in calls
        if isinstance(call.func, ast.Name) and call.func.id == "counter"
    ]
    return [start + str(ast.literal_eval(end)) for end in ends]


def test_every_metric_is_documented_with_its_labels_and_no_other() -> None:
    services = ROOT / "services" / "anabranch"
    registered: dict[str, tuple[str, ...]] = {}
    for path in sorted(services.rglob("*.py")):
        registered |= metrics_of(path.read_text())
    documented = {
        name: tuple(re.findall(r"`(\w+)`", others[0]))
        for table in tables((ROOT / "docs" / "metrics.md").read_text())
        for name, others in table.items()
        if name.startswith("anabranch_")
    }
    assert len(registered) > 25
    assert documented == registered


def test_a_metric_that_a_document_names_is_one() -> None:
    known = {
        name for path in (ROOT / "services").rglob("*.py") for name in metrics_of(path.read_text())
    }
    named = {
        (path.name, name)
        for path in documents()
        for name in re.findall(r"`(anabranch_[a-z_]+)`", path.read_text())
    }
    assert named
    assert [(path, name) for path, name in sorted(named) if name not in known] == []
