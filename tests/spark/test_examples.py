"""Each example gives what stands beside it, and shows commands that there are."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark import cloudpickle

from anabranch.adapters.spark.sample_run import SampleRun
from anabranch.operating import new_pipeline
from anabranch.operating.trial import cases_in, judge, run_case
from anabranch.pipeline.file import load
from anabranch.pipeline.transforms import import_roots
from anabranch.protocol.errors import StageFunctionError
from harness.spark_sessions import small_session

EXAMPLES = Path(__file__).parents[2] / "examples"
ALONE: list[tuple[Path, list[str]]] = [
    (file, []) for file in sorted(EXAMPLES.glob("*/pipeline.yaml"))
]
OF_SEVERAL = [
    (file, [case.name])
    for case in sorted(EXAMPLES.glob("*/tests/*"))
    if (file := case.parents[1] / f"{case.name}.yaml").exists()
]
"""Cases of folders with several pipelines: each has the name of its pipeline."""
PIPELINES = ALONE + OF_SEVERAL
"""A pipeline file, and its cases; none: all that there are."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("examples")


@pytest.fixture(scope="module")
def run(folder: Path) -> Iterator[SampleRun]:
    roots = [
        root for file, _ in PIPELINES for root in import_roots(load(file).stages.values(), file)
    ]
    with small_session(folder / "scratch", roots) as session:
        yield SampleRun(session, folder / "rows")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("file", "names"), PIPELINES, ids=["-".join((f.parent.name, *names)) for f, names in PIPELINES]
)
def test_an_example_gives_what_stands_beside_it(
    file: Path, names: list[str], run: SampleRun, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(
        __import__("sys").modules, "stages", raising=False
    )  # each example has a module of that name
    monkeypatch.syspath_prepend(str(file.parent))
    pipeline = load(file)
    cases = list(cases_in(pipeline, file.parent / "tests", names))
    try:
        # Java's workers know the folders of whichever test has started it: they get classes whole.
        stages = importlib.import_module("stages")
        cloudpickle.register_pickle_by_value(stages)
    except ModuleNotFoundError:
        stages = None  # the stages are SQL
    try:
        for case in cases:
            lines, good = judge(case, run_case(pipeline, case, run), update=False)
            assert good, "\n".join(lines)
    finally:
        if stages is not None:
            cloudpickle.unregister_pickle_by_value(stages)


@pytest.mark.integration
def test_shards_that_give_something_else_than_the_whole_stage_are_found(
    run: SampleRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "new"
    new_pipeline.write(folder, "sensors")
    monkeypatch.delitem(__import__("sys").modules, "stages", raising=False)
    monkeypatch.syspath_prepend(str(folder))
    file, whole = folder / "pipeline.yaml", (folder / "pipeline.yaml").read_text()

    def given(key: str) -> tuple[list[str], bool]:
        split = f"    transform: stages:hottest\n    shards: 2\n    shard_by: {key}\n"
        file.write_text(whole.replace("    transform: stages:hottest\n", split))
        pipeline = load(file)
        (case,) = cases_in(pipeline, folder / "tests", [])
        return judge(case, run_case(pipeline, case, run), update=False)

    lines, good = given("sensor")
    assert good, "\n".join(lines)
    with pytest.raises(StageFunctionError, match=r"stage hottest: its shards together give"):
        given("at")
