"""Golden files: what a format is in bytes, for ever; what is written now is that, and what was written is read."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from dataflow.value_tags import ATTRS, ENUMS, OTHERS, TUPLES
from runners.core.ground.cells import PageId
from runners.millwheel.wire import messages
from runners.stored.framing import FORMAT, kind_of, number_of
from tests.about import about
from tests.stored_bytes import named_in, ours_in
from tests.stored_examples import (
    CELLS,
    EXAMPLES,
    GOLDEN,
    MESSAGES,
    TIMERS,
    VALUES,
    main,
    path_of,
)

#: Every format that this code reads; add to `READ` what is added to `FORMAT.readers`.
WRITTEN = sorted(path.name for path in GOLDEN.iterdir())
#: What older bytes are read as, where examples have more now.
READ: dict[tuple[int, str], Any] = {
    (1, "journal, changes"): (
        [each for each in CELLS if not isinstance(each[0], PageId)],
        TIMERS,
    ),
}
ROOT = Path(__file__).parents[4]
PAGE = (ROOT / "docs" / "stored-format.md").read_text(encoding="utf-8")
MIGRATIONS = ROOT / "runners/millwheel/store/postgres/sql/migrations"
HINT = (
    "the bytes of a shape have changed under the same number: stores that exist could not be read. "
    "docs/stored-format.md says how to raise the number"
)


def test_bytes_of_a_shape_change_with_the_number_alone() -> None:
    for name, example in EXAMPLES.items():
        with about(name):
            assert example.blob() == path_of(name).read_bytes(), HINT


def test_golden_bytes_are_read() -> None:
    for name, example in EXAMPLES.items():
        with about(name):
            found = example.read(path_of(name).read_bytes())

            assert found == example.value
            assert type(found) is type(example.value) or isinstance(found, list)


OLDER = [
    (number, name)
    for number in sorted(FORMAT.readable - {FORMAT.number})
    for name in EXAMPLES
    # Messages are those of one run, and so of one version.
    if path_of(name, number).exists() and not name.startswith("message")
]


def test_golden_bytes_of_older_formats_are_read() -> None:
    """They are what the examples are now, but for what older formats did not have."""
    for number, name in OLDER:
        with about(f"format {number}: {name}"):
            found = EXAMPLES[name].read(path_of(name, number).read_bytes())

            assert found == READ.get((number, name), EXAMPLES[name].value)


def test_each_golden_file_is_read() -> None:
    """Of the current format, and of every older one that is still read."""
    names = {path_of(name).name for name in EXAMPLES}

    assert {path.name for path in path_of("x").parent.iterdir()} == names
    assert {f"format_{number}" for number in FORMAT.readable} <= set(WRITTEN)
    for number in FORMAT.readable - {FORMAT.number}:
        known = {path_of(name, number) for old, name in OLDER if old == number}
        found = set((GOLDEN / f"format_{number}").iterdir())
        assert {path for path in found if not path.name.startswith("message")} == known


def test_golden_bytes_name_nothing_of_ours() -> None:
    for name in EXAMPLES:
        blob = path_of(name).read_bytes()

        assert ours_in(blob) == [], name
        assert {module for module, _ in named_in(blob)} <= {"datetime"}, name


def test_what_lies_in_a_store_has_a_number() -> None:
    """But for users' own values, which are in a field of something that has one, texts that are JSON, and keys."""
    for name in EXAMPLES:
        if not name.startswith(("value", "state shape", "run file", "key")):
            blob = path_of(name).read_bytes()
            assert FORMAT.number == number_of(blob), name
            assert kind_of(blob), name


def test_every_tag_and_every_message_has_an_example() -> None:
    of_core = {"row", "nothing", "nan", "key", "emitted", "arriving view", "carried pane"}
    assert {*TUPLES, *ATTRS, *OTHERS, *ENUMS, *of_core} == {*VALUES}
    assert {*messages.KINDS.values()} == {*MESSAGES} - {"deliver", "deliver traced", "acknowledge"}


@pytest.mark.parametrize("kind", MESSAGES)
def test_messages_come_back_and_name_nothing_of_ours(kind: str) -> None:
    """Their bytes may change with any version: whoever has another one is refused."""
    blob = messages.encode(MESSAGES[kind])

    assert MESSAGES[kind] == messages.decode(blob)
    assert kind == kind_of(blob)
    assert ours_in(blob) == []


def test_the_page_names_every_kind_and_tag() -> None:
    frames = [name for name in EXAMPLES if not name.startswith("key")]
    kinds = {kind_of(path_of(name).read_bytes()) for name in frames} - {None}

    assert [each for each in (*kinds, *VALUES) if f"`{each}`" not in PAGE] == []


def bytes_columns(sql: str) -> set[str]:
    """``table.column`` of each column of bytes that a migration makes."""
    made = re.findall(
        r"(?:CREATE|ALTER) TABLE dataflow\.(\w+)(.*?);\n", re.sub(r"--.*", "", sql), re.DOTALL
    )
    return {
        f"{table}.{column}"
        for table, columns in made
        for column in re.findall(r"(\w+)\s+bytea\b", columns)
    }


def test_the_page_names_every_column_of_bytes() -> None:
    files = sorted(MIGRATIONS.glob("*.sql"))
    found = set[str]().union(*(bytes_columns(each.read_text(encoding="utf-8")) for each in files))

    assert {"cells.value", "record_ids.record_id", "journal.payload"} <= found
    assert sorted(each for each in found if f"`{each}`" not in PAGE) == []


def test_the_page_names_every_part_of_a_shape_of_state() -> None:
    """By its name alone; those of state and timers have the user's name behind it."""
    shapes = [example.value for name, example in EXAMPLES.items() if name.startswith("state shape")]
    parts = {re.sub(r" '.*'$", " NAME", part) for shape in shapes for part in shape.parts}

    assert {"emits", "columns", "combined by", "state NAME", "state timer NAME", "order"} <= parts
    assert [part for part in parts if f"`{part}`" not in PAGE] == []


def test_the_page_shows_how_users_values_are_read_without_this_package() -> None:
    """Its program, in a process that does not find the package."""
    program = re.search(r"```py\n(.*?)```", PAGE, re.DOTALL)
    assert program is not None
    ran = subprocess.run(
        [sys.executable, "-I", "-c", program[1]],
        input=path_of("value, change").read_bytes(),
        capture_output=True,
        check=True,
        cwd="/",
    )

    assert ran.stdout.decode().strip() == (
        "('change', ('k', 1), -1, 5, ('window', 0, 60000000), "
        "('pane', 2, ('pane timing', 'late'), False, True, 1), 6)"
    )


def test_golden_files_are_not_written_again(capsys: pytest.CaptureFixture[str]) -> None:
    assert main() == 2
    assert "do not change" in capsys.readouterr().err
