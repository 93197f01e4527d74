"""A relay before a broker that speaks TLS: it sees what clients ask, and ends a connection where a
test wants it.
"""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

from harness.certificates import Authority, Certificate

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
"""Keys of Kafka's requests."""


@contextmanager
def relayed(
    broker: str, authority: Authority, certificate: Certificate, ends: Callable[[int], bool]
) -> Iterator[str]:
    """An address at which ``broker`` answers, with ``certificate``. ``ends``: whether a connection
    ends instead of passing on a request with this key.
    """
    inside = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    inside.load_cert_chain(certificate.certificate, certificate.key)
    outside = ssl.create_default_context(cafile=str(authority.certificate))
    host, _, port = broker.rpartition(":")
    stopping = threading.Event()

    def pass_back(source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65_536):
                target.sendall(data)

    def pass_requests(source: socket.socket, target: socket.socket) -> None:
        with source.makefile("rb") as requests:
            while size := requests.read(4):
                request = requests.read(int.from_bytes(size, "big"))
                if ends(int.from_bytes(request[:2], "big")):
                    return
                target.sendall(size + request)

    def serve(connection: socket.socket) -> None:
        with (
            suppress(OSError),
            inside.wrap_socket(connection, server_side=True) as client,
            socket.create_connection((host, int(port))) as plain,
            outside.wrap_socket(plain, server_hostname=host) as server,
        ):
            back = threading.Thread(target=pass_back, args=(server, client), daemon=True)
            back.start()
            pass_requests(client, server)
            client.shutdown(socket.SHUT_RDWR)
            server.shutdown(socket.SHUT_RDWR)
            back.join(5)

    def accept() -> None:
        while not stopping.is_set():
            with suppress(TimeoutError):
                connection, _ = listening.accept()
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
