"""Late records and dead letters as a store keeps them beside their plain columns, so that they can be replayed."""

from collections.abc import Mapping
from typing import Any

from dataflow.serialization import dumps, loads
from runners.core.ground.cells import LateArrival
from runners.core.ground.dead_letters import DeadLetter, dead_contents
from runners.core.panes.late import late_contents
from runners.stored.framing import frame, unframed

LATE, DEAD = "late record", "dead letter"
_NAMES = ("window_start_us", "window_end_us", "sign")


def late_payload(arrival: LateArrival) -> bytes:
    """The bytes that a store keeps of a late arrival.

    Raises:
        PipelineError: a value in it is not plain data.
    """
    contents = late_contents(arrival)
    return frame(LATE, contents["sign"], dumps((contents["payload"], contents["element"])))


def stored_late_mapping(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a store as the mapping that `late_mapping` returns.

    Raises:
        StoredFormatError: the row's payload is of a format that is not read.
    """
    sign, own = unframed(LATE, row["payload"])
    payload, element = loads(own)
    return {**_plain(row), "sign": sign, "payload": payload, "element": element}


def dead_payload(letter: DeadLetter) -> bytes:
    """The bytes that a store keeps of a dead letter; an element that is not plain data is left out."""
    contents = dead_contents(letter)
    try:
        own = dumps(contents["element"])
    except Exception:  # noqa: BLE001 - what cannot be kept as it is, is kept as text
        own = dumps(None)
    origin = contents["origin"]
    if origin is not None:
        # The name of a file need not be valid text.
        path = origin["path"].encode("utf-8", "surrogateescape")
        origin = [path, *(origin[name] for name in ("line", "start_bytes", "end_bytes", "raw"))]
    text = contents["text"].encode("utf-8", "backslashreplace").decode()
    return frame(DEAD, own, text, origin, *(contents[name] for name in _NAMES))


def stored_dead_mapping(row: Mapping[str, Any]) -> Mapping[str, Any]:
    """A row of a store as the mapping that `dead_mapping` returns.

    Raises:
        StoredFormatError: the row's payload is of a format that is not read.
    """
    own, text, origin, *numbers = unframed(DEAD, row["payload"])
    if origin is not None:
        path, line, start_bytes, end_bytes, raw = origin
        origin = {
            "path": path.decode("utf-8", "surrogateescape"),
            "line": line,
            "start_bytes": start_bytes,
            "end_bytes": end_bytes,
            "raw": raw,
        }
    contents = {"element": loads(own), "text": text, "origin": origin}
    return {**_plain(row), **contents, **dict(zip(_NAMES, numbers, strict=True))}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    # The number is for deleting the row, and the contents are for readers that cannot unpickle.
    return {name: value for name, value in row.items() if name not in ("number", "contents")}
