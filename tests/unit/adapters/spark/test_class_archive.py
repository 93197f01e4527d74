"""``adapters.spark.class_archive``: what can be said about it without Spark."""

from __future__ import annotations

import importlib.util
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.adapters.spark import bare_files, class_archive
from anabranch.adapters.system.cache import cache_dir
from anabranch.adapters.system.java import find_java
from anabranch.adapters.system.progress import ProgressCall, unwatched
from anabranch.protocol.errors import ConfigurationError
from harness.missing_java import hide_java


@pytest.fixture(autouse=True)
def _empty_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("ANABRANCH_CACHE", str(tmp_path / "cache"))


def test_without_an_archive_spark_runs_from_its_scratch_folder(tmp_path: Path) -> None:
    home, options = class_archive.home_and_options(tmp_path / "scratch")
    assert home == tmp_path / "scratch" / "spark-home"
    assert options == ""
    assert (home / "jars").is_dir()
    assert not (home / "python").exists()


def test_with_an_archive_spark_runs_from_the_folder_that_java_will_compare(tmp_path: Path) -> None:
    where = class_archive.place()
    class_archive.link_home(where.home)
    where.archive.touch()
    home, options = class_archive.home_and_options(tmp_path / "scratch")
    assert home == where.home
    assert (home / "jars").is_dir()
    assert str(where.archive) in shlex.split(options)[0]


def test_an_environment_that_is_reached_by_a_link_has_the_same_archive(tmp_path: Path) -> None:
    """Else every stage that is started through the link starts slowly, and nothing says why."""
    environment = Path(sys.prefix)
    (tmp_path / "link").symlink_to(environment, target_is_directory=True)
    program = (
        "from anabranch.adapters.spark import class_archive; print(class_archive.place().archive)"
    )
    places = {
        subprocess.run(
            [str(folder / "bin" / "python"), "-c", program],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for folder in (environment, tmp_path / "link")
    }
    assert places == {f"{class_archive.place().archive}\n"}


def test_an_archive_that_java_cannot_use_stops_nothing(tmp_path: Path) -> None:
    where = class_archive.place()
    where.folder.mkdir()
    where.archive.write_bytes(b"not an archive")
    _, options = class_archive.home_and_options(tmp_path / "scratch")
    subprocess.run(
        [str(find_java().executable), *shlex.split(options), "-version"],
        capture_output=True,
        check=True,
        timeout=60,
    )


def test_another_java_or_another_spark_has_another_archive(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    before = class_archive.place()
    assert class_archive.place() == before
    java = tmp_path / "java"
    (java / "bin").mkdir(parents=True)
    program = java / "bin" / "java"
    program.write_text("#!/bin/sh\necho 'openjdk version \"17.0.1\"' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(java))
    other = class_archive.place()
    (java / "lib").mkdir()
    (java / "lib" / "modules").touch()
    newer = class_archive.place()
    spark = tmp_path / "pyspark"
    (spark / "jars").mkdir(parents=True)
    (spark / "jars" / "spark.jar").touch()
    monkeypatch.setattr(class_archive, "_PYSPARK", spark)
    of_spark = class_archive.place()
    monkeypatch.setattr(bare_files, "jar", lambda: tmp_path / "files.jar")
    assert len({before, other, newer, of_spark, class_archive.place()}) == 5


def archive_of(name: str, spark: Path, java: Path) -> class_archive.ArchiveLocation:
    where = class_archive.ArchiveLocation(cache_dir() / f"spark-{name}", "classes.jsa")
    where.home.mkdir(parents=True)
    (where.home / "jars").symlink_to(spark)
    (where.folder / "java").symlink_to(java)
    where.archive.touch()
    return where


def test_archives_that_nothing_can_use_any_more_are_removed(tmp_path: Path) -> None:
    spark, other_spark, java, other_java = (
        tmp_path / name for name in ("spark", "other-spark", "java", "other-java")
    )
    for folder in (spark, other_spark, java, other_java):
        folder.mkdir()
    newest = archive_of("newest", spark, java)
    kept = [
        newest,
        archive_of("of-another-java", spark, other_java),
        archive_of("of-another-environment", other_spark, java),
    ]
    archive_of("installed-anew-since", spark, java)
    archive_of("spark-gone", tmp_path / "gone", java)
    archive_of("java-gone", other_spark, tmp_path / "gone")
    (cache_dir() / "spark-classes.lock").touch()
    class_archive._remove_useless(newest)
    assert sorted(cache_dir().glob("spark-*/classes.jsa")) == sorted(
        where.archive for where in kept
    )
    assert (cache_dir() / "spark-classes.lock").exists()


def test_where_there_is_no_java_there_is_a_place_all_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_java(monkeypatch)
    assert class_archive.place() == class_archive.place()


def test_without_java_none_is_made(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    hide_java(monkeypatch)
    with pytest.raises(ConfigurationError, match="no java on PATH"):
        class_archive.make()
    assert not class_archive.place().folder.exists()


def test_the_steps_of_what_makes_it_are_counted_and_its_errors_kept(tmp_path: Path) -> None:
    program = (
        "import sys; from anabranch.adapters.system.progress import printed; print('of Java');"
        " printed()('steps', 3, 12); sys.stderr.write('no room'); sys.exit(4)"
    )
    steps: list[ProgressCall] = []
    assert class_archive.run_counted(
        [sys.executable, "-c", program],
        tmp_path / "errors",
        lambda *step: steps.append(ProgressCall(*step)),
    ) == (4, "no room")
    assert steps == [ProgressCall("steps", 3, 12)]


def test_what_does_not_end_is_ended(tmp_path: Path) -> None:
    sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(ConfigurationError, match=r"did not end within 0\.1 s"):
        class_archive.run_counted(sleeping, tmp_path / "errors", unwatched, timeout_s=0.1)


def test_without_spark_the_error_names_the_module(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line then says what to install."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    with pytest.raises(ModuleNotFoundError) as raised:
        runpy.run_path(str(class_archive.__file__))
    assert raised.value.name == "pyspark"
