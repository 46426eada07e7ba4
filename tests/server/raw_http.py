"""A client of bytes over a socket: it shows what really went over the wire, and can misbehave."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Self

KEY = "test-key_0123456789.~sentinel"


@dataclass(frozen=True)
class Response:
    """A response as it was received; `complete` tells whether its framing said where it ends."""

    status: int
    headers: tuple[tuple[str, str], ...]
    body: bytes
    complete: bool = True

    def header(self, name: str) -> str | None:
        """The value of a header that occurs at most once."""
        values = [value for key, value in self.headers if key == name]
        assert len(values) <= 1, f"{name} occurs {len(values)} times"
        return values[0] if values else None

    def json(self) -> Any:
        """The body as JSON."""
        return json.loads(self.body)

    def error(self) -> dict[str, Any]:
        """The error object of the body, after checking that its shape is the agreed one."""
        document = self.json()
        assert list(document) == ["error"]
        error = document["error"]
        assert list(error) == ["message", "type", "param", "code"]
        assert isinstance(error["message"], str)
        assert isinstance(error["type"], str)
        assert error["code"] is None or isinstance(error["code"], str)
        assert isinstance(error, dict)
        return error


class Connection:
    """One TCP connection."""

    def __init__(self, port: int, timeout: float = 20.0, receive_buffer: int | None = None) -> None:
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        if receive_buffer is not None:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        self.socket.settimeout(timeout)
        self.socket.connect(("127.0.0.1", port))
        self.port = port
        self._buffer = b""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self.socket.close()

    def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.socket.sendall(data)

    def request(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        *,
        key: str | None = KEY,
        host: str | None = None,
        headers: tuple[tuple[str, str], ...] = (),
    ) -> None:
        """Send a well-formed request."""
        self.send(format_request(self.port, method, path, body, key=key, host=host, headers=headers))

    def post(self, path: str, value: object, *, key: str | None = KEY) -> None:
        """Send a JSON request."""
        self.request("POST", path, json.dumps(value).encode(), key=key)

    def read_head(self) -> Response:
        """Read the status line and headers; the body stays unread."""
        head = self._until(b"\r\n\r\n").decode("latin-1").split("\r\n")
        headers = tuple(
            (name.lower(), value.strip()) for name, _, value in (line.partition(":") for line in head[1:])
        )
        return Response(int(head[0].split(" ")[1]), headers, b"")

    def read_response(self, method: str = "GET") -> Response:
        """Read one whole response."""
        head = self.read_head()
        while head.status == 100:
            head = self.read_head()
        body, complete = b"", True
        if head.header("transfer-encoding") == "chunked":
            body, complete = self._chunks()
        elif method != "HEAD" and head.status not in (204, 304):
            body = self._exactly(int(head.header("content-length") or 0))
        return Response(head.status, head.headers, body, complete)

    def chunks(self) -> Iterator[bytes]:
        """The chunks of a chunked body, one by one as they come; ends at the final chunk."""
        while size := int(self._until(b"\r\n"), 16):
            yield self._exactly(size)
            self._exactly(2)
        self._exactly(2)

    def read_to_end(self) -> bytes:
        """Everything until the server closes."""
        while data := self._receive():
            self._buffer += data
        rest, self._buffer = self._buffer, b""
        return rest

    def is_closed(self, within: float = 5.0) -> bool:
        """Whether the server closes the connection, without sending more, within some seconds."""
        self.socket.settimeout(within)
        try:
            return not self._receive()
        except TimeoutError:
            return False

    def _chunks(self) -> tuple[bytes, bool]:
        body = b""
        try:
            for chunk in self.chunks():
                body += chunk
        except ConnectionError:
            return body, False
        return body, True

    def _receive(self) -> bytes:
        try:
            return self.socket.recv(65536)
        except ConnectionResetError:
            return b""

    def _until(self, end: bytes) -> bytes:
        while end not in self._buffer:
            self._more()
        head, _, self._buffer = self._buffer.partition(end)
        return head

    def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            self._more()
        data, self._buffer = self._buffer[:size], self._buffer[size:]
        return data

    def _more(self) -> None:
        data = self._receive()
        if not data:
            raise ConnectionError("the server closed the connection")
        self._buffer += data


def format_request(
    port: int,
    method: str,
    path: str,
    body: bytes | None = None,
    *,
    key: str | None = KEY,
    host: str | None = None,
    headers: tuple[tuple[str, str], ...] = (),
) -> bytes:
    """The bytes of a well-formed request."""
    lines = [f"{method} {path} HTTP/1.1", f"Host: {host or f'127.0.0.1:{port}'}"]
    if key is not None:
        lines.append(f"Authorization: Bearer {key}")
    names = {name.lower() for name, _ in headers}
    if body is not None and "content-type" not in names:
        lines.append("Content-Type: application/json")
    if body is not None and not names & {"content-length", "transfer-encoding"}:
        lines.append(f"Content-Length: {len(body)}")
    lines += [f"{name}: {value}" for name, value in headers]
    return "\r\n".join([*lines, "", ""]).encode("latin-1") + (body or b"")


def call(port: int, method: str, path: str, body: bytes | None = None, **options: Any) -> Response:
    """One request on a connection of its own."""
    with Connection(port) as connection:
        connection.request(method, path, body, **options)
        return connection.read_response(method)


def post(port: int, path: str, value: object, **options: Any) -> Response:
    """One JSON request on a connection of its own."""
    return call(port, "POST", path, json.dumps(value).encode(), **options)


@dataclass(frozen=True)
class Events:
    """A server-sent event stream taken apart."""

    comments: tuple[str, ...]
    data: tuple[str, ...]

    @property
    def objects(self) -> list[Any]:
        """The JSON objects; the end marker is left out."""
        return [json.loads(data) for data in self.data if data != "[DONE]"]


def parse_events(body: bytes) -> Events:
    """Split a stream's body, insisting on LF line ends and on one field a event."""
    assert b"\r" not in body
    comments, data = [], []
    for event in body.decode("utf-8").split("\n\n")[:-1]:
        assert "\n" not in event
        if event.startswith(": "):
            comments.append(event[2:])
        else:
            assert event.startswith("data: ")
            data.append(event[6:])
    return Events(tuple(comments), tuple(data))


def wait_until(condition: Any, seconds: float = 5.0) -> float:
    """Wait for `condition()`; return the seconds it took."""
    begin = time.monotonic()
    while not condition():
        assert time.monotonic() - begin < seconds, "the condition did not come true in time"
        time.sleep(0.005)
    return time.monotonic() - begin
