"""Nothing that a job stores or sends names a module or class of this package, so that all of them can be moved."""

import pickle
from collections.abc import Iterator
from typing import Any

import attrs
import pytest

from runners.batch.spill.spill_file import SpillFile
from runners.core.ground.bundle import Bundle
from runners.millwheel.model.production import Production
from runners.millwheel.store.memory.store import MemoryStore
from runners.stored.framing import frame, kind_of
from runners.testing.simulator import simulate
from runners.testing.simulator.network import VirtualNetwork
from runners.testing.simulator.pipelines import PIPELINES
from tests.effort import by_profile, each_third
from tests.stored_bytes import named_in_pickle, ours_in


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What everything that goes to a store, over the network or into a file names of this package."""
    found: list[str] = []

    def looks(kind: type, verb: str) -> None:
        act = getattr(kind, verb)

        def looked(self: Any, *arguments: Any, **keywords: Any) -> Any:
            for blob in bytes_in([arguments, keywords]):
                # What user code has raised is code, and ends the run.
                if kind_of(blob) != "failed":
                    found.extend(ours_in(blob))
            return act(self, *arguments, **keywords)

        monkeypatch.setattr(kind, verb, looked)

    for verb in ("open_job", "commit", "update_job"):
        looks(MemoryStore, verb)
    looks(VirtualNetwork, "put")
    looks(SpillFile, "write")
    return found


def bytes_in(value: Any) -> Iterator[bytes]:
    """All bytes in plain values, in any depth."""
    if isinstance(value, bytes):
        yield value
    elif attrs.has(type(value)):
        for field in attrs.fields(type(value)):
            yield from bytes_in(getattr(value, field.name))
    elif isinstance(value, dict):
        yield from bytes_in([*value.items()])
    elif isinstance(value, list | tuple | set | frozenset):
        for each in value:
            yield from bytes_in(each)


@pytest.mark.slow
@pytest.mark.parametrize("name", each_third(PIPELINES, 0))
def test_no_stream_names_a_module_of_ours(name: str, named: list[str]) -> None:
    simulate(name, seeds=by_profile(1, nightly=100))

    assert named == []


def test_the_names_are_found(named: list[str]) -> None:
    """The names would be there if somebody pickled an object of ours."""
    blob = frame("position", [pickle.dumps({"it": Bundle([1], [2])}, protocol=5)])

    assert ours_in(blob) == ["runners.core.ground.bundle.Bundle"]
    assert list(bytes_in(Production(job="j", fences=[], positions={1: blob}))) == [blob]  # type: ignore[dict-item]
    assert [*named_in_pickle(pickle.dumps([len, len], protocol=5))] == [("builtins", "len")]
    assert named == []
