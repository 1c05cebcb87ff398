"""The words of the field: the glossary names what exists, and names that were given up do not come back.

`docs/glossary.md` says what each term means and what others call it.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
CODE = ("windowing", "triggers", "dataflow", "runners")

#: Identifiers that were given up, and what stands in their place.
RETIRED = {
    "Said": "EmittedPane",
    "sayings": "emitted_panes",
    "say_for_now": "emit_retractable",
    "speak": "fire",
    "speaks": "fires",
    "Alarms": "WindowTimers",
    "alarms": "timers",
    "Wakeup": "TriggerTimers",
    "next_wakeup": "next_timers",
    "judge": "deduplicate, or classify",
    "judged": "deduplicated",
    "Settler": "Compactor",
    "acted_us": "input_watermark_us",
    "told_us": "output_watermark_us",
    "tied_to": "handover_with",
    "untie": "end_handover",
    "hear": "on_signal, on_report, on_requests",
    "HistoryTask": "BackfillEnd",
    "HistoryThenLiveRunner": "BackfillThenLiveRunner",
}


def code() -> Iterator[tuple[Path, str]]:
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


def identifiers(text: str) -> set[str]:
    """The names in a Python file, without what stands in texts and comments."""
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    return {token.string for token in tokens if token.type == tokenize.NAME}


def named_here() -> list[str]:
    """What the column "Here" of the glossary names, in backticks."""
    found = []
    for line in GLOSSARY.splitlines():
        cells = line.split(" | ")
        if line.startswith("| **") and len(cells) == 5:
            found += re.findall(r"`([^`]+)`", cells[2])
    return found


def test_every_line_of_the_glossary_has_five_columns() -> None:
    rows = [line for line in GLOSSARY.splitlines() if line.startswith("| **")]

    assert len(rows) > 30
    assert [line for line in rows if len(line.split(" | ")) != 5] == []


def test_the_glossary_names_what_exists() -> None:
    known = {name for _, text in code() for name in identifiers(text)}
    commands = "".join(text for path, text in code() if path.name.startswith("cli"))
    verbs = set(re.findall(r'"(\w+)"', commands))
    missing = []
    for name in named_here():
        if name.startswith("dataflow "):
            missing += [name] if name.split()[1] not in verbs else []
        else:
            words = re.findall(r"[A-Za-z_]\w+", name.partition("=")[0])
            missing += [name for word in words if word not in known]

    assert missing == []


def test_names_that_were_given_up_do_not_come_back() -> None:
    complaints = [
        f"{path.relative_to(ROOT)}: {name} is now {RETIRED[name]}"
        for path, text in code()
        for name in sorted(RETIRED.keys() & identifiers(text))
    ]

    assert complaints == [], "\n".join(complaints)


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_name_that_was_given_up_is_found(name: str) -> None:
    assert name in identifiers(f"def f({name}: int) -> int:\n    return {name}\n")
    assert name not in identifiers(f'"""{name}"""\n# {name}\n')
