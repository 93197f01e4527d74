"""Certificates for tests, by the ``openssl`` program: an authority, and what it vouches for."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

_KEY = ("-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes")


@dataclass(frozen=True, slots=True)
class Certificate:
    """PEM files."""

    certificate: Path
    key: Path

    def together(self) -> Path:
        """Key and certificate in one file, as a broker's key store has them."""
        path = self.certificate.with_suffix(".both.pem")
        path.write_text(self.key.read_text() + self.certificate.read_text())
        return path


class Authority:
    """Vouches for names. Its own certificate is ``certificate``."""

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self.certificate, self._key = folder / "authority.pem", folder / "authority.key"
        _openssl(
            "req",
            "-x509",
            *_KEY,
            "-keyout",
            self._key,
            "-out",
            self.certificate,
            "-days",
            "2",
            "-subj",
            f"/CN={name}",
        )

    def issue(
        self, name: str, hosts: str = "IP:127.0.0.1,DNS:localhost", days: int = 2
    ) -> Certificate:
        """Issue a certificate of ``name`` for ``hosts``, which ends in ``days``; 0: it has
        ended.
        """
        key, request, made, more = (
            self._folder / f"{name}.{kind}" for kind in ("key", "csr", "pem", "ext")
        )
        more.write_text(f"subjectAltName={hosts}\nbasicConstraints=CA:FALSE\n")
        _openssl("req", "-new", *_KEY, "-keyout", key, "-out", request, "-subj", f"/CN={name}")
        _openssl(
            "x509",
            "-req",
            "-in",
            request,
            "-CA",
            self.certificate,
            "-CAkey",
            self._key,
            "-CAcreateserial",
            "-days",
            str(days),
            "-extfile",
            more,
            "-out",
            made,
        )
        return Certificate(made, key)


def _openssl(*words: str | Path) -> None:
    try:
        done = subprocess.run(
            ["openssl", *map(str, words)], capture_output=True, text=True, check=False, timeout=60
        )
    except FileNotFoundError:
        raise AssertionError(
            "no openssl program on the path: these tests need it for their certificates"
        ) from None
    assert done.returncode == 0, done.stderr
