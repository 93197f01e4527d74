"""TLS before a server: one that has none (not every Redis program is built with it), and a broker
whose clients' requests a test wants to see, and whose connections it ends.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Final

from harness.certificates import Authority, Certificate

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
"""Keys of Kafka's requests."""


@contextmanager
def tls_server(certificate: Certificate, serve: Callable[[ssl.SSLSocket], object]) -> Iterator[str]:
    """Yield an address that speaks TLS with ``certificate``. ``serve`` gets each connection once
    its handshake is done, on a thread of its own, and closes it by returning or by an ``OSError``.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate.certificate, certificate.key)
    stopping = threading.Event()

    def shake(connection: socket.socket) -> None:
        with suppress(OSError), context.wrap_socket(connection, server_side=True) as shaken:
            serve(shaken)

    def accept() -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = listening.accept()
                threading.Thread(target=shake, args=(connection,), daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(0.1)
        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            stopping.set()
            thread.join(5)


def in_tls(server: str, certificate: Certificate) -> AbstractContextManager[str]:
    """Return an address that speaks TLS with ``certificate`` and relays to ``server``."""

    def serve(client: ssl.SSLSocket) -> None:
        with _connected(server) as inner:
            _between(client, inner, lambda: _pass_on(client, inner))

    return tls_server(certificate, serve)


def broker_in_tls(
    broker: str, authority: Authority, certificate: Certificate, ends: Callable[[int], bool]
) -> AbstractContextManager[str]:
    """Return an address at which ``broker``, which speaks TLS itself, answers with ``certificate``.
    ``ends``: whether to close a connection instead of relaying a request with this key.
    """
    outside = ssl.create_default_context(cafile=str(authority.certificate))

    def pass_requests(client: ssl.SSLSocket, inner: socket.socket) -> None:
        with client.makefile("rb") as requests:
            while size := requests.read(4):
                request = requests.read(int.from_bytes(size, "big"))
                if ends(int.from_bytes(request[:2], "big")):
                    return
                inner.sendall(size + request)

    def serve(client: ssl.SSLSocket) -> None:
        with (
            _connected(broker) as plain,
            outside.wrap_socket(plain, server_hostname="localhost") as inner,
        ):
            _between(client, inner, lambda: pass_requests(client, inner))

    return tls_server(certificate, serve)


def _connected(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)))


def _between(client: socket.socket, inner: socket.socket, there: Callable[[], None]) -> None:
    """``there`` passes on what the client sends, until it ends; what comes back is passed on
    meanwhile.
    """
    back = threading.Thread(target=_pass_on, args=(inner, client), daemon=True)
    back.start()
    there()
    for end in (inner, client):
        end.shutdown(socket.SHUT_RDWR)
    back.join(5)


def _pass_on(source: socket.socket, target: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(65_536):
            target.sendall(data)
