"""Runs that failed once, with what was wrong: ``regressions.yaml`` holds their options and faults
themselves, so that they stay what they are when seeds draw differently.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple

from ruamel.yaml import YAML

from simulation.faults import Fault
from simulation.options import Options, OutputOptions, StageOptions


class Regression(NamedTuple):
    """One run."""

    was: str
    options: Options
    faults: list[Fault]


_FILE: Final = Path(__file__).with_name("regressions.yaml")


def _options(values: dict[str, Any]) -> dict[str, Any]:
    """Return ``values`` with tuples and options in place of lists and mappings."""
    return {key: _option(value) for key, value in values.items()}


def _option(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return OutputOptions(**_options(value)) if isinstance(value, dict) else value


def _regressions() -> tuple[Regression, ...]:
    """Return the runs of the file. All of them state every option, by way of the file's usual
    ones: a default that changes must not change a run.
    """
    read = YAML(typ="safe").load(_FILE)
    usual = read["usual"]
    return tuple(
        Regression(
            run["was"],
            Options(
                **_options({**usual["options"], **run["options"]}),
                stages=tuple(
                    StageOptions(**_options({**usual["stage"], **stage}))
                    for stage in run.get("stages", ())
                ),
            ),
            [Fault(*fault) for fault in run["faults"]],
        )
        for run in read["runs"]
    )


REGRESSIONS: Final = _regressions()
