"""The archive of Spark's classes: made by a query, and really used by the next Java."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

from anabranch.adapters.spark import bare_files, class_archive
from anabranch.adapters.system.java import find_java


def test_java_takes_sparks_classes_from_the_archive(tmp_path: Path) -> None:
    """Java says nothing where it does not like an archive, it goes on without: so look where
    the classes come from.
    """
    bare_files.fetch()
    class_archive.make()
    assert not class_archive.make()
    home, options = class_archive.home_and_options(tmp_path)
    assert home == class_archive.place().home
    # By the script of that home, which makes the class path that the archive was made for.
    java = {
        "JAVA_HOME": str(find_java().home),
        "JDK_JAVA_OPTIONS": f"{options} -Xlog:class+load:file={tmp_path}/classes.%p.log",
        "SPARK_HOME": str(home),
    }
    command = [
        str(home / "bin" / "spark-submit"),
        "--conf",
        f"spark.driver.extraClassPath={bare_files.jar()}",
        "--version",
    ]
    subprocess.run(
        command, capture_output=True, check=True, timeout=120, env={**os.environ, **java}
    )
    archived = [
        log.read_text().count("source: shared objects file (top)")
        for log in tmp_path.glob("classes.*.log")
    ]
    assert max(archived) > 1_000
