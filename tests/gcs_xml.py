"""Uploads by GCS's XML API, for a server that knows its JSON API alone: ``python -m tests.gcs_xml PORT UPSTREAM``.

fake-gcs-server answers reads and lists of both, and refuses uploads, copies and deletions of the XML API, with which
object stores are written to (`obstore`, `deltalake`).  These are translated here, with their conditions; whether a
condition is true is decided there.  Lists have what is before ``start-after`` taken out, which it does not know, and
are not found where the bucket is not.  All else goes through as it is.
"""

import itertools
import json
import re
import sys
from collections import defaultdict
from html import unescape
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, quote, unquote, urlsplit

import urllib3

_CONDITION = "x-goog-if-generation-match"
#: Of JSON's paths; what begins otherwise is a bucket.
_JSON = ("storage", "upload", "download", "batch", "b", "_internal")
_HOP_BY_HOP = {"connection", "transfer-encoding", "content-length", "keep-alive", "host"}
_BOUNDARY = b"dataflow-tests-7a1e"
_PART = b"\r\nContent-Type: %s\r\n\r\n"
_LISTED = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)
_NO_BUCKET = b"no bucket named"
_pool = urllib3.PoolManager(retries=False, maxsize=16)
_uploads: dict[str, dict[int, bytes]] = defaultdict(dict)
_numbers = itertools.count(1)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    upstream = ""

    def do_any(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        body = self.rfile.read(length)
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b"".join(self._chunks())
        url = urlsplit(self.path)
        quoted, _, key = url.path.lstrip("/").partition("/")
        bucket = unquote(quoted)
        query = {name: values[0] for name, values in parse_qs(url.query, True).items()}
        is_xml = bucket not in _JSON and self.command in {"PUT", "POST", "DELETE"} and key
        if not is_xml:
            # A bucket that is quoted is not found there.
            path = self.path.replace(quoted, bucket, 1)
            done = self._ask(self.command, path, body, passes=True)
            self._list(done, query["start-after"]) if "start-after" in query else self._answer(done)
        elif "uploads" in query or "uploadId" in query:
            self._part(bucket, unquote(key), query, body)
        elif self.command == "DELETE":
            self._answer(self._ask("DELETE", f"/storage/v1/b/{bucket}/o/{quote(unquote(key), '')}"))
        elif "x-goog-copy-source" in self.headers:
            self._copy(bucket, unquote(key))
        else:
            self._put(bucket, unquote(key), body)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = do_PATCH = do_any  # noqa: N815 - named by http.server

    def _chunks(self) -> list[bytes]:
        found = []
        while size := int(self.rfile.readline(), 16):
            found.append(self.rfile.read(size))
            self.rfile.readline()
        self.rfile.readline()
        return found

    def _condition(self) -> str:
        generation = self.headers.get(_CONDITION)
        return "" if generation is None else f"&ifGenerationMatch={generation}"

    def _put(self, bucket: str, key: str, body: bytes, answer: bytes = b"") -> None:
        # One that is plain media has no conditions there.
        path = f"/upload/storage/v1/b/{bucket}/o?uploadType=multipart{self._condition()}"
        about = json.dumps({"name": key}).encode()
        parts = [
            b"",
            _PART % b"application/json" + about,
            _PART % b"application/octet-stream" + body,
        ]
        whole = (b"\r\n--" + _BOUNDARY).join([*parts, b"--"])
        done = self._ask(
            "POST", path, whole, kind=f"multipart/related; boundary={_BOUNDARY.decode()}"
        )
        if done.status != 200:
            self._answer(done)
            return
        known = done.json()
        headers = {"ETag": f'"{known["etag"]}"', "x-goog-generation": known["generation"]}
        self._send(200, headers, answer)

    def _list(self, done: urllib3.BaseHTTPResponse, after: str) -> None:
        def left(found: re.Match[bytes]) -> bytes:
            return found[0] if unescape(found[1].decode()) > after else b""

        # Of a bucket that is not there; it answers with an error of its own.
        status = 404 if _NO_BUCKET in done.data else done.status
        self._send(status, {}, _LISTED.sub(left, done.data))

    def _copy(self, bucket: str, key: str) -> None:
        source, _, name = unquote(self.headers["x-goog-copy-source"]).lstrip("/").partition("/")
        path = f"/storage/v1/b/{source}/o/{quote(name, '')}/copyTo/b/{bucket}/o/{quote(key, '')}"
        done = self._ask("POST", f"{path}?{self._condition()}", b"")
        self._answer(done) if done.status != 200 else self._send(200, {}, b"<CopyObjectResult/>")

    def _part(self, bucket: str, key: str, query: dict[str, str], body: bytes) -> None:
        upload = query.get("uploadId", "")
        if "uploads" in query:
            name = f"upload-{next(_numbers)}"
            text = f"<InitiateMultipartUploadResult><UploadId>{name}</UploadId></InitiateMultipartUploadResult>"
            self._send(200, {}, text.encode())
        elif self.command == "PUT":
            number = int(query["partNumber"])
            _uploads[upload][number] = body
            self._send(200, {"ETag": f'"{number}"'}, b"")
        elif self.command == "DELETE":
            _uploads.pop(upload, None)
            self._send(204, {}, b"")
        else:
            parts = _uploads.pop(upload)
            whole = b"".join(parts[number] for number in sorted(parts))
            answer = (
                b"<CompleteMultipartUploadResult><ETag>whole</ETag></CompleteMultipartUploadResult>"
            )
            self._put(bucket, key, whole, answer)

    def _ask(
        self, method: str, path: str, body: bytes = b"", *, passes: bool = False, kind: str = ""
    ) -> urllib3.BaseHTTPResponse:
        headers = {
            name: value
            for name, value in self.headers.items()
            if passes and name.lower() not in _HOP_BY_HOP
        }
        if kind:
            headers["Content-Type"] = kind
        return _pool.request(
            method, self.upstream + path, body=body, headers=headers, decode_content=False
        )

    def _answer(self, done: urllib3.BaseHTTPResponse) -> None:
        headers = {k: v for k, v in done.headers.items() if k.lower() not in _HOP_BY_HOP}
        if self.command == "HEAD" and "Content-Length" in done.headers:
            headers["Content-Length"] = done.headers["Content-Length"]
        self._send(done.status, headers, done.data)

    def _send(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if "Content-Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


def main(port: str, upstream: str) -> None:
    """Serve until it is killed."""
    _Handler.upstream = upstream
    ThreadingHTTPServer(("127.0.0.1", int(port)), _Handler).serve_forever()


if __name__ == "__main__":
    main(*sys.argv[1:])
