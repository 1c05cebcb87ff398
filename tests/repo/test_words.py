"""The words of the field: the glossary names what exists, and names that were given up do not come back.

`docs/glossary.md` says what each term means and what others call it.
"""

import ast
import functools
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

import attrs
import pytest

from tests.program_files import ROOT, FoundBy, ProgramFile, for_files_in

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
CODE = ("windowing", "triggers", "dataflow", "runners")
PROGRAMS = (*CODE, "benchmarks", "examples", "tools", "tests")
#: Every page that is kept here, also the fragments of the changelog.
PAGES = (
    "*.md",
    "docs/**/*.md",
    "changelog.d/*.md",
    "tests/*.md",
    "examples/**/*.md",
    "tools/**/*.md",
)
#: This file, whose data are the words that it refuses.
ITSELF = "tests/repo/test_words.py"

#: Words of a private language, and what the field calls it.  A name is refused that has one of them as a part; a text,
#: a comment or a page that has one of the second list, which ordinary English does not need.
RETIRED_PARTS = {
    "speak speaks speaking spoke spoken say says said saying sayings": "emit, fire, report, print",
    "take_back takes_back taken_back took_back taking_back": "retract, restore",
    "hear hears heard unheard": "on_signal, receive, last_seen",
    "tell tells told untold telling": "report, send",
    "judge judges judged judging": "deduplicate, classify, check",
    "settle settles settled settling settler": "compact",
    "held": "keep, buffer; a hold is of a watermark",
    "acted": "input_watermark, processed",
    "tie ties tied untie untied": "handover",
    "alarm alarms wakeup wakeups wake wakes woken": "timer, timers",
    "history histories": "backfill",
}
_RETIRED_WORDS = (
    *("speak", "speaks", "spoke", "spoken", "unheard", "judged", "settled", "settles", "settling"),
    *("tied", "untie", "unties", "untied", "wakeup", "wakeups", "alarm", "alarms", "saying"),
    "sayings",
)
RETIRED_IN_TEXT = re.compile(
    rf"\b({'|'.join(_RETIRED_WORDS)}|takes? back|taken back|took back|taking back"
    r"|(is|are|was|were|been|has|have|had|not) (told|heard|acted))\b",
    re.IGNORECASE,
)
#: A text without one of them has nothing of that: to look for words is far cheaper than to look for the pattern.
_OF_RETIRED = {*_RETIRED_WORDS, "back", "told", "heard", "acted"}
#: Where one of the words is right.
ALLOWED_NAMES = {
    "settle": "of the user's file watcher: how long a file must be unchanged, its settling time",
    "settle_us": "the same",
    "_settle_us": "the same",
    "tell": "the method of a file",
    "HELD_UP_REPORTED_AFTER_MS": "held up: delayed",
    "_is_held_up": "the same",
    "held_snapshot": "of a database: one that a session holds, in the words of Postgres",
}
#: Tags of format 1, which stores have: names there are data (docs/stored-format.md).
ALLOWED_TEXTS = {
    "dataflow/value_tags.py": {"wakeup"},
    "docs/stored-format.md": {"wakeup"},
    "docs/glossary.md": {"take back"},
    # Examples of what format 1 has, under its tags; their bytes are in tests/golden.
    "tests/stored_examples.py": {"wakeup"},
}
#: References to the plan that this project began with, which nobody can look up: decisions are in docs/adr.
PLAN = re.compile(r"\bDESIGN\.md\b|\bdesign,? (section|chapter|§)? ?\d", re.IGNORECASE)

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


def programs() -> list[Path]:
    """Every Python file of the repository but this one."""
    found = (path for folder in PROGRAMS for path in sorted((ROOT / folder).rglob("*.py")))
    return [path for path in found if path.relative_to(ROOT).as_posix() != ITSELF]


def pages() -> list[Path]:
    """Every page of the repository."""
    return sorted({path for pattern in PAGES for path in ROOT.glob(pattern)})


def code() -> Iterator[tuple[Path, str]]:
    for folder in CODE:
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield path, path.read_text(encoding="utf-8")


@attrs.frozen
class Words:
    """What a Python file says: names, and in which line which comment or string begins."""

    names: frozenset[str]
    texts: tuple[tuple[int, str], ...]


