"""The command that serves metrics: the files that go with them, and what it refuses before it listens."""

import json
import re
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import pytest

from runners.cli import main
from runners.observability.metrics.documents import alert_rules, dashboard

ROOT = Path(__file__).parents[3]
NOBODY = "host=127.0.0.1 port=1 user=nobody dbname=nothing"


def test_it_writes_the_dashboard_and_the_rules(tmp_path: Path) -> None:
    assert main(["serve-metrics", "--write", str(tmp_path)]) == 0
    assert json.loads((tmp_path / "grafana-dashboard.json").read_text()) == dashboard()
    rules = (tmp_path / "prometheus-rules.yml").read_text()
    assert all(rule["alert"] in rules for rule in alert_rules()["groups"][0]["rules"])


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--write", "{}/nowhere"], "nothing can be written to"),
        (["--token-file", "{}/nothing"], "cannot be read"),
        (["--token-file", "{}/short"], "fewer than 16 characters"),
    ],
)
def test_what_it_refuses(
    arguments: list[str], reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "short").write_text("secret\n")
    given = [each.format(tmp_path) for each in arguments]
    assert main(["serve-metrics", "--store", NOBODY, "--port", "0", *given]) == 2
    error = capsys.readouterr().err
    assert reason in error
    assert "secret" not in error


def asked(address: str, **headers: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


@pytest.mark.slow
def test_it_answers_whoever_has_the_token_also_without_a_store(tmp_path: Path) -> None:
    """It is a program of its own; the token of a file is not printed."""
    token = tmp_path / "token"
    token.write_text("a-token-of-24-characters\n")
    words = [sys.executable, "-c", "import sys; from runners.cli import main; sys.exit(main())"]
    words += ["serve-metrics", "--store", NOBODY, "--port", "0", "--token-file", str(token)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert "a-token" not in line
            [address] = re.findall(r"http://127\.0\.0\.1:\d+/metrics", line)
            assert asked(address)[0] == 401
            status, body = asked(address, Authorization="Bearer a-token-of-24-characters")
            assert (status, "dataflow_store_up 0.0" in body) == (200, True)
        finally:
            process.terminate()
