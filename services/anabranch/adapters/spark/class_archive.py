"""Archive of Spark's classes as Java has loaded and verified them: with it a stage starts in about
half of the processor time.

``anabranch classes`` creates it, once for each version of Java and Spark on a machine: it runs a
small query of the kinds that stages run and lets Java dump the loaded classes at its end
(``adapters.system.java_archive``). That takes half a minute to a minute, and 170 to 200 MB in the
cache. A stage without an archive starts more slowly; Java itself ignores an archive that does not
match. The archive changes no result.

Java compares the archive's class path with its own, so the folder that Spark runs from is in the
cache, too, at a fixed path.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from anabranch.adapters.spark import bare_files, java_launch
from anabranch.adapters.system.cache import cache_dir, locked
from anabranch.adapters.system.java import Java, find_java
from anabranch.adapters.system.java_archive import options_to_use, suffix
from anabranch.adapters.system.progress import Progress, step_of, unwatched, with_lines
from anabranch.protocol.errors import ConfigurationError

_TIMEOUT_S: Final = 900
"""Timeout of the query that loads the classes, in seconds. It and the archive take up to a
minute of one core: enough for a machine that gives a fifteenth of one.
"""
_TEXT_MAX: Final = 2_000
"""Maximum length of the query's error output in a message, in characters."""
_JAVA_LINK: Final = "java"
"""Name of the link to the Java that an archive was created with."""
_TRAINING: Final = "anabranch.adapters.spark.class_training"
"""Module whose ``train`` runs in a process of its own: it imports Spark's session, which imports
this module.
"""


def _installed() -> Path:
    """Return PySpark's folder without importing PySpark: ``up`` calls this and does not need
    PySpark. The path is resolved, so that an environment that is reached through a link counts as
    the same one.

    Raises:
        ModuleNotFoundError: PySpark is not installed.
    """
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("pyspark is not installed", name="pyspark")
    return Path(spec.origin).resolve().parent


_PYSPARK: Final = _installed()


@dataclass(frozen=True, slots=True)
class ArchiveLocation:
    """Location of an archive, whether it exists or not."""

    folder: Path
    name: str
    """File name of the archive; its suffix tells of which kind it is."""

    @property
    def home(self) -> Path:
        """Folder that Spark runs from (``link_home``)."""
        return self.folder / "home"

    @property
    def archive(self) -> Path:
        """Archive file."""
        return self.folder / self.name


def place() -> ArchiveLocation:
    """Return the location of the archive for the currently installed Java and Spark. Each
    installation has its own.

    Modification times count in whole seconds, as Java compares them: an image may lose the
    fractions when it is moved.
    """
    jars = sorted(
        (entry.name, entry.stat().st_size, int(entry.stat().st_mtime))
        for entry in os.scandir(_PYSPARK / "jars")
    )
    java = _java()
    facts = (
        _java_facts(java),
        str(_PYSPARK),
        jars,
        str(bare_files.jar()),  # it is on the class path when it is there
        Path(java_launch.__file__).read_bytes(),  # it computes the class path
    )
    return ArchiveLocation(
        cache_dir() / f"spark-{hashlib.blake2b(repr(facts).encode(), digest_size=8).hexdigest()}",
        "classes" if java is None else f"classes{suffix(java)}",
    )


def _java() -> Java | None:
    """Return the Java that runs Spark; None where there is none."""
    try:
        return find_java()
    except ConfigurationError:
        return None


def _java_facts(java: Java | None) -> tuple[str, int, int]:
    """Return (folder, size, time) of a Java; the folder is empty where there is none."""
    if java is None:
        return "", 0, 0
    modules = java.home / "lib" / "modules"
    return (
        (str(java.home), modules.stat().st_size, int(modules.stat().st_mtime))
        if modules.exists()
        else (str(java.home), 0, 0)
    )


def home_and_options(scratch: Path) -> tuple[Path, str]:
    """Return the folder for Spark to run from and the options of Java: those of the archive if
    there is one, else a folder in ``scratch`` and no options.
    """
    where = place()
    if not where.archive.exists():
        return link_home(scratch / "spark-home"), ""
    return where.home, shlex.join(options_to_use(find_java(), where.archive)) + " "


