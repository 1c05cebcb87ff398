"""A collector of OpenTelemetry that takes everything and keeps nothing, in a process of its own."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


class _Taking(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        """Take a batch of spans."""
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "0")
        self.end_headers()

    def log_message(self, *args: object) -> None:
        """Nothing: what a benchmark prints is its table."""


@contextmanager
def collector() -> Iterator[str]:
    """The address of a collector, which is ended with the block."""
    words = [sys.executable, "-c", "from benchmarks import otlp_sink; otlp_sink.serve()"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def serve() -> None:
    """Print the number of a port on loopback, and serve there until the process is ended."""
    with ThreadingHTTPServer(("127.0.0.1", 0), _Taking) as server:
        print(server.server_address[1], flush=True)
        server.serve_forever()
