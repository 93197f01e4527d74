"""Download of jars from Maven Central."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from anabranch.adapters.system.progress import Progress, unwatched
from anabranch.protocol.errors import ConfigurationError

_TIMEOUT_S: Final = 60
"""Timeout of a request, in s."""


def fetched(
    groups: Sequence[Sequence[str]], cache: Path, progress: Progress = unwatched
) -> dict[tuple[str, str], Path]:
    """Download the jars of ``groups`` (``organisation:artefact:version``) and their dependencies;
    return their paths by organisation and artefact.

    Groups are resolved one after the other; where two need the same artefact, the first group's
    version counts. ``progress`` receives the number of downloaded jars, once all are known.

    Raises:
        ConfigurationError: a jar could not be downloaded; the text states the reason.
    """
    # Imported here: resolving is rare, and jgo takes a third of a second to import.
    from jgo.config import GlobalSettings
    from jgo.maven import MavenContext
    from jgo.parse import Coordinate

    # A user behind a mirror names it in jgo's own settings file ([repositories]); jgo searches it
    # in addition to Maven Central.
    named = dict(GlobalSettings.load().repositories)
    context = MavenContext(repo_cache=cache / "maven", remote_repos=None, timeout=_TIMEOUT_S)
    context.remote_repos.update(named)
    wanted: dict[tuple[str, str], Any] = {}
    jars: dict[tuple[str, str], Path] = {}
    try:
        for group in groups:
            roots = [
                context.create_dependency(replace(Coordinate.parse(text), scope="compile"))
                for text in group
            ]
            direct, transitive = context.resolver.resolve(roots)
            for dependency in [
                *direct,
                *(d for d in transitive if d.scope in ("compile", "runtime")),
            ]:
                wanted.setdefault((dependency.groupId, dependency.artifactId), dependency)
        for key, dependency in wanted.items():
            progress("jars", len(jars), len(wanted))
            jars[key] = Path(dependency.artifact.resolve())
        progress("jars", len(jars), len(wanted))
    except (OSError, RuntimeError, ValueError) as error:  # requests' errors are OSErrors
        message = (
            f"could not be downloaded ({error}); check the network, or name a mirror of Maven"
            " Central under [repositories] in ~/.config/jgo.conf"
        )
        raise ConfigurationError(message) from error
    return jars