def link_home(home: Path) -> Path:
    """Make ``home`` a Spark home with the installed jars and a ``spark-submit`` of our own
    (``java_launch``), and return it.

    It lacks PySpark's archive of its own modules: workers would import PySpark from it, ahead of
    the installed package, and compile every module anew at each start: 0.68 instead of 0.20 CPU
    seconds for each of the half dozen processes of a stage.
    """
    (home / "bin").mkdir(parents=True, exist_ok=True)
    jars = home / "jars"
    jars.unlink(missing_ok=True)
    jars.symlink_to(_PYSPARK / "jars")
    submit = home / "bin" / "spark-submit"
    words = [sys.executable, "-c", f"from {java_launch.__name__} import main; main()"]
    with tempfile.NamedTemporaryFile("w", dir=home / "bin", delete=False) as script:
        script.write(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
    Path(script.name).chmod(0o755)
    # Renamed, so that a process which starts meanwhile finds the old script or the new one, whole.
    Path(script.name).replace(submit)
    return home


def make(progress: Progress = unwatched) -> bool:
    """Create the archive for this machine, unless it exists. Return whether it was created.
    ``progress`` is called with each step.

    Raises:
        ConfigurationError: there is no Java, the query failed, or Java wrote no archive. Stages
            start without one.
    """
    java = find_java()
    where = place()
    with locked(cache_dir() / "spark-classes.lock"):
        if where.archive.exists():
            return False
        link_home(where.home)
        (where.folder / _JAVA_LINK).unlink(missing_ok=True)
        (where.folder / _JAVA_LINK).symlink_to(java.home)
        # Left by a killed process: the holder of the lock is the only one that creates these.
        for left in where.folder.glob("unfinished-*"):
            shutil.rmtree(left, ignore_errors=True)
        with tempfile.TemporaryDirectory(dir=where.folder, prefix="unfinished-") as folder:
            unfinished = Path(folder) / where.name
            program = f"import sys; from {_TRAINING} import train; sys.exit(train(*sys.argv[1:]))"
            command = [sys.executable, "-c", program, str(where.home), str(unfinished), folder]
            code, errors = run_counted(command, Path(folder) / "errors", progress)
            if code or not unfinished.exists():
                message = (
                    "no archive of Spark's classes was made; stages start without one, slower:"
                    f" {errors[-_TEXT_MAX:]}"
                )
                raise ConfigurationError(message)
            unfinished.replace(where.archive)
        _remove_useless(where)
    return True


def run_counted(
    command: Sequence[str], errors: Path, progress: Progress, *, timeout_s: float = _TIMEOUT_S
) -> tuple[int, str]:
    """Run ``command``. Return its exit code and its standard error, which goes to the file
    ``errors`` meanwhile. ``progress`` is called with the steps that it prints.

    Raises:
        ConfigurationError: the command did not end in time, and was killed.
    """
    late = threading.Event()
    with (
        errors.open("wb") as unread,
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=unread,
            env=with_lines(os.environ),
            text=True,
            errors="replace",
        ) as process,
    ):

        def end() -> None:
            """Kill the process and note that it was late."""
            late.set()
            process.kill()

        timer = threading.Timer(timeout_s, end)
        timer.start()
        try:
            for line in process.stdout or ():
                if (step := step_of(line)) is not None:
                    progress(*step)
            code = process.wait()
        finally:
            timer.cancel()
            process.kill()  # does nothing if it has ended
    if late.is_set():
        message = f"the query that loads Spark's classes did not end within {timeout_s:g} s"
        raise ConfigurationError(message)
    return code, errors.read_text(encoding="utf-8", errors="replace")


def _remove_useless(newest: ArchiveLocation) -> None:
    """Remove archives of Sparks and Javas that no longer exist, or that were replaced by those of
    ``newest``. Running stages keep what they have opened.
    """
    ours = _made_for(newest.folder)
    for folder in cache_dir().glob("spark-*"):
        theirs = _made_for(folder)
        if (
            folder != newest.folder
            and theirs
            and (theirs == ours or not all(path.exists() for path in theirs))
        ):
            shutil.rmtree(folder, ignore_errors=True)


def _made_for(folder: Path) -> list[Path]:
    """Return the Spark and the Java that an archive was created with; they may be gone."""
    return [
        link.readlink()
        for link in (folder / "home" / "jars", folder / _JAVA_LINK)
        if link.is_symlink()
    ]
