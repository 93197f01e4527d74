"""``python -m anabranch.operating.trial FILE FOLDER [--offers OWN] [--update] [CASE...]``: test the
stages' functions on sample rows, on real Spark, without a broker.

A case is a folder in FOLDER. In it, ``SOURCE.jsonl`` holds records of a source, and
``BINDING.jsonl`` rows of another pipeline's stream with their ``event_time`` in ms. An input
without a file is empty. ``STAGE.expected.jsonl`` holds the rows that a stage gives in the end, in
any order: with every column, and with ``event_time`` in ms if that shall be compared, too. All rows
come in one batch, and then time passes until every window has ended.

Exit code 0: all rows are as expected; 1: some differ, or a function raised; 2: a file is wrong.
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc

from anabranch.adapters.spark.query import (
    apply_functions,
    check_result,
    functions_of,
    input_columns,
)
from anabranch.adapters.spark.sample_run import SampleRun
from anabranch.adapters.spark.session import start_session
from anabranch.adapters.system.progress import printed
from anabranch.adapters.system.scratch import Scratch
from anabranch.codec.blocks import EVENT_TIME
from anabranch.codec.change_events import ChangeDecoder
from anabranch.codec.change_schema import SOURCE_TIME
from anabranch.codec.edge import Decoder
from anabranch.codec.event_times import column_at, times_of, unusable
from anabranch.codec.json_records import JsonEncoder
from anabranch.codec.shard_rows import shard_mask
from anabranch.pipeline.file import load
from anabranch.pipeline.transforms import import_roots
from anabranch.process.logging_setup import short
from anabranch.protocol.errors import ConfigurationError, StageFunctionError
from anabranch.protocol.limits import EVENT_TIME_MS_MAX

if TYPE_CHECKING:
    from anabranch.pipeline.model import Pipeline, Source, Stage

_EXPECTED: Final = ".expected.jsonl"
_ROWS: Final = ".jsonl"
_TIME: Final = pa.timestamp("ms", "UTC")
# Time between two rows of a source whose records have no event time of their own.
_ARRIVAL_MS: Final = 1_000


@dataclass(frozen=True, slots=True)
class Case:
    """Test case: the files of one folder."""

    name: str
    inputs: Mapping[str, Path]
    """Files of records, by source or binding."""
    expected: Mapping[str, Path]
    """Files of expected rows, by stage."""


def cases_in(pipeline: Pipeline, folder: Path, names: list[str]) -> list[Case]:
    """Return the cases in ``folder`` that ``names`` lists; no names: all.

    Raises:
        ConfigurationError: there is no case, a file is named after no source or stage, or a case
            has no expected rows.
    """
    how = (
        "put records into tests/CASE/SOURCE.jsonl, and the rows that a stage makes of them into"
        " tests/CASE/STAGE.expected.jsonl (or make that file empty, and fill it with --update)"
    )
    folders = [folder / name for name in names] or sorted(
        path for path in (folder.iterdir() if folder.is_dir() else ()) if path.is_dir()
    )
    if not folders:
        raise ConfigurationError(f"there are no cases in {folder}: {how}")
    found = []
    for path in folders:
        if not path.is_dir():
            raise ConfigurationError(f"there is no folder {path}; {how}")
        inputs: dict[str, Path] = {}
        expected: dict[str, Path] = {}
        for file in sorted(path.glob(f"*{_ROWS}")):
            is_expected = file.name.endswith(_EXPECTED)
            name = file.name.removesuffix(_EXPECTED if is_expected else _ROWS)
            known = (
                list(pipeline.unsplit().stages)
                if is_expected
                else [*pipeline.sources, *pipeline.bindings]
            )
            if name not in known:
                raise ConfigurationError(
                    f"{file}: the pipeline has no {'stage' if is_expected else 'source'} {name}; it"
                    f" has {', '.join(known)}"
                )
            (expected if is_expected else inputs)[name] = file
        if not expected:
            raise ConfigurationError(f"{path} has no file of expected rows; {how}")
        found.append(Case(path.name, inputs, expected))
    return found


def source_rows(pipeline: Pipeline, source: str, path: Path | None) -> pa.Table:
    """Return the records of a source's file as a stage reads them, with ``event_time``.

    ``path`` is a file of JSON lines; None: there are no records.

    Raises:
        ConfigurationError: a line, which the text names, is no record.
    """
    known = pipeline.sources[source]
    table = _with_places(known, _samples(known, path))
    rule = known.event_time
    if rule.field is None:
        times = pa.array([number * _ARRIVAL_MS for number in range(table.num_rows)], _TIME)
    else:
        column = column_at(table, rule.field)
        timed = times_of(column, rule.unit, rule.zone)
        if timed.bad is not None:
            row = int(timed.bad.argmax())
            why = unusable(
                column[row].as_py(),
                f"field {rule.field}",
                has_zone=bool(rule.zone),
                unit=rule.number_unit,
            )
            raise ConfigurationError(f"{path}: record {row + 1}: {why}")
        times = pa.array(timed.event_time_ms, _TIME)
        if SOURCE_TIME in table.column_names:
            table = table.drop_columns(SOURCE_TIME)
    return table.append_column(EVENT_TIME, times)


def _samples(source: Source, path: Path | None) -> pa.Table:
    """Return the rows of a source's file, before they have an event time. A line has the fields of
    a value, and those of further columns that it does not leave out.
    """
    added = tuple(
        replace(column.field, nullable=True, has_default=True, default=None)
        for column in source.columns
    )
    name, lines = source.record.name, _lines(path)
    if source.cdc is None:
        record = replace(source.record, fields=(*source.record.fields, *added))
        return _decoded(path, Decoder(record, "json", source.extra_fields), lines, name)
    table = _decoded(path, ChangeDecoder(source.record, "json"), lines, name)
    if added:
        decoder = Decoder(replace(source.record, fields=added), "json")
        further = _decoded(path, decoder, lines, name)
        for field, column in zip(further.schema, further.columns, strict=True):
            table = table.append_column(field, column)
    return table


def _with_places(source: Source, table: pa.Table) -> pa.Table:
    """Return ``table`` with the place of each line where it names none: its number is its offset in
    partition 0 of the first topic.
    """
    count = table.num_rows
    stated = {
        "topic": pa.array([source.topics[0]] * count, pa.string()),
        "partition": pa.array([0] * count, pa.int32()),
        "offset": pa.array(range(count), pa.int64()),
    }
    for column in source.columns:
        if column.part in stated:
            name, index = column.field.name, table.column_names.index(column.field.name)
            filled = pc.coalesce(table.column(name), stated[column.part])
            table = table.set_column(index, column.field.arrow, filled)
    return table


def bound_rows(pipeline: Pipeline, binding: str, path: Path | None) -> pa.Table:
    """Return the rows of the file of another pipeline's stream as a stage reads them.

    Each line must state its ``event_time`` in ms. ``path`` None: there are no rows.

    Raises:
        ConfigurationError: a line, which the text names, is no row.
    """
    times, lines = [], []
    for number, line in _lines(path):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        time_ms = row.pop(EVENT_TIME, None) if isinstance(row, dict) else None
        if not isinstance(time_ms, int) or not 0 <= time_ms <= EVENT_TIME_MS_MAX:
            raise ConfigurationError(f"{path}:{number}: not a row with its {EVENT_TIME} in ms")
        times.append(time_ms)
        lines.append((number, json.dumps(row).encode()))
    record = pipeline.bindings[binding].record
    table = _decoded(path, Decoder(record, "json", "reject"), lines, record.name)
    return table.append_column(EVENT_TIME, pa.array(times, _TIME))


def _lines(path: Path | None) -> list[tuple[int, bytes]]:
    """Return (number, line) for the lines of a file that are not empty."""
    numbered = enumerate([] if path is None else _bytes(path).split(b"\n"), 1)
    return [(number, line.strip()) for number, line in numbered if line.strip()]


def _decoded(
    path: Path | None,
    decoder: Decoder | ChangeDecoder,
    lines: list[tuple[int, bytes]],
    name: str,
) -> pa.Table:
    """Decode numbered lines of ``path``; fail at the first that is no record ``name``."""
    decoded = decoder.decode([line for _, line in lines])
    if decoded.rejected:
        place, error = decoded.rejected[0]
        raise ConfigurationError(f"{path}:{lines[place][0]}: not a record {name}: {error}")
    return decoded.table


def run_case(pipeline: Pipeline, case: Case, run: SampleRun) -> dict[str, list[str]]:
    """Run a case, and return the rows of each stage that has expected ones.

    The rows are JSON, sorted as texts. Each stage runs whole, and a stage with shards also as its
    shards, whose rows must be the same.

    Raises:
        ConfigurationError: a line of a file is wrong.
        StageFunctionError: a function or its query raised, or the shards of a stage together give
            other rows than the whole stage.
    """
    split, pipeline = pipeline, pipeline.unsplit()
    # The stages with expected rows, and all stages upstream of them.
    needed, unvisited = set(case.expected), list(case.expected)
    while unvisited:
        streams = set(pipeline.stages[unvisited.pop()].reads) & pipeline.stages.keys() - needed
        needed |= streams
        unvisited += streams
    tables: dict[str, pa.Table] = {}
    for name in (each for each in pipeline.order() if each in needed):
        stage = pipeline.stages[name]
        for stream in stage.reads:
            if stream not in tables:  # a source or binding: stages upstream have run before
                rows = bound_rows if stream in pipeline.bindings else source_rows
                tables[stream] = rows(pipeline, stream, case.inputs.get(stream))
        tables[name] = _rows_of(stage, pipeline, tables, run)
        # The smallest that there may be: where these work key by key, so do larger ones.
        shards = [
            split.stages[shard] for shard in split.input_streams(name) if not split.halves(shard)
        ]
        if len(shards) > 1:
            together = [_rows_of(shard, pipeline, tables, run) for shard in shards]
            _check_shards(name, tables[name], together)
    return {name: sorted(_as_json(tables[name])) for name in case.expected}


def _rows_of(
    stage: Stage, pipeline: Pipeline, tables: Mapping[str, pa.Table], run: SampleRun
) -> pa.Table:
    """Run ``stage`` on its inputs' rows, of which a shard takes its share, and return its rows."""
    schemas = input_columns(stage, {each: tables[each].schema for each in stage.reads})
    inputs = {}
    for name, argument in zip(stage.reads, stage.arguments, strict=True):
        rows = tables[name].select(schemas[name].names)
        if stage.share is not None and (key := stage.share.by[name]):
            rows = rows.filter(pa.array(shard_mask(rows.select(key), stage.share.interval)))
        inputs[argument] = run.frame(rows, EVENT_TIME)
    frame = apply_functions(functions_of(stage, pipeline), stage, inputs)
    check_result(frame, stage)
    try:
        return run.rows(frame)
    except Exception as error:  # whatever the user's code raises in Spark
        raise StageFunctionError(
            f"stage {stage.name}, function {', '.join(stage.functions)}: {short(str(error))}"
        ) from error


