"""deploy/grafana.json has a panel for each metric that there is, and queries nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

from deploy.grafana_board import BOARD, CATALOG, catalog, written

PANELS: list[dict[str, Any]] = json.loads(BOARD.read_text())["panels"]


def queried() -> set[str]:
    return {
        name
        for panel in PANELS
        for target in panel.get("targets", ())
        for name in re.findall(r"\b(anabranch_\w+)\{", target["expr"])
    }


def test_the_board_is_what_the_catalog_makes_of_it() -> None:
    assert BOARD.read_text() == written(), "write it anew: make grafana"


def test_every_metric_of_the_catalog_is_queried_and_no_other() -> None:
    """tests/unit/test_documents.py holds the catalog to the metrics of the code."""
    metrics = [metric for _, found in catalog(CATALOG.read_text()) for metric in found]
    assert len(metrics) > 40
    assert queried() == {
        f"{metric.name}_bucket" if metric.is_histogram else metric.name for metric in metrics
    }


def test_counters_are_shown_as_rates_and_histograms_as_quantiles() -> None:
    for panel in PANELS:
        for target in panel.get("targets", ()):
            expression = target["expr"]
            assert ("rate(" in expression) == bool(
                re.search(r"_(total|seconds_bucket)\{", expression)
            )
            assert expression.count("(") == expression.count(")")
            assert 'pipeline=~"$pipeline"' in expression


def test_no_panel_lies_on_another() -> None:
    taken: set[tuple[int, int]] = set()
    for panel in PANELS:
        place = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    assert max(x for x, _ in taken) < 24
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
