"""A hub of one process: the few endpoints that a download needs, over real HTTP."""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

COMMIT = "c0ffee" + "0" * 34


@dataclass
class Hub:
    """What the hub has and what it was asked.

    Attributes:
        model: The one repository.
        files: Its files at COMMIT.
        gated: Files are refused without an accepted licence.
        status: When set, every answer has this status.
        log: Method, path and Authorization header of each request.
    """

    model: str
    files: dict[str, bytes]
    gated: bool = False
    status: int | None = None
    log: list[tuple[str, str, str | None]] = field(default_factory=list)
    endpoint: str = ""

    def fetched(self) -> set[str]:
        """Names of the files whose content was sent."""
        return {
            path.rsplit(f"/resolve/{COMMIT}/", 1)[1]
            for verb, path, _ in self.log
            if verb == "GET" and "/resolve/" in path
        }

    def answer(self, path: str) -> tuple[int, dict[str, str], bytes]:
        if self.status is not None:
            return self.status, {}, b"{}"
        api = f"/api/models/{self.model}"
        if path in (api, f"{api}/revision/main", f"{api}/revision/{COMMIT}"):
            return 200, {}, self._info()
        if path == f"{api}/tree/{COMMIT}":
            return 200, {}, self._tree()
        if path.startswith(f"{api}/revision/"):
            return 404, {"X-Error-Code": "RevisionNotFound"}, b"{}"
        resolve = f"/{self.model}/resolve/{COMMIT}/"
        if path.startswith(resolve) and path.removeprefix(resolve) in self.files:
            return self._file(path.removeprefix(resolve))
        return 401, {"X-Error-Code": "RepoNotFound"}, b"{}"

    def _info(self) -> bytes:
        siblings = [{"rfilename": name} for name in self.files]
        return json.dumps({"id": self.model, "sha": COMMIT, "siblings": siblings}).encode()

    def _tree(self) -> bytes:
        rows = [
            {"type": "file", "path": name, "size": len(data), "oid": _etag(data)} for name, data in self.files.items()
        ]
        return json.dumps(rows).encode()

    def _file(self, name: str) -> tuple[int, dict[str, str], bytes]:
        if self.gated:
            return 403, {"X-Error-Code": "GatedRepo"}, b"{}"
        data = self.files[name]
        return 200, {"ETag": f'"{_etag(data)}"', "X-Repo-Commit": COMMIT}, data


def _etag(data: bytes) -> str:
    return hashlib.sha1(data, usedforsecurity=False).hexdigest()


@contextmanager
def serve_hub(hub: Hub) -> Iterator[Hub]:
    """Serve `hub` on a free port; `hub.endpoint` says where."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = unquote(urlsplit(self.path).path)
            hub.log.append((self.command, path, self.headers.get("Authorization")))
            status, headers, body = hub.answer(path)
            self.send_response(status)
            for name, value in (headers | {"Content-Length": str(len(body))}).items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815  # named by http.server

        def log_message(self, format: str, *args: Any) -> None:
            """Keep quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def read_files(directory: Path) -> dict[str, bytes]:
    """Every file of a directory by name."""
    return {path.name: path.read_bytes() for path in directory.iterdir()}
