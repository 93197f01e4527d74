"""What ``make install`` shows of what pip prints."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
from functools import partial
from pathlib import Path

from harness.waiting import wait_until

SCRIPT = Path(__file__).parents[2] / "deploy" / "pip_progress.sh"
PRINTED = """\
Ignoring colorama: markers 'sys_platform == "win32"' don't match your environment
Collecting pyspark==4.2.0 (from -r requirements-dev.txt (line 7))
  Downloading pyspark-4.2.0.tar.gz (434.2 MB)
Collecting rich==14.0.0 (from -r requirements-dev.txt (line 9))
  Using cached rich-14.0.0-py3-none-any.whl (243 kB)
Requirement already satisfied: pip==25.0 in ./x (from -r requirements-dev.txt (line 11)) (25.0)
Installing collected packages: rich, pyspark
Successfully installed pyspark-4.2.0 rich-14.0.0
"""


def test_elsewhere_than_on_a_terminal_the_large_packages_are_lines() -> None:
    done = subprocess.run(
        ["bash", str(SCRIPT), "4"],
        input=PRINTED,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert done.stdout == (
        "  Downloading pyspark-4.2.0.tar.gz (434.2 MB)\nInstalling collected packages\n"
    )
    assert done.stderr == ""


def on_a_terminal(*pieces: tuple[str, str]) -> list[str]:
    """What is seen one after the other. Each piece is printed when what stands beside the one
    before it, an expression, is seen.
    """
    seen, terminal = pty.openpty()
    shown = bytearray()

    def is_seen(expression: str) -> bool:
        if select.select([seen], [], [], 1)[0]:
            shown.extend(os.read(seen, 4_096))
        return re.search(expression, shown.decode()) is not None

    with subprocess.Popen(
        ["bash", str(SCRIPT), "4"], stdin=subprocess.PIPE, stdout=terminal, text=True
    ) as process:
        os.close(terminal)
        assert process.stdin is not None
        for text, awaited in pieces:
            process.stdin.write(text)
            process.stdin.flush()
            if awaited:
                wait_until(partial(is_seen, awaited), 60, awaited)
        process.stdin.close()
        with contextlib.suppress(OSError):  # as a terminal says that the other side has closed
            while piece := os.read(seen, 4_096):
                shown += piece
        assert process.wait(60) == 0
    os.close(seen)
    return shown.decode().split("\r\x1b[K")[1:]


def test_on_a_terminal_packages_are_counted_on_one_line() -> None:
    shown = [line for line in on_a_terminal((PRINTED, "")) if ": looking for" not in line]
    assert shown[0].startswith("[########                ] 1 of 3 packages, ")
    assert shown[0].endswith(" s: pyspark==4.2.0")
    assert shown[1].endswith(" s: Downloading pyspark-4.2.0.tar.gz (434.2 MB)")
    assert any(line.startswith("[################        ] 2 of 3 packages") for line in shown)
    assert shown[-2].startswith("[########################] 3 of 3 packages")
    assert shown[-2].endswith(": installing them")
    assert shown[-1] == "", "it is gone in the end"


def test_a_line_that_comes_in_pieces_is_one_and_the_clock_goes_on() -> None:
    later = r"0 of 4 packages, ([2-9]|\d\d+) s: looking"
    shown = on_a_terminal(("Collecting ri", later), ("ch==1\n", ""))
    assert shown[-2].endswith(" s: rich==1")
