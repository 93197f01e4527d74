"""Makes what plain PySpark needs: a virtual environment, the connector's jars, the stub jar.

Spark's Kafka connector names a jar, spark-token-provider-kafka, that need not be to be had. Without
delegation tokens the connector calls three classes of it only; ``stubs/`` has stand-ins for them,
compiled here against Spark's own jars. That takes a JDK (``javac``).
"""

from __future__ import annotations

import hashlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.adapters.system.cache import cache_dir
from anabranch.protocol.errors import ConfigurationError
from benchmarks.environments import jar, run, virtual_environment

PYSPARK_VERSION: Final = "4.2.0"
JARS: Final = (
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", PYSPARK_VERSION),
    ("org.apache.kafka", "kafka-clients", "3.9.2"),  # the version that Spark 4.2.0 was built with
    ("org.apache.commons", "commons-pool2", "2.13.1"),
)

_HERE: Final = Path(__file__).parent
_COMPILE_TIMEOUT_S: Final = 120


@dataclass(frozen=True, slots=True)
class PlainPySpark:
    """Paths of the interpreter and of the jars."""

    python: Path
    jars: tuple[Path, ...]


def plain_pyspark() -> PlainPySpark:
    """Return the environment, which the first call on a machine installs.

    Raises:
        ConfigurationError: there is no JDK, or something could not be installed; the text has what
            was said.
    """
    python = virtual_environment("bench-venv", _HERE / "requirements.txt")
    jars = [jar(*coordinates) for coordinates in JARS]
    stub = _stub_jar(cache_dir(), python, jars)
    return PlainPySpark(python, (*jars, stub))


def _stub_jar(cache: Path, python: Path, jars: list[Path]) -> Path:
    """Return a jar of the compiled stand-ins, which is rebuilt when their source changes."""
    sources = sorted((_HERE / "stubs").rglob("*.java"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    stub = cache / f"token-provider-stub-{digest}.jar"
    if stub.exists():
        return stub
    javac = shutil.which("javac")
    if javac is None:
        message = (
            "no javac on PATH: plain PySpark's part of the benchmark needs a JDK (Debian, Ubuntu:"
            " apt install openjdk-17-jdk-headless)"
        )
        raise ConfigurationError(message)
    classes = cache / f"token-provider-stub-{digest}"
    shutil.rmtree(classes, ignore_errors=True)
    spark_jars = next((python.parent.parent / "lib").glob("python3*/site-packages/pyspark/jars"))
    classpath = ":".join([f"{spark_jars}/*", *map(str, jars)])
    run(
        [javac, "-nowarn", "-cp", classpath, "-d", str(classes), *map(str, sources)],
        _COMPILE_TIMEOUT_S,
    )
    unfinished = stub.with_suffix(".zip")
    shutil.make_archive(str(unfinished.with_suffix("")), "zip", classes)
    shutil.rmtree(classes)
    unfinished.replace(stub)
    return stub
