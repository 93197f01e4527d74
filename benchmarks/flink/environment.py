"""Makes what Flink needs: a virtual environment and the connector's jar.

PyFlink's own requirements are for functions in Python (Beam, pandas), which a job in SQL has none
of: ``requirements.txt`` lists what is imported.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.environments import jar, virtual_environment

FLINK_VERSION: Final = "2.2.1"
CONNECTOR: Final = ("org.apache.flink", "flink-sql-connector-kafka", "5.0.0-2.2")
"""The newest of Flink's Kafka connectors, which is for Flink 2.2."""


@dataclass(frozen=True, slots=True)
class Flink:
    """Paths of the interpreter and of the connector."""

    python: Path
    connector: Path


def flink() -> Flink:
    """Return the environment, which the first call on a machine installs.

    Raises:
        ConfigurationError: something could not be installed; the text has what was said.
    """
    requirements = Path(__file__).with_name("requirements.txt")
    return Flink(virtual_environment("bench-flink-venv", requirements), jar(*CONNECTOR))
