"""Clients that only read, each in a process of its own, so that they are really parallel.

They read bytes and look at nothing but the status: what is measured is the server. Nothing of ours
is imported here, so that many of them start at once.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping
from dataclasses import dataclass

SECONDS = 60.0


@dataclass(frozen=True)
class Reading:
    """GETs of one path, one after another, on one connection, not before `begin`."""

    host: str
    port: int
    path: str
    headers: Mapping[str, str]
    calls: int
    begin: float


def read(wanted: Reading) -> list[float]:
    """The seconds of each call. Raises OSError for whatever is no 200."""
    named = {"Host": f"{wanted.host}:{wanted.port}", **wanted.headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in named.items())
    request = f"GET {wanted.path} HTTP/1.1\r\n{lines}\r\n".encode()
    found = []
    with socket.create_connection((wanted.host, wanted.port), SECONDS) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        time.sleep(max(0.0, wanted.begin - time.time()))
        for _ in range(wanted.calls):
            began = time.perf_counter()
            link.sendall(request)
            _answer(link)
            found.append(time.perf_counter() - began)
    return found


def _answer(link: socket.socket) -> None:
    data = bytearray()
    while (end := data.find(b"\r\n\r\n")) < 0:
        data += _received(link)
    head = data[:end].lower()
    if not head.startswith(b"http/1.1 200"):
        raise OSError(bytes(data[:200]))
    length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
    left = length - (len(data) - end - 4)
    while left > 0:
        left -= len(_received(link))


def _received(link: socket.socket) -> bytes:
    data = link.recv(1 << 18)
    if not data:
        raise OSError("the server closed the connection")
    return data
