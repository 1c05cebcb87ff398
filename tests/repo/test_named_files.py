"""What the pages name is there: files and tests, headings that links lead to, commands with their options."""

import re
import subprocess
from collections.abc import Callable
from functools import cache
from pathlib import Path

from runners.millwheel.model.requests import Verb

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(path for folder in ("docs", "examples", "tests") for path in (ROOT / folder).rglob("*.md")),
]
#: Files that a page names although they are not there.
ABSENT = {
    "docs/adr/0001-packages-follow-what-where-when-how.md": {"runners.py"},  # an alternative
    "docs/adr/0040-the-core-has-rooms.md": {"tables/table_rows.py"},  # a name of before
    "docs/how-to/run-on-a-cluster.md": {"helpers.py"},  # the user's
    "docs/tutorial/first-answers.md": {"count.py"},  # these, too, the user writes
    "docs/tutorial/event-time.md": {"test_windows.py"},
    "docs/tutorial/history.md": {"cafe.py", "till.py"},
    "docs/tutorial/watch-correct-change.md": {"cafe2.py"},
}
_FILE = re.compile(r"`([\w./-]*\w\.(?:py|md|sql|cfg|toml))(?:::(\w+))?`")


@cache
def files() -> tuple[str, ...]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return tuple(f"/{path}" for path in listed.stdout.splitlines())


def without_code(text: str) -> str:
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def text_of(page: Path) -> str:
    return page.read_text("utf-8")


def missing_files(text: str) -> list[str]:
    """Files, or tests in them, that a text names and that are not there; a path may lack its beginning."""
    missing = []
    for name, test in _FILE.findall(without_code(text)):
        found = [path for path in files() if path.endswith(f"/{name.removeprefix('./')}")]
        if not found:
            missing.append(name)
        elif test and not any(f"def {test}(" in text_of(ROOT / path[1:]) for path in found):
            missing.append(f"{name}::{test}")
    return missing


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", without_code(text_of(page)), re.MULTILINE)
    plain = (re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", each).lower() for each in headings)
    return {re.sub(r"[^\w -]", "", each).replace(" ", "-") for each in plain}


def lost_anchors(page: Path) -> list[str]:
    lost = []
    for target in re.findall(r"\]\(([^)\s:]*#[^)\s]+)\)", without_code(text_of(page))):
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        if there.suffix == ".md" and anchor not in anchors(there):
            lost.append(target)
    return lost


def by_page(find: Callable[[Path], list[str]]) -> dict[str, set[str]]:
    """Names that a search finds, by the page that has them; pages without any are left out."""
    found = {page.relative_to(ROOT).as_posix(): set(find(page)) for page in PAGES}
    return {name: each for name, each in found.items() if each}


def test_what_a_page_names_is_there() -> None:
    missing = by_page(lambda page: missing_files(text_of(page)))

    assert missing == ABSENT, "and an exception that is not needed any more goes"
    assert by_page(lost_anchors) == {}


def test_targets_of_make_are_there() -> None:
    targets = set(re.findall(r"^([a-z]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    named = {
        (page.name, target)
        for page in PAGES
        for target in re.findall(r"(?:`|^)make ([a-z]+)", text_of(page), re.MULTILINE)
    }

    assert len(named) > 10
    assert {(page, target) for page, target in named if target not in targets} == set()


def test_commands_of_dataflow_are_there() -> None:
    cli = "".join(map(text_of, (ROOT / "runners/cli").glob("*.py")))
    verbs = set(re.findall(r'^\s+"([a-z-]+)",$', cli, re.MULTILINE)) | {each.value for each in Verb}
    named = {
        (page.name, verb)
        for page in PAGES
        for verb in re.findall(r"(?:`|^)dataflow ([a-z-]+)", text_of(page), re.MULTILINE)
    }

    assert len(named) > 10
    assert {(page, verb) for page, verb in named if verb not in verbs} == set()


def wrong_programs(text: str) -> list[str]:
    """Commands that start a program of this repository by a path, or one or an option that is not there."""
    # Imports begin at the root of the repository, which is not on sys.path where a program is started by its path.
    wrong = re.findall(r"\bpython (\w+/[\w/]+\.py)", text)
    for module, options in re.findall(r"\bpython -m ([\w.]+)([^`\n#]*)", text):
        folder = ROOT / module.partition(".")[0]
        if not folder.is_dir():
            continue  # of another package
        place = ROOT / module.replace(".", "/")
        code = "".join(map(text_of, folder.rglob("*.py")))
        if not (place.with_suffix(".py").exists() or (place / "__main__.py").exists()):
            wrong.append(module)
        found = re.findall(r"(--[a-z][a-z-]*)", options)
        wrong += [
            f"{module} {each}" for each in found if each != "--help" and f'"{each}"' not in code
        ]
    return wrong


def test_programs_of_python_are_there() -> None:
    wrong = {page.name: wrong_programs(text_of(page)) for page in PAGES}

    assert sum(text_of(page).count("python -m benchmarks.") for page in PAGES) > 10
    assert {name: found for name, found in wrong.items() if found} == {}


def test_a_program_that_is_not_there_is_found() -> None:
    text = "`python benchmarks/bench.py`, `python -m benchmarks.none --case`, `python -m benchmarks.bench --none`"

    assert wrong_programs(text) == [
        "benchmarks/bench.py",
        "benchmarks.none",
        "benchmarks.bench --none",
    ]


def test_a_file_or_test_or_heading_that_is_not_there_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `head`: one\n[a](#a-head-one) [b](#a-head-two)\n", "utf-8")

    assert missing_files("`runners/none.py`, `test_words.py::test_none`, `store/port.py`") == [
        "runners/none.py",
        "test_words.py::test_none",
    ]
    assert lost_anchors(page) == ["#a-head-two"]
