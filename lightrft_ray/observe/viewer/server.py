"""Serves the page and the runs' files to those browsers of this machine that have its token."""

import errno
import hmac
import json
import re
import secrets
import sys
from collections.abc import Callable, Mapping, Sequence
from http import HTTPStatus
from http.cookies import CookieError, SimpleCookie
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socket import socket
from urllib.parse import parse_qs, unquote, urlsplit

from pydantic import BaseModel, TypeAdapter

from lightrft_ray.config.errors import UserError
from lightrft_ray.observe.viewer.page import content_policy, render_page
from lightrft_ray.observe.viewer.run_files import IMAGE_TYPES, RunFiles
from lightrft_ray.observe.viewer.timeline_rows import StepSpans

ADDRESS = "127.0.0.1"
_SPANS = TypeAdapter(list[StepSpans])
_MOST_TIMELINE_STEPS = 50
_LAST_PORT = 65535
_JSON = "application/json"
_TOKEN = "token"  # of the address
_TOKEN_BYTES = 24


class ViewerServer(ThreadingHTTPServer):
    """Listens on this machine alone; `serve_forever()` answers until `shutdown()`.

    Others may be logged in on this machine: it answers to who knows the token in `url`, which a
    browser keeps as a cookie, so that it leaves the address. Each server has a token of its own.
    """

    daemon_threads = True

    def __init__(self, runs: Sequence[RunFiles], port: int) -> None:
        """Take `port`, or any free one for 0.

        Raises UserError where the port is taken or may not be used.
        """
        if not 0 <= port <= _LAST_PORT:
            raise UserError(f"--port {port} is no port: choose one up to {_LAST_PORT}, or 0")
        self.runs = runs
        self.token = secrets.token_urlsafe(_TOKEN_BYTES)
        self.page = render_page(None, ", ".join(run.name for run in runs)).encode()
        try:
            super().__init__((ADDRESS, port), _Handler)
        except OSError as error:
            reason = (
                "is taken, maybe by another viewer"
                if error.errno == errno.EADDRINUSE
                else (f"cannot be used ({error.strerror})")
            )
            raise UserError(
                f"port {port} {reason}: choose another --port, or 0 for any free one"
            ) from error

    @property
    def url(self) -> str:
        """Where a browser on this machine finds the page; it holds the token."""
        return f"http://{ADDRESS}:{self.server_port}/?{_TOKEN}={self.token}"

    @property
    def cookie(self) -> str:
        """The name of the cookie with the token: browsers part cookies by host, not by port."""
        return f"lightrft_viewer_{self.server_port}"

    def handle_error(
        self, request: socket | tuple[bytes, socket], client_address: tuple[str, int]
    ) -> None:
        """Say what went wrong, but for browsers that are gone before they have their answer."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)


class _Handler(BaseHTTPRequestHandler):
    server: ViewerServer
    protocol_version = "HTTP/1.1"
    timeout = 60

    def do_GET(self) -> None:
        # Another site's page may let its own name point to this machine: then that is the Host.
        if self.headers.get("Host", "") not in self._own_names():
            self._refuse(HTTPStatus.FORBIDDEN, "this server answers to localhost alone")
            return
        url = urlsplit(self.path)
        query = parse_qs(url.query)
        given = query.get(_TOKEN, [""])[0]
        if not (self._is_token(given) or self._is_token(self._kept_token())):
            self._refuse(
                HTTPStatus.FORBIDDEN, "open the address that launch/view.py printed, with its token"
            )
        elif url.path != "/":
            self._route(url.path, query)
        elif given:
            self._have_token_kept()
        else:
            self._send(self.server.page, "text/html; charset=utf-8")

    def log_message(self, format: str, *arguments: object) -> None:
        """Requests are not worth a line on the terminal."""

    def _own_names(self) -> set[str]:
        port = self.server.server_port
        return {f"{name}:{port}" for name in (ADDRESS, "localhost")}

    def _is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.server.token.encode())

    def _kept_token(self) -> str:
        """What the browser's cookie says; empty where it has none, or what is none."""
        try:
            kept = SimpleCookie(self.headers.get("Cookie", "")).get(self.server.cookie)
        except CookieError:
            return ""
        return "" if kept is None else kept.value

    def _have_token_kept(self) -> None:
        """Send the browser to the page's address without the token, which it keeps."""
        cookie = f"{self.server.cookie}={self.server.token}; Path=/; HttpOnly; SameSite=Lax"
        to_page = {"Location": "/", "Set-Cookie": cookie}
        self._send(b"", "text/plain; charset=utf-8", HTTPStatus.SEE_OTHER, to_page)

    def _route(self, path: str, query: dict[str, list[str]]) -> None:
        for pattern, answer in _ROUTES.items():
            found = re.fullmatch(pattern, path)
            if found is not None:
                self._answer(answer, found, query)
                return
        self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def _answer(self, answer: "_Answer", found: re.Match[str], query: dict[str, list[str]]) -> None:
        try:
            content = answer(self.server.runs, found, query)
        except (IndexError, ValueError):
            content = None
        if content is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such thing in these runs")
        else:
            self._send(*content)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._send(f"{why}\n".encode(), "text/plain; charset=utf-8", status)

    def _send(
        self,
        content: bytes,
        kind: str,
        status: HTTPStatus = HTTPStatus.OK,
        more: Mapping[str, str] | None = None,
    ) -> None:
        self.send_response(status)
        for name, value in {
            "Content-Type": kind,
            "Content-Length": str(len(content)),
            "Content-Security-Policy": content_policy(served=True) + "; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "X-Content-Type-Options": "nosniff",
            "Referrer-Policy": "no-referrer",
            "Cache-Control": "no-store",
            **(more or {}),
        }.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(content)


_Query = dict[str, list[str]]
_Answer = Callable[[Sequence[RunFiles], re.Match[str], _Query], tuple[bytes, str] | None]


def _runs(runs: Sequence[RunFiles], _: re.Match[str], __: _Query) -> tuple[bytes, str]:
    return json.dumps([run.about() for run in runs]).encode(), _JSON


def _metrics(runs: Sequence[RunFiles], found: re.Match[str], _: _Query) -> tuple[bytes, str]:
    return json.dumps(runs[int(found[1])].metrics(), allow_nan=False).encode(), _JSON


def _samples(runs: Sequence[RunFiles], found: re.Match[str], query: _Query) -> tuple[bytes, str]:
    samples = runs[int(found[1])].samples(_number(query, "from"), single="single" in query)
    return _json(samples), _JSON


def _timeline(runs: Sequence[RunFiles], found: re.Match[str], query: _Query) -> tuple[bytes, str]:
    count = min(_number(query, "count"), _MOST_TIMELINE_STEPS)
    return _SPANS.dump_json(runs[int(found[1])].timeline(_number(query, "from"), count)), _JSON


def _image(runs: Sequence[RunFiles], found: re.Match[str], _: _Query) -> tuple[bytes, str] | None:
    path = runs[int(found[1])].image(unquote(found[2]))
    return None if path is None else (path.read_bytes(), IMAGE_TYPES[path.suffix.lower()])


_ROUTES: dict[str, _Answer] = {
    r"/api/runs": _runs,
    r"/api/runs/(\d+)/metrics": _metrics,
    r"/api/runs/(\d+)/samples": _samples,
    r"/api/runs/(\d+)/timeline": _timeline,
    r"/files/(\d+)/(.+)": _image,
}


def _number(query: _Query, name: str) -> int:
    return int(query.get(name, ["0"])[0])


def _json(model: BaseModel) -> bytes:
    return model.model_dump_json().encode()
