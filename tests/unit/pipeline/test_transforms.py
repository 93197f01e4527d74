from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from anabranch.pipeline import transforms
from anabranch.protocol.errors import ConfigurationError

SOURCE = """
import os
def plain(reports, window="1 minute"): return reports
def strict(reports, *, window): return reports
def anything(**named): return named
def positional(a, /): return a
async def later(reports): return reports
def decorator(f): return f
@decorator
def decorated(): pass
class Shape: pass
assigned, second = plain, plain
annotated: object = plain
if os.name:
    def inside(): pass
else:
    def other(): pass
try:
    def tried(): pass
except ImportError:
    def handled(): pass
finally:
    ended = 1
with open(__file__):
    def within(): pass
"""


@pytest.fixture
def file(tmp_path: Path) -> Iterator[Path]:
    """Return the path of a pipeline file with modules next to it. Removes their traces from this
    interpreter afterwards.
    """
    before, modules = list(sys.path), set(sys.modules)
    (tmp_path / "stages_here.py").write_text(SOURCE)
    (tmp_path / "is_broken.py").write_text("import nothing_of_that_name")
    (tmp_path / "bad_syntax.py").write_text("def (")
    (tmp_path / "starry.py").write_text("from os.path import *")
    (tmp_path / "lazy.py").write_text("def __getattr__(name): return print")
    package = tmp_path / "some_package"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('must not run while checking')")
    (package / "deep.py").write_text("def f(x): return x")
    yield tmp_path / "pipeline.yaml"
    sys.path[:] = before
    for name in set(sys.modules) - modules:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("reference", "inputs", "parameters"),
    [
        ("stages_here:plain", ["reports"], []),
        ("stages_here:plain", ["reports"], ["window"]),
        ("stages_here:strict", ["reports"], ["window"]),
        ("stages_here:anything", ["a-b", "c"], ["d"]),
        ("stages_here:later", ["x"], []),
        ("stages_here:decorated", ["x"], []),
        ("stages_here:assigned", ["x"], []),
        ("stages_here:second", ["x"], []),
        ("stages_here:annotated", ["x"], []),
        ("stages_here:inside", [], []),
        ("stages_here:other", [], []),
        ("stages_here:handled", [], []),
        ("stages_here:within", [], []),
        ("stages_here:os", [], []),
        ("stages_here:plain", ["whatever"], None),
        ("some_package.deep:f", ["x"], []),
        ("starry:join", ["x"], []),
        ("lazy:any", ["x"], []),
        ("json:dumps", ["obj"], None),
    ],
)
def test_what_is_there_and_fits_is_no_mistake(
    file: Path, reference: str, inputs: list[str], parameters: list[str] | None
) -> None:
    assert transforms.check(reference, file, inputs, parameters) is None


@pytest.mark.parametrize(
    ("reference", "inputs", "parameters", "says"),
    [
        (
            "plain",
            [],
            [],
            "'plain' is not of the form module:function; write for example stages:plain",
        ),
        ("stages.plain", [], [], "not of the form module:function; write for example stages:plain"),
        ("no word", [], [], "write for example stages:my_function"),
        ("a:b:c", [], [], "not of the form"),
        (
            "no_such_module:f",
            [],
            [],
            (
                "no module no_such_module next to the pipeline file or on the Python path; put"
                " no_such_module.py next to the pipeline file"
            ),
        ),
        ("some_package.nothing:f", [], [], "put some_package/nothing.py next to the pipeline file"),
        ("stages_here.deeper:f", [], [], "no module stages_here.deeper"),
        ("bad_syntax:f", [], [], "cannot be read"),
        ("stages_here:plane", [], [], "did you mean plain?"),
        ("stages_here:zzzzzz", [], [], "has no function zzzzzz"),
        ("stages_here:Shape", [], [], "is a class"),
        (
            "stages_here:plain",
            ["cars"],
            [],
            "no argument cars for the input cars; it has reports, window",
        ),
        ("stages_here:plain", ["reports"], ["windw"], "for the parameter windw"),
        ("stages_here:strict", ["reports"], [], "needs an argument window"),
        ("stages_here:positional", ["a"], [], "by position only"),
    ],
)
def test_each_mistake_is_named(
    file: Path, reference: str, inputs: list[str], parameters: list[str], says: str
) -> None:
    problem = transforms.check(reference, file, inputs, parameters)
    assert problem is not None
    assert says in problem


def test_a_function_is_imported_from_next_to_the_file(file: Path) -> None:
    function = transforms.import_transform("stages_here:plain", file)
    assert function(reports=3) == 3
    assert transforms.import_transform("stages_here:plain", file) is function
    assert sys.path.count(str(file.parent)) == 1
    assert transforms.import_root("stages_here:plain", file) == file.parent
    assert transforms.import_root("json:dumps", file) is None


def test_the_pipelines_folder_comes_after_the_standard_library(file: Path) -> None:
    """A module in the folder that has the name of a standard one is never imported instead of it,
    whoever imports first.
    """
    (file.parent / "colorsys.py").write_text("raise RuntimeError('not the standard library')")
    sys.modules.pop("colorsys", None)
    transforms.import_transform("stages_here:plain", file)
    assert Path(importlib.import_module("colorsys").__file__ or "").parent != file.parent
    problem = transforms.check("stages_here:plain", file, ["reports"], [])
    assert problem is not None
    assert "colorsys.py has the name of a module of the standard library" in problem


@pytest.mark.parametrize("name", ["json", "json.yaml", "test"])
def test_only_modules_shadow_the_standard_library(file: Path, name: str) -> None:
    (file.parent / name).mkdir()
    assert transforms.check("stages_here:plain", file, ["reports"], []) is None


def test_a_package_may_hold_the_pipeline_file(file: Path) -> None:
    inner = file.parent / "some_package" / "pipeline.yaml"
    assert transforms.check("some_package.deep:f", inner, ["x"], []) is None
    assert transforms.import_root("some_package.deep:f", inner) == file.parent


def test_a_compiled_module_is_taken_at_its_word(file: Path) -> None:
    (file.parent / "compiled.so").write_bytes(b"")
    suffix = next(iter(__import__("importlib.machinery").machinery.EXTENSION_SUFFIXES))
    (file.parent / f"compiled{suffix}").write_bytes(b"")
    assert transforms.check("compiled:f", file, [], []) is None


@pytest.mark.parametrize(
    ("reference", "says"),
    [
        ("is_broken:f", "importing is_broken failed"),
        ("some_package.deep:f", "must not run while checking"),
        ("stages_here:ended", "has no function ended"),
        ("stages_here:zzz", "has no function zzz"),
        ("nowhere_at_all:f", "No module named 'nowhere_at_all'"),
    ],
)
def test_what_fails_at_import_is_a_configuration_error(
    file: Path, reference: str, says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        transforms.import_transform(reference, file)
