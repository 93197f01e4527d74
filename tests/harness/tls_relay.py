"""TLS before a server that has none: not every Redis program is built with it."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from harness.certificates import Certificate


@contextmanager
def in_tls(server: str, certificate: Certificate) -> Iterator[str]:
    """An address that speaks TLS with ``certificate`` and passes on to ``server``."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    host, _, port = server.rpartition(":")
    stopping = threading.Event()

    def pass_on(source: socket.socket, target: socket.socket) -> None:
        try:
            while data := source.recv(65_536):
                target.sendall(data)
        except OSError:
            pass

    def serve(connection: socket.socket) -> None:
        try:
            with (
                context.wrap_socket(connection, server_side=True) as shaken,
                socket.create_connection((host, int(port))) as inner,
            ):
                back = threading.Thread(target=pass_on, args=(inner, shaken), daemon=True)
                back.start()
                pass_on(shaken, inner)
                inner.shutdown(socket.SHUT_RDWR)
                back.join(5)
        except OSError:
            pass

    def accept() -> None:
        while not stopping.is_set():
            try:
                connection, _ = listening.accept()
            except TimeoutError:
                continue
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stopping.set()
            thread.join(5)
