"""Drawings of pipelines."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from anabranch.pipeline import drawing
from anabranch.pipeline.model import Pipeline
from harness.pipeline_files import loaded

_SVG = "{http://www.w3.org/2000/svg}"


def pipeline_in(folder: Path) -> Pipeline:
    """Return a pipeline with two sources that one stage joins, a stage after it, and an output of
    each stage.
    """
    source = "record: car.avsc, event_time: {field: n}"
    return loaded(
        folder,
        f"pipeline: p\nsources:\n  a: {{topics: [a], {source}}}\n  b: {{topics: [b1, b2],"
        f" {source}}}\nstages:\n  count: {{reads: joined, transform: stages:count}}\n  joined:"
        " {reads: [a, b], transform: stages:join, replicas: 2}\noutputs:\n  both: {stage:"
        " joined, corrected: {topic: 'both'}, live: {topic: both.live}}\n  counts: {stage:"
        " count, corrected: {topic: counts}}\n",
        "def join(a, b):\n    return a\ndef count(joined):\n    return joined\n",
    )


def test_text_shows_what_is_made_from_what_and_nothing_twice(tmp_path: Path) -> None:
    assert list(drawing.text(pipeline_in(tmp_path))) == [
        "pipeline p",
        "source a  topic a (json)",
        "└─ stage joined  stages:join on local.0, local.1",
        "   ├─ stage count  stages:count on local.0",
        "   │  └─ output counts  topic counts",
        "   └─ output both  topic both, live both.live",
        "source b  topic b1, b2 (json)",
        "└─ stage joined  (see above)",
    ]


def test_the_picture_has_a_box_for_each_and_a_line_for_each_that_is_read(tmp_path: Path) -> None:
    root = ET.fromstring(drawing.svg(pipeline_in(tmp_path)))
    titles = [title.text for title in root.iterfind(f".//{_SVG}g/{_SVG}title")]
    assert sorted(str(title).partition(":")[0] for title in titles) == [
        "output both",
        "output counts",
        "source a",
        "source b",
        "stage count",
        "stage joined",
    ]
    assert len(root.findall(f"{_SVG}path")) == 5
    boxes = [
        (int(rect.attrib["x"]), int(rect.attrib["y"])) for rect in root.iterfind(f".//{_SVG}rect")
    ]
    assert len(set(boxes)) == 6, "no box lies on another"
    assert all(
        x + 200 < int(root.attrib["width"]) and y + 50 < int(root.attrib["height"])
        for x, y in boxes
    )


def test_names_cannot_break_the_picture(tmp_path: Path) -> None:
    box = drawing.Box("k", "stage", "<&>", "x" * 100, ())
    assert "&lt;&amp;&gt;" in drawing._box_svg(box, 0, 0)
    ET.fromstring(drawing._box_svg(box, 0, 0))
