"""The command line of Spark's driver, compared with the one that Spark's own launcher computes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pyspark
import pytest

from anabranch.adapters.spark import class_archive, java_launch
from anabranch.adapters.system.java import find_java

ARGUMENTS = [
    "--conf",
    "spark.driver.memory=2g",
    "--conf",
    "spark.master=local[2]",
    "--conf",
    'spark.driver.extraJavaOptions=-Xss4m "-Dfolder=a b"',
    "--conf",
    "spark.driver.extraClassPath=/jars/files.jar",
    "pyspark-shell",
]
LEFT_OUT = "--add-modules=jdk.incubator.vector"


def launcher_words(home: Path, environment: dict[str, str]) -> list[str]:
    """Return the command line that Spark's launcher prints, its words ended by NUL."""
    printed = subprocess.run(
        [
            f"{environment['JAVA_HOME']}/bin/java",
            "-cp",
            f"{home}/jars/*",
            "org.apache.spark.launcher.Main",
            java_launch._MAIN_CLASS,
            *ARGUMENTS,
        ],
        env=environment,
        capture_output=True,
        check=True,
        timeout=120,
    ).stdout.decode()
    return printed.strip("\n\0").split("\0")


@pytest.mark.parametrize("more", [{}, {"HADOOP_CONF_DIR": "/etc/hadoop", "SPARK_CONF_DIR": "/c"}])
def test_the_command_line_is_the_launchers_but_for_the_module(
    tmp_path: Path, more: dict[str, str]
) -> None:
    home = class_archive.link_home(tmp_path / "home")
    environment = {
        "SPARK_HOME": str(home),
        "JAVA_HOME": str(find_java().home),
        "SPARK_SCALA_VERSION": "2.13",
        **more,
    }
    # The launcher changes the order of the settings.
    ours = java_launch.command(ARGUMENTS, environment)
    theirs = launcher_words(home, environment)
    assert LEFT_OUT in theirs, "else Spark needs no starter of ours any more"
    main = ours.index(java_launch._MAIN_CLASS)
    assert ours[:main] == [word for word in theirs if word != LEFT_OUT][:main]
    assert sorted(ours[main:]) == sorted(theirs[theirs.index(java_launch._MAIN_CLASS) :])


def test_the_script_of_the_home_starts_java_with_these_words(tmp_path: Path) -> None:
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    program = java / "bin" / "java"
    program.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    program.chmod(0o755)
    home = class_archive.link_home(tmp_path / "home of spark")
    environment = {**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java)}
    printed = subprocess.run(
        [home / "bin" / "spark-submit", *ARGUMENTS],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    ).stdout
    assert printed.splitlines() == java_launch.command(ARGUMENTS, environment)[1:]


def test_the_installed_jars_are_those_of_the_home(tmp_path: Path) -> None:
    home = class_archive.link_home(tmp_path / "home")
    class_archive.link_home(home)
    assert (home / "jars").samefile(Path(pyspark.__file__).parent / "jars")
    assert [path.name for path in (home / "bin").iterdir()] == ["spark-submit"]