def _check_shards(name: str, whole: pa.Table, shards: Iterable[pa.Table]) -> None:
    """Fail unless the shards of stage ``name`` together give the rows of the whole stage."""
    expected, together = Counter(_as_json(whole)), Counter[str]()
    for rows in shards:
        together.update(_as_json(rows))
    if expected != together:
        lost, more = (
            next((expected - together).elements(), ""),
            next((together - expected).elements(), ""),
        )
        raise StageFunctionError(
            f"stage {name}: its shards together give {together.total()} rows, the whole stage"
            f" {expected.total()}, and they differ"
            + (f"; only the whole gives {lost}" if lost else "")
            + (f"; only the shards give {more}" if more else "")
            + ". What the function makes of a key must depend on the rows of this key alone;"
            " name the key's columns in `shard_by`"
        )


def differences(expected: list[str], given: list[str]) -> list[str]:
    """Return lines ``- row`` (missing) and ``+ row`` (not expected); empty: all as expected.

    The lines are sorted by their rows, so that similar rows are neighbours. ``event_time`` is
    compared only if an expected row has it.
    """
    with_time = any(EVENT_TIME in json.loads(row) for row in expected)
    wanted, actual = (
        Counter(_plain(row, with_time) for row in expected),
        Counter(_plain(row, with_time) for row in given),
    )
    lines = [(row, f"- {row}") for row in (wanted - actual).elements()] + [
        (row, f"+ {row}") for row in (actual - wanted).elements()
    ]
    return [line for _, line in sorted(lines)]


