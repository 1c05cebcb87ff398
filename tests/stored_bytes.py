"""What stored bytes name: the modules and classes in pickles, wherever they are in frames."""

import pickletools
from collections.abc import Iterator
from typing import Any

from runners.stored.framing import number_of, opened

#: Packages whose layout must not be the format of a store.
OURS = ("windowing", "triggers", "dataflow", "runners")
_STRINGS = frozenset(("SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "UNICODE"))
_PICKLE = b"\x80\x05"


def named_in(blob: bytes) -> Iterator[tuple[str, str]]:
    """Module and name of every class or function that the bytes name, in any depth of frames."""
    if number_of(blob) is not None:
        for field in opened(blob)[1]:
            yield from _named_in_field(field)
    elif blob.startswith(_PICKLE):
        yield from named_in_pickle(blob)


def named_in_pickle(blob: bytes) -> Iterator[tuple[str, str]]:
    """Module and name of every class or function that a pickle names."""
    memo: list[str | None] = []
    texts: list[str] = []
    last: str | None = None
    for opcode, argument, _ in pickletools.genops(blob):
        name = opcode.name
        if name == "MEMOIZE":
            memo.append(last)
            continue
        last = None
        if name in _STRINGS:
            last = str(argument)
        elif name in ("BINGET", "LONG_BINGET", "GET"):
            last = memo[int(argument or 0)]
        elif name == "STACK_GLOBAL":
            yield texts[-2], texts[-1]
        elif name in ("GLOBAL", "INST"):
            module, _, attribute = str(argument).partition(" ")
            yield module, attribute
        elif name in ("BINBYTES", "SHORT_BINBYTES", "BINBYTES8"):
            assert isinstance(argument, bytes)
            yield from named_in(argument)
        if last is not None:
            texts.append(last)


def ours_in(blob: bytes) -> list[str]:
    """What the bytes name of this package, but for its test kits, which play the users."""
    return [
        f"{module}.{name}"
        for module, name in named_in(blob)
        if module.partition(".")[0] in OURS and ".testing" not in module
    ]


def _named_in_field(field: Any) -> Iterator[tuple[str, str]]:
    if isinstance(field, bytes):
        yield from named_in(field)
    elif isinstance(field, list):
        for each in field:
            yield from _named_in_field(each)
