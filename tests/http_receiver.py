"""A receiver that tests may kill: ``python -m tests.http_receiver SPOOL PORT [lazy]``.

A lazy one answers before a request is on the disk, as none may.
"""

import sys
import threading
from pathlib import Path
from typing import Any

import dataflow as df
from dataflow.io.http import source as sources
from dataflow.io.http.spool import Spool, SpoolAnswer


class LazySpool(Spool):
    """A spool that keeps requests a little later than it says."""

    def add(self, body: bytes, key: str | None = None) -> SpoolAnswer:
        threading.Timer(0.2, super().add, (body, key)).start()
        return SpoolAnswer(0)


def main() -> None:
    """Receive until it is killed."""
    folder, port, *lazy = sys.argv[1:]
    if lazy:
        module: Any = sources
        module.Spool = LazySpool
    source = df.ReceiveHttp(Path(folder), port=int(port))._source
    (split,) = source.splits(1)
    reader = source.open(split, None, fence=1)
    while True:
        reader.read(100)


if __name__ == "__main__":
    main()