#: Takes a quarter of the time of `tokenize`, to which texts are more than one token from Python 3.12 on.
_TOKEN = re.compile(
    r"""
      (?P<text>   (?i:\b(?:[rbuf]|br|rb|fr|rf))?
                  (?: \"{3}(?:[^\\]|\\.)*?\"{3} | '{3}(?:[^\\]|\\.)*?'{3}
                    | "(?:[^"\\\n]|\\.)*" | '(?:[^'\\\n]|\\.)*' )
                | \#[^\n]* )
    | (?P<name>   [^\W\d]\w* )
    | (?P<number> \d\w* )
    """,
    re.DOTALL | re.VERBOSE,
)


#: All that may be a name, in code or in a text: far cheaper than `words_of`, and hardly a file has what is looked for.
_CANDIDATE = re.compile(r"[^\W\d]\w*")


def candidates(text: str) -> frozenset[str]:
    """What stands in a Python file and could be a name."""
    return frozenset(_CANDIDATE.findall(text))


def may_have_a_retired_word(text: str) -> bool:
    """Whether `RETIRED_IN_TEXT` could be anywhere in a text."""
    words = set(map(str.lower, candidates(text)))
    return not words.isdisjoint(_OF_RETIRED) and RETIRED_IN_TEXT.search(text) is not None


def words_of(text: str) -> Words:
    """The words of a Python file."""
    names, texts = set(), []
    line, counted = 1, 0
    for found in _TOKEN.finditer(text):
        if found.lastgroup == "name":
            names.add(found[0])
        elif found.lastgroup == "text":
            line, counted = line + text.count("\n", counted, found.start()), found.start()
            texts.append((line, found[0]))
    return Words(frozenset(names), tuple(texts))


def identifiers(text: str) -> frozenset[str]:
    """The names in a Python file, without what stands in texts and comments."""
    return words_of(text).names


def parts_of(name: str) -> str:
    """A name as words with blanks around each: ``_is_tied`` and ``IsTied`` are both `` is tied ``."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name).lower().strip("_").split("_")
    return f" {' '.join(words)} "


#: Parts that were given up, or the last words of those that are several: few names have one of them anywhere.
_GIVEN_UP = {each for given_up in RETIRED_PARTS for each in given_up.split()}
_MAY_BE_RETIRED = re.compile(
    "|".join(sorted({each.rpartition("_")[2] for each in _GIVEN_UP})), re.IGNORECASE
)


@functools.cache
def retired_parts(name: str) -> list[str]:
    """What a name is to have instead of the words in it that were given up."""
    if name in ALLOWED_NAMES or not _MAY_BE_RETIRED.search(name):
        return []
    words = parts_of(name)
    return [
        instead
        for given_up, instead in RETIRED_PARTS.items()
        if any(f" {each.replace('_', ' ')} " in words for each in given_up.split())
    ]


def texts_of_page(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page outside of its code."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        elif not is_code:
            # Targets of links and names of code are checked where they are given.
            yield number, re.sub(r"\]\([^)]*\)|`[^`]*`", "", line)


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
    known = set[str]()
    looked_for = {word for name in named_here() for word in re.findall(r"[A-Za-z_]\w+", name)}
    for _, text in code():
        if any(word in text for word in looked_for - known):
            known |= identifiers(text)
    commands = "".join(text for path, text in code() if path.parent.name == "cli")
    verbs = set(re.findall(r'"(\w+)"', commands))
    missing = []
    for name in named_here():
        if name.startswith("dataflow "):
            missing += [name] if name.split()[1] not in verbs else []
        else:
            words = re.findall(r"[A-Za-z_]\w+", name.partition("=")[0])
            missing += [name for word in words if word not in known]

    assert missing == []


@for_files_in(*CODE)
def retired_identifiers(file: ProgramFile) -> Iterator[str]:
    """Identifiers of a file that were given up."""
    if not RETIRED.keys().isdisjoint(candidates(file.text)):
        for name in sorted(RETIRED.keys() & identifiers(file.text)):
            yield f"{file.path}: {name} is now {RETIRED[name]}"


def test_names_that_were_given_up_do_not_come_back(found_by: FoundBy[str]) -> None:
    complaints = found_by(retired_identifiers)

    assert complaints == [], "\n".join(complaints)


def test_names_and_texts_of_a_program_are_not_confused() -> None:
    texts = ['"""a \\""" b\n"""', "# it's c", "f'{d!r}'", 'Rb"e\\""', "'#'", "''", "'''g\n'h'\n'''"]
    program = (
        f"x = [{texts[0]},  {texts[1]}\n{', '.join(texts[2:])}] + 0xff + bar_1 if y else 1e5\n"
    )

    words = words_of(program)

    assert words.names == {"x", "bar_1", "if", "y", "else"}
    assert words.texts == tuple(zip([1, 2, 3, 3, 3, 3, 3], texts, strict=True))


