"""The classes of a script are found by plain pickles in a process that was started with another program."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[4]

SCRIPT = """
import base64, enum, pickle, subprocess, sys, threading
from typing import NamedTuple

import attrs

from dataflow.serialization import dumps, dumps_code
from runners.spark.main_module import become_main, classes_of_main

class Kind(enum.Enum):
    BID = "bid"

class Sale(NamedTuple):
    shop: str
    kind: Kind

@attrs.frozen
class Bid:
    price: int
    sale: Sale

    class Part:
        kind = Kind

LOCK = threading.Lock()

class Unsendable:
    def locked(self):
        return LOCK

def function():
    return 1

found = classes_of_main()
assert sorted(found) == ["Bid", "Bid.Part", "Kind", "Sale"], found
become_main(found)
assert sys.modules["__main__"].function is function  # nothing has happened here

bid = Bid(3, Sale("Oslo", Kind.BID))
part = Bid.Part()
code = dumps_code((lambda bid: isinstance(bid, Bid), found), "x")
print(base64.b64encode(pickle.dumps((code, dumps([bid, part])))).decode())
"""

WORKER = """
import base64, pickle, sys
from dataflow.serialization import dumps, loads, loads_code
from runners.spark.main_module import become_main

def still_here():
    return sys

code, record = pickle.loads(base64.b64decode(sys.stdin.read()))
for _ in range(2):  # a worker is given one task after the other
    is_bid, classes = loads_code(code)
    become_main(classes)
    bid, part = loads(record)
    assert is_bid(bid)
    assert loads(dumps(bid)) == bid
    assert type(part).__qualname__ == "Bid.Part"
    assert bid.sale.kind is classes["Kind"].BID
class_of = type(bid)
is_bid, classes = loads_code(code)
become_main(classes)
assert type(loads(record)[0]) is class_of
become_main({"Other": int})
try:
    loads(record)
except AttributeError:
    print("gone with its pipeline", still_here().__name__)
"""


def run(program: str, given: str = "", *, as_file: Path | None = None) -> str:
    """What a process prints: a program as a file, or as a module without one."""
    if as_file is not None:
        as_file.write_text(program)
        command = [sys.executable, str(as_file)]
    else:
        command = [sys.executable, "-c", program]
    done = subprocess.run(
        command,
        input=given,
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("is_file", [True, False], ids=["script", "without a file"])
def test_classes_of_main_are_found_in_another_process(is_file: bool, tmp_path: Path) -> None:
    sent = run(SCRIPT, as_file=tmp_path / "job.py" if is_file else None)

    assert run(WORKER, sent) == "gone with its pipeline sys\n"
