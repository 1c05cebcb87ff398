"""A backup is a copy, of values that Python can copy: iterators of itertools can be no more from Python 3.14 on."""

from runners.millwheel.store.memory.store import MemoryStore
from runners.testing.simulator.backups import contents_copied


def test_a_copy_gives_out_tokens_of_its_own() -> None:
    contents = vars(MemoryStore())
    next(contents["_tokens"])
    copied = contents_copied({"_tokens": contents["_tokens"]})

    assert next(copied["_tokens"]) == next(contents["_tokens"]) == 2


def test_a_store_has_no_iterator_that_cannot_be_copied() -> None:
    assert not [
        name for name, each in vars(MemoryStore()).items() if type(each).__module__ == "itertools"
    ]