@pytest.mark.parametrize("name", sorted(RETIRED))
def test_a_name_that_was_given_up_is_found(name: str) -> None:
    assert name in identifiers(f"def f({name}: int) -> int:\n    return {name}\n")
    assert name not in identifiers(f'"""{name}"""\n# {name}\n')


@functools.cache
def is_looked_at(name: str) -> bool:
    """Whether a name has a part that was given up, also where that is allowed."""
    return name in ALLOWED_NAMES or bool(retired_parts(name))


def names_to_look_at(program: str) -> list[str]:
    """Names in a program that have a part that was given up."""
    found = set(filter(is_looked_at, candidates(program)))
    return sorted(found & identifiers(program)) if found else []


def retired_texts(place: str, texts: Iterable[tuple[int, str]]) -> Iterator[str]:
    """Complaints about words in texts that were given up."""
    for line, text in texts:
        for found in RETIRED_IN_TEXT.finditer(text):
            if found[0].lower() not in ALLOWED_TEXTS.get(place, set()):
                yield f"{place}:{line}: {found[0]}"


@for_files_in(*PROGRAMS)
def names_of_file(file: ProgramFile) -> Iterator[tuple[str, str]]:
    """The place and the name of what has a part that was given up: what is in a file, and the file itself."""
    if file.path != ITSELF:
        for name in [*filter(is_looked_at, [Path(file.path).stem]), *names_to_look_at(file.text)]:
            yield file.path, name


@for_files_in(*PROGRAMS)
def retired_texts_of_file(file: ProgramFile) -> Iterator[str]:
    """Complaints about comments, docstrings and messages of a file."""
    if file.path != ITSELF and may_have_a_retired_word(file.text):
        yield from retired_texts(file.path, words_of(file.text).texts)


