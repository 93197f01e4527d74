"""A schema registry that others wrote: Apicurio, in memory, in a process of its own."""

from __future__ import annotations

import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Final

from jgo.maven import MavenContext

from anabranch.adapters.system.cache import cache_dir, locked
from anabranch.adapters.system.java import find_java
from anabranch.local.owned_server import OwnedServer
from anabranch.local.tcp_ports import LOOPBACK, free_port
from anabranch.protocol.errors import Unavailable

VERSION: Final = "2.6.13.Final"
_NAME: Final = f"apicurio-registry-app-{VERSION}"
_START_S: Final = 120
_STOP_S: Final = 20
_DOWNLOAD_S: Final = 300
"""136 MiB, once per machine."""


class ApicurioRegistry(OwnedServer):
    """One registry without contents. Ends with ``stop``."""

    def __init__(self, folder: Path) -> None:
        super().__init__("Apicurio registry", folder, "registry.log")

    @property
    def url(self) -> str:
        """Address at which it speaks Confluent's protocol."""
        return f"http://{self.address}/apis/ccompat/v6"

    def start(self) -> None:
        """Start it and wait until it answers.

        Raises:
            RuntimeError: its archive could not be had.
            Unavailable: it ended, or did not answer in time.
        """
        self._dir.mkdir(parents=True, exist_ok=True)
        self._port = free_port()
        command = [
            str(find_java().executable),
            "-Xmx384m",
            "-XX:TieredStopAtLevel=1",
            f"-Dquarkus.http.host={LOOPBACK}",
            f"-Dquarkus.http.port={self._port}",
            "-jar",
            str(_program() / f"{_NAME}-runner.jar"),
        ]
        if not self._run(command, self._answers, _START_S):
            raise self._ended()

    def stop(self, timeout_s: float = _STOP_S) -> None:
        """End it. Idempotent."""
        super().stop(timeout_s)

    def _answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.url}/subjects", timeout=1) as answer:
                return bool(answer.status == 200)
        except urllib.error.HTTPError as error:
            raise Unavailable(f"the registry answers {error.code}") from error
        except OSError:
            return False


def _program() -> Path:
    """Its folder, unpacked once per machine."""
    cache = cache_dir()
    folder = cache / _NAME
    with locked(cache / f"{_NAME}.lock"):
        if not folder.exists():
            context = MavenContext(
                repo_cache=cache / "maven", remote_repos=None, timeout=_DOWNLOAD_S
            )
            project = context.project("io.apicurio", "apicurio-registry-app")
            archive = project.at_version(VERSION).artifact(classifier="all", packaging="tar.gz")
            unfinished = folder.with_name(f"{_NAME}.unfinished")
            with tarfile.open(archive.resolve()) as packed:
                packed.extractall(unfinished, filter="data")
            unfinished.rename(folder)
    return folder
