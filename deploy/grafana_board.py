"""Generator of a pipeline's Grafana board, deploy/grafana.json: a panel for each metric of
docs/metrics.md, which a test compares with the metrics of the code.

``python -m deploy.grafana_board`` writes the file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).parents[1]
CATALOG: Final = ROOT / "docs/metrics.md"
BOARD: Final = ROOT / "deploy/grafana.json"

_WIDTH: Final = 24
_PANEL: Final = (8, 7)
_DATASOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}
_TITLE_MAX: Final = 70


@dataclass(frozen=True)
class Metric:
    """Row of the catalog."""

    name: str
    labels: tuple[str, ...]
    text: str

    @property
    def is_histogram(self) -> bool:
        """Whether the catalog calls it a histogram, which its text begins with."""
        return self.text.startswith("histogram")

    @property
    def by(self) -> str:
        """Legend of a series: the labels that distinguish series within a pipeline."""
        return " ".join(f"{{{{{label}}}}}" for label in self.labels if label != "pipeline")

    @property
    def unit(self) -> str:
        """Unit, by Grafana's name."""
        if self.name.endswith("_bytes_total"):
            return "Bps"
        if self.name == "anabranch_last_bucket_seconds":
            return "dateTimeAsIso"
        return "s" if self.name.endswith("_seconds") else "short"

    def queries(self) -> list[tuple[str, str]]:
        """Return (expression, legend) of each line of the panel."""
        if self.is_histogram:
            kept = ", ".join((*(label for label in self.labels if label != "pipeline"), "le"))
            bars = f'rate({self.name}_bucket{{pipeline=~"$pipeline"}}[$__rate_interval])'
            return [
                (f"histogram_quantile({share}, sum by ({kept}) ({bars}))", f"{self.by} {words}")
                for share, words in ((0.5, "half"), (0.99, "99 %"))
            ]
        series = f'{self.name}{{pipeline=~"$pipeline"}}'
        if self.name.endswith("_total"):
            return [(f"rate({series}[$__rate_interval])", self.by or "{{pipeline}}")]
        return [
            (
                f"{series} * 1000" if self.unit == "dateTimeAsIso" else series,
                self.by or "{{pipeline}}",
            )
        ]


def catalog(text: str) -> Iterator[tuple[str, list[Metric]]]:
    """Yield (heading, metrics below it) from the text of docs/metrics.md."""
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        found = [
            Metric(name, tuple(re.findall(r"`(\w+)`", labels)), _plain(words))
            for name, labels, words in re.findall(
                r"^\| `(anabranch_\w+)` \| (.*?) \| (.*) \|$", section, re.MULTILINE
            )
        ]
        if found:
            yield section.partition("\n")[0], found


def _plain(words: str) -> str:
    """Return the text without links and back quotes."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", words).replace("`", "")


def board(text: str) -> dict[str, Any]:
    """Return the board for the text of docs/metrics.md."""
    panels: list[dict[str, Any]] = []
    below = 0
    for heading, metrics in catalog(text):
        place = {"x": 0, "y": below, "w": _WIDTH, "h": 1}
        panels.append({"type": "row", "title": heading, "gridPos": place, "panels": []})
        below += 1
        width, height = _PANEL
        for number, metric in enumerate(metrics):
            line, column = divmod(number, _WIDTH // width)
            place = {"x": column * width, "y": below + line * height, "w": width, "h": height}
            panels.append(_panel(metric, place))
        below += -(-len(metrics) // (_WIDTH // width)) * height
    for number, panel in enumerate(panels, 1):
        panel["id"] = number
    return {
        "title": "anabranch",
        "uid": "anabranch",
        "description": "Written by deploy/grafana_board.py from docs/metrics.md.",
        "schemaVersion": 39,
        "tags": ["anabranch"],
        "timezone": "utc",
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_datasource_variable(), _pipeline_variable()]},
        "panels": panels,
    }


def _panel(metric: Metric, place: dict[str, int]) -> dict[str, Any]:
    title = metric.name.removeprefix("anabranch_").removesuffix("_total").replace("_", " ")
    return {
        "type": "timeseries",
        "title": title[:_TITLE_MAX],
        "description": f"{metric.name}: {metric.text}",
        "datasource": _DATASOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": metric.unit}, "overrides": []},
        "options": {"legend": {"displayMode": "list"}, "tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "expr": expression,
                "legendFormat": legend,
                "datasource": _DATASOURCE,
            }
            for number, (expression, legend) in enumerate(metric.queries())
        ],
    }


def _datasource_variable() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
    }


def _pipeline_variable() -> dict[str, Any]:
    return {
        "name": "pipeline",
        "type": "query",
        "label": "pipeline",
        "datasource": _DATASOURCE,
        "query": "label_values(anabranch_restarts, pipeline)",
        "includeAll": True,
        "multi": True,
        "refresh": 2,
    }


def written() -> str:
    """Return the content of deploy/grafana.json."""
    return json.dumps(board(CATALOG.read_text(encoding="utf-8")), indent=1) + "\n"


if __name__ == "__main__":
    BOARD.write_text(written(), encoding="utf-8")
    print(f"wrote {BOARD.relative_to(ROOT)}")
