"""Health check of a container: exits with 0 if the service's ``/readyz`` answers 200.

It imports next to nothing and is run with ``python -I -S``: a health check that runs every few
seconds in every container must cost milliseconds, while a JVM or the service's own libraries would
cost seconds.
"""

import os
import socket
import sys

TIMEOUT_S = 3.0

try:
    with socket.create_connection(
        ("127.0.0.1", int(os.environ["ANABRANCH_METRICS_PORT"])), TIMEOUT_S
    ) as connection:
        connection.settimeout(TIMEOUT_S)
        connection.sendall(b"GET /readyz HTTP/1.0\r\n\r\n")
        answer = connection.recv(64)
except OSError as error:
    sys.exit(f"not ready: {error}")
if answer.split(b" ")[1:2] != [b"200"]:
    sys.exit(f"not ready: {answer!r}")