def _plain(row: str, with_time: bool) -> str:
    """Return a row as JSON that is equal for equal rows."""
    columns = json.loads(row)
    if not with_time:
        columns.pop(EVENT_TIME, None)
    return json.dumps(columns, sort_keys=True, ensure_ascii=False)


def _as_json(table: pa.Table) -> list[str]:
    """Return rows as delivery writes them, with the event time in ms as in a record's header."""
    time_ms = table[EVENT_TIME].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
    table = table.set_column(table.schema.get_field_index(EVENT_TIME), EVENT_TIME, time_ms)
    return [row.decode() for row in JsonEncoder(table.schema).encode(table)]


def _bytes(path: Path) -> bytes:
    """Read a file; fail with its path."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{path}: cannot be read: {error.strerror}") from error


def _expected_rows(path: Path) -> list[str]:
    """Read the rows of a file of expected rows; fail at the first line that is no row."""
    rows = []
    for number, line in enumerate(_bytes(path).decode("utf-8", errors="replace").splitlines(), 1):
        if not line.strip():
            continue
        try:
            good = isinstance(json.loads(line), dict)
        except ValueError:
            good = False
        if not good:
            raise ConfigurationError(f"{path}:{number}: not a JSON object")
        rows.append(line)
    return rows


def judge(case: Case, given: Mapping[str, list[str]], *, update: bool) -> tuple[list[str], bool]:
    """Compare a case's rows with the expected ones; return (lines for people, whether all agree).

    ``update`` writes the given rows into the files of expected rows instead.
    """
    stated, good = [], True
    for stage, path in case.expected.items():
        if update:
            path.write_text("".join(f"{row}\n" for row in given[stage]), encoding="utf-8")
            stated.append(f"{case.name}: {stage}: wrote {len(given[stage])} rows to {path}")
            continue
        wrong = differences(_expected_rows(path), given[stage])
        good = good and not wrong
        missing = sum(line.startswith("-") for line in wrong)
        what = (
            f"{missing} rows are missing (-), {len(wrong) - missing} are not expected (+)"
            if wrong
            else "as expected"
        )
        stated += [
            f"{case.name}: {stage}: {len(given[stage])} rows, {what}",
            *(f"  {line}" for line in wrong),
        ]
    return stated, good


def main(arguments: list[str]) -> int:
    """Run the command, and return its exit code."""
    update = "--update" in arguments
    words = [word for word in arguments if word != "--update"]
    own = None
    if "--offers" in words[:-1]:
        at = words.index("--offers")
        own = Path(words[at + 1])
        del words[at : at + 2]
    if len(words) < 2 or any(word.startswith("-") for word in words):
        sys.stdout.write((__doc__ or "") + "\n")
        return 0 if words in (["--help"], ["-h"]) else 2
    all_good, progress = True, printed()
    try:
        pipeline = load(Path(words[0]), own)
        cases = cases_in(pipeline, Path(words[1]), words[2:])
        with tempfile.TemporaryDirectory(prefix="anabranch-test-") as folder:
            session = start_session(
                "test",
                master="local[1]",
                memory="512m",
                state_partitions=1,
                import_roots=import_roots(
                    (s for s in pipeline.stages.values() if own is None or s.offered is not None),
                    pipeline.path,
                ),
                scratch=Scratch(Path(folder) / "scratch"),
            )
            try:
                for number, case in enumerate(cases):
                    progress("cases", number, len(cases))
                    stated, good = judge(
                        case,
                        run_case(pipeline, case, SampleRun(session, Path(folder) / case.name)),
                        update=update,
                    )
                    all_good = all_good and good
                    sys.stdout.write("".join(f"{line}\n" for line in stated))
                    sys.stdout.flush()
            finally:
                session.stop()
    except (ConfigurationError, StageFunctionError) as error:
        sys.stderr.write(f"{error}\n")
        return 2 if isinstance(error, ConfigurationError) else 1
    return 0 if all_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
