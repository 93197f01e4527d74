"""Starter of Spark's driver process in Java: what PySpark runs as ``bin/spark-submit``.

Spark's own script starts a first Java to compute the command line of the second one, and asks for
the module ``jdk.incubator.vector``, which small Java runtimes lack and only MLlib uses. This
starter computes the same command line (tests/unit/adapters/spark/test_java_launch.py compares it
with that of Spark's launcher) without the first Java and without that module.

It runs as a process of its own in each start of a node, so it imports nothing but the standard
library.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Final

_MAIN_CLASS: Final = "org.apache.spark.deploy.SparkSubmit"
_CONF: Final = "--conf"
_OPENED: Final = (
    "java.base/java.lang",
    "java.base/java.lang.invoke",
    "java.base/java.lang.reflect",
    "java.base/java.io",
    "java.base/java.net",
    "java.base/java.nio",
    "java.base/java.util",
    "java.base/java.util.concurrent",
    "java.base/java.util.concurrent.atomic",
    "java.base/jdk.internal.ref",
    "java.base/sun.nio.ch",
    "java.base/sun.nio.cs",
    "java.base/sun.security.action",
    "java.base/sun.util.calendar",
    "java.security.jgss/sun.security.krb5",
)
"""Packages of Java that Spark reaches into by reflection."""
_ALWAYS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
    "-Dderby.connection.requireAuthentication=false",
)
"""Options that Spark 4.3 gives to each of its Javas."""
_FOLDERS_OF_SETTINGS: Final = ("HADOOP_CONF_DIR", "YARN_CONF_DIR")


def command(arguments: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the command line that starts Spark's driver.

    Args:
        arguments: Arguments that PySpark passes to ``spark-submit``: settings as ``--conf
            key=value``, then ``pyspark-shell``.
        environment: Environment variables; ``JAVA_HOME`` and ``SPARK_HOME`` must be set.
    """
    home = environment["SPARK_HOME"]
    settings = dict(
        value.partition("=")[::2] for name, value in pairwise(arguments) if name == _CONF
    )
    folders = [environment.get("SPARK_CONF_DIR") or f"{home}/conf"]
    folders += [environment[name] for name in _FOLDERS_OF_SETTINGS if environment.get(name)]
    classpath = [
        settings.get("spark.driver.extraClassPath", ""),
        folders[0],
        # The logging interface comes first: a jar of a user may bring an older one.
        *sorted(str(path) for path in Path(home, "jars").glob("slf4j-api-*.jar")),
        f"{home}/jars/*",
        *folders[1:],
    ]
    return [
        f"{environment['JAVA_HOME']}/bin/java",
        "-cp",
        os.pathsep.join(entry for entry in classpath if entry),
        f"-Xmx{settings.get('spark.driver.memory', '1g')}",
        *shlex.split(settings.get("spark.driver.extraJavaOptions", "")),
        *_ALWAYS,
        _MAIN_CLASS,
        *arguments,
    ]


def main() -> None:
    """Replace this process by Spark's driver, so that its parent's pipe and signals reach it."""
    words = command(sys.argv[1:], os.environ)
    os.execv(words[0], words)  # noqa: S606 - a list of words needs no shell
