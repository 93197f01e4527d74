"""``adapters.spark.session``: what can be said about it without Spark."""

from __future__ import annotations

import shlex
import subprocess

import pytest

from anabranch.adapters.spark import session
from anabranch.adapters.spark.settings import Compilers
from anabranch.local.java import find_java


@pytest.mark.parametrize(("compilers", "said"), [("quick", ""), ("rows", "2 compiler directives added")])
def test_java_accepts_the_choice_of_compilers(compilers: Compilers, said: str) -> None:
    """A mistake in the list of methods would not stop Java: it would go on without the list."""
    java = find_java()
    options = shlex.split(session._COMPILERS[compilers])
    found = subprocess.run([str(java.executable), *options, "-version"], capture_output=True, text=True, check=True, timeout=60)
    assert said in found.stdout + found.stderr
    assert "error" not in (found.stdout + found.stderr).lower()