def names_of_pages() -> Iterator[tuple[str, str]]:
    """Names in the programs of pages that have a part that was given up, each with its page."""
    for path in pages():
        page = path.read_text(encoding="utf-8")
        for program in re.findall(r"^```(?:python|py)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
            for name in names_to_look_at(program):
                yield path.relative_to(ROOT).as_posix(), name


def test_no_name_has_a_word_that_was_given_up(found_by: FoundBy[tuple[str, str]]) -> None:
    complaints = [
        f"{place}: {name}: {', '.join(retired_parts(name))}"
        for place, name in [*found_by(names_of_file), *names_of_pages()]
        if name not in ALLOWED_NAMES
    ]

    assert complaints == [], "\n".join(complaints)


def test_no_text_has_a_word_that_was_given_up(found_by: FoundBy[str]) -> None:
    complaints = found_by(retired_texts_of_file)
    for path in pages():
        page = path.read_text(encoding="utf-8")
        if may_have_a_retired_word(page):
            complaints += retired_texts(path.relative_to(ROOT).as_posix(), texts_of_page(page))

    assert complaints == [], "\n".join(complaints)


def test_what_is_allowed_is_needed(found_by: FoundBy[tuple[str, str]]) -> None:
    names = {name for _, name in found_by(names_of_file)}
    unused = [
        f"{place}: {word}"
        for place, words in ALLOWED_TEXTS.items()
        for word in sorted(words)
        if not re.search(rf"\b{word}\b", (ROOT / place).read_text(encoding="utf-8"), re.IGNORECASE)
    ]

    assert unused + sorted(ALLOWED_NAMES.keys() - names) == []


def test_nothing_refers_to_a_plan_that_nobody_has() -> None:
    complaints = [
        f"{path.relative_to(ROOT)}: {found[0]}: name the decision in docs/adr instead"
        for path in [*programs(), *pages()]
        if "design" in (text := path.read_text(encoding="utf-8")).lower()
        for found in PLAN.finditer(text)
    ]

    assert complaints == [], "\n".join(complaints)


@pytest.mark.parametrize(
    "text", ["DESIGN section 7", "DESIGN, section 7", "see DESIGN.md", "DESIGN 7"]
)
def test_a_reference_to_the_plan_is_found(text: str) -> None:
    assert PLAN.search(f"As decided ({text}).")
    assert not PLAN.search("by design, sections of the design are files; designs 7")


@pytest.mark.parametrize(
    "name",
    [
        "_say_changes",
        "unheard_signal",
        "TakesBackMerged",
        "held",
        "is_tied",
        "TakenBack",
        "test_a_thing_is_said",
    ],
)
def test_a_part_of_a_name_that_was_given_up_is_found(name: str) -> None:
    assert retired_parts(name)
    assert not retired_parts("essay_holds_threshold_statement_tier")


def test_a_text_with_a_word_that_was_given_up_is_found() -> None:
    page = "Windows speak.\n\n```\nspeak\n```\n`speak` [a](speak.md)\n"
    program = ProgramFile("x.py", '"""Ranges are tied."""\nx = 1  # and untied\ntied = 2\n')

    assert list(retired_texts("x.md", texts_of_page(page))) == ["x.md:1: speak"]
    assert list(retired_texts_of_file(program)) == ["x.py:1: tied", "x.py:2: untied"]
    assert list(names_of_file(program)) == [("x.py", "tied")]
    assert list(names_of_file(ProgramFile("a/untied.py", ""))) == [("a/untied.py", "untied")]


#: What a message does not say: who reads it cannot do anything with it, or knows another word for it.
NO_MESSAGE = re.compile(
    r"should be impossible|come back|worked off|met an unexpected|accumulate or discard"
)
#: Of the arguments of an error, those that are shown one after the other.
SHOWN = ("detail", "hint")


def messages(file: ProgramFile) -> Iterator[tuple[int, str]]:
    """Facts, details and hints of errors, and help of commands, as far as they are written where they are used."""
    for node in file.nodes:
        if not isinstance(node, ast.Call):
            continue
        name = ast.unparse(node.func).rpartition(".")[2]
        given = [each.value for each in node.keywords if each.arg in (*SHOWN, "help")]
        if name.endswith(("Error", "Warning")):
            given += node.args[:1]
        for each in given:
            parts = each.values if isinstance(each, ast.JoinedStr) else [each]
            found = [part.value if isinstance(part, ast.Constant) else "{}" for part in parts]
            if any(isinstance(part, ast.Constant) for part in parts):
                yield each.lineno, "".join(map(str, found))


def complaint_about(message: str) -> str | None:
    """What is wrong with a message; None: nothing that can be seen without reading it."""
    if message.endswith(".") and not message.endswith("..."):
        return "ends with a full stop: fact, detail and hint are parts of one message"
    if "  " in message.strip():
        return "has two spaces"
    unclear = NO_MESSAGE.search(message)
    return f"has {unclear[0]!r}" if unclear else None


@for_files_in(*CODE)
def unclear_messages(file: ProgramFile) -> Iterator[str]:
    """The messages of a file of which something is wrong."""
    for line, message in messages(file):
        if complaint := complaint_about(message):
            yield f"{file.path}:{line}: {complaint}: {message}"


def test_messages_are_parts_of_one_text_in_the_fields_words(found_by: FoundBy[str]) -> None:
    wrong = found_by(unclear_messages)

    assert not wrong, "\n".join(wrong)


def test_a_message_with_a_full_stop_is_found() -> None:
    program = 'raise df.InputError(f"no {x}.", hint="try, and come back")\nlog.info("Fine.")\n'

    assert [complaint_about(each) is None for _, each in messages(ProgramFile("x", program))] == [
        False,
        False,
    ]
    assert complaint_about("return a tuple, e.g. (1, ...)") is None
