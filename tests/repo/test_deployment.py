"""The files in `deploy`: of the form that their systems want, and naming what this package has."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, get_type_hints

import kubernetes_validate
import pytest
import yaml

import dataflow as df
from dataflow.options import RunnerOptions
from runners.cli.command_line import parser
from runners.observability.metrics.documents import DASHBOARD_FILE, GENERATED, RULES_FILE
from tests import deployments, promtool
from tests.deployments import DEPLOY

#: Of no runner: where programs keep what is theirs, and what the files themselves use.
VARIABLES = {"RUNNER", "STATE_DIR", "PIPELINE", "PASSWORD"}
#: Of Kubernetes, whose schemas the objects have to be of.
VERSION = "1.31"
FOLDERS = ("base", "cluster")


def containers(folder: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The containers of the objects of a folder, by the names of these; patches have parts of one."""
    for each in deployments.manifests(folder):
        spec = each["spec"].get("template", {}).get("spec", {})
        for container in spec.get("containers", ()):
            yield each["metadata"]["name"], container


def commands() -> Iterator[Any]:
    """Everything that is run as ``dataflow ...``, by where it stands."""
    drivers = (deployments.of_compose(), deployments.of_kubernetes(), deployments.of_systemd())
    for name, driver in zip(("compose", "kubernetes", "systemd"), drivers, strict=True):
        yield pytest.param(driver.command, id=f"driver, {name}")
    yield pytest.param(
        ["dataflow", *deployments.compose()["services"]["page"]["command"]], id="page, compose"
    )
    for folder in FOLDERS:
        for name, container in containers(folder):
            if "command" not in container and "args" in container:
                yield pytest.param(["dataflow", *container["args"]], id=f"{name}, {folder}")
    texts = [path.read_text("utf-8") for path in sorted(DEPLOY.rglob("*")) if path.is_file()]
    for found in re.findall(r"dataflow (check (?:\"[^\"]+\"|\w+) --\w+)", "\n".join(texts)):
        yield pytest.param(["dataflow", *found.split()], id=found)
    (page,) = deployments.unit("dataflow-page.service")["ExecStart"]
    yield pytest.param(page.split(), id="page, systemd")


@pytest.mark.parametrize("command", list(commands()))
def test_commands_are_those_of_this_package(command: Sequence[str]) -> None:
    parser().parse_args(list(command[1:]))


def test_variables_are_read_by_this_package() -> None:
    options = {name.upper() for name in get_type_hints(RunnerOptions)}
    texts = "\n".join(path.read_text("utf-8") for path in DEPLOY.rglob("*") if path.is_file())
    named = set(re.findall(r"\bDATAFLOW_([A-Z_]+)", texts))

    assert {"STORE", "JOB", "WORKERS"} <= named
    assert named - options - VARIABLES == set()


def test_paths_of_the_files_exist() -> None:
    compose = deployments.compose()
    mounted = [
        volume.partition(":")[0]
        for service in compose["services"].values()
        for volume in service.get("volumes", ())
        if volume.startswith(".")
    ]
    assert f"../{GENERATED_FOLDER}/{RULES_FILE}" in mounted
    assert f"../{GENERATED_FOLDER}/{DASHBOARD_FILE}" in mounted
    # Whoever installs it puts files and a token there.
    made = {"./data"}
    assert [each for each in mounted if each not in made and not (DEPLOY / each).exists()] == []
    for folder in FOLDERS:
        home = DEPLOY / "kubernetes" / folder
        kustomization = yaml.safe_load((home / "kustomization.yaml").read_text("utf-8"))
        patches = [each["path"] for each in kustomization.get("patches", ())]
        assert [
            each for each in [*kustomization["resources"], *patches] if not (home / each).exists()
        ] == []
        assert kustomization["images"] == [{"name": "dataflow-model", "newTag": df.__version__}]


GENERATED_FOLDER = Path(str(GENERATED)).relative_to(DEPLOY.parent).as_posix()


@pytest.mark.parametrize("folder", FOLDERS)
def test_objects_of_kubernetes_are_of_its_schemas(folder: str) -> None:
    for each in deployments.manifests(folder):
        if not _is_patch(each):
            kubernetes_validate.validate(each, VERSION, strict=True)


def _is_patch(found: Mapping[str, Any]) -> bool:
    return found["kind"] == "Deployment" and "selector" not in found["spec"]


def test_a_mistake_in_an_object_is_found() -> None:
    (driver, *_) = deployments.manifests()
    driver["spec"]["replica"] = driver["spec"].pop("replicas")
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(driver, VERSION, strict=True)


@pytest.mark.parametrize("folder", FOLDERS)
def test_containers_have_no_rights_and_ask_for_what_they_need(folder: str) -> None:
    (user,) = deployments.image("USER")
    (group,) = re.findall(r"useradd .*--gid (\d+) ", " ".join(deployments.image("RUN")))
    for each in deployments.manifests(folder):
        if "template" not in each["spec"] or _is_patch(each):
            continue
        pod = each["spec"]["template"]["spec"]
        assert pod["securityContext"]["runAsUser"] == int(user)
        assert pod["securityContext"]["fsGroup"] == int(group)
        assert pod["securityContext"]["runAsNonRoot"] is True
        assert pod["automountServiceAccountToken"] is False
        for container in pod["containers"]:
            context = container["securityContext"]
            assert context["capabilities"] == {"drop": ["ALL"]}
            assert (context["readOnlyRootFilesystem"], context["allowPrivilegeEscalation"]) == (
                True,
                False,
            )
            assert container["resources"]["requests"].keys() == {"cpu", "memory"}
            assert "memory" in container["resources"]["limits"]
            assert {"livenessProbe", "readinessProbe"} <= container.keys()
            mounted = {volume["name"] for volume in container["volumeMounts"]}
            assert mounted == {volume["name"] for volume in pod["volumes"]}


def test_a_driver_is_alone_and_budgets_let_nodes_be_emptied() -> None:
    objects = [each for folder in FOLDERS for each in deployments.manifests(folder)]
    (driver,) = [
        each
        for each in objects
        if each["metadata"]["name"] == "scores" and "replicas" in each["spec"]
    ]
    assert driver["spec"]["replicas"] == 1
    assert driver["spec"]["strategy"] == {"type": "Recreate"}
    # A budget that lets none go would hold the node for ever; one that is about nobody helps nobody.
    labels = [
        each["spec"]["template"]["metadata"]["labels"]
        for each in objects
        if "template" in each["spec"] and not _is_patch(each)
    ]
    budgets = [each for each in objects if each["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 2
    for each in budgets:
        assert each["spec"]["maxUnavailable"] == 1
        assert each["spec"]["selector"]["matchLabels"] in labels


def test_nothing_that_is_secret_is_in_a_file() -> None:
    for folder in FOLDERS:
        for _, container in containers(folder):
            for each in container.get("env", ()):
                if each["name"] == "DATAFLOW_STORE":
                    assert each["valueFrom"]["secretKeyRef"]["key"] == "dsn"
    for service in deployments.compose()["services"].values():
        for name, value in service.get("environment", {}).items():
            if "PASSWORD" in name or "postgresql:" in value:
                assert "${DATAFLOW_PASSWORD:?" in value


def test_the_image_is_built_in_stages_and_runs_as_nobody() -> None:
    instructions = deployments.dockerfile()
    bases = [rest for name, rest in instructions if name == "FROM"]
    assert [each.partition(" ")[0] for each in bases] == ["${BASE}"] * 3
    assert deployments.image("USER") == ["10001"]
    assert deployments.image("STOPSIGNAL") == ["SIGINT"]
    build = next(rest for name, rest in instructions if name == "RUN" and "tools/dist.py" in rest)
    pattern = re.search(r"sed -n '(s/.+?/p)' pyproject.toml", build)
    assert pattern is not None
    done = subprocess.run(
        ["sed", "-n", pattern[1], DEPLOY.parent / "pyproject.toml"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert re.fullmatch(r"build~=[\d.]+\n", done.stdout)


@pytest.mark.slow
def test_the_linter_of_dockerfiles_finds_nothing() -> None:
    done = subprocess.run(
        [Path(sys.executable).with_name("hadolint"), "--ignore", "DL3008", DEPLOY / "Dockerfile"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="no systemd-analyze")
def test_units_are_well_formed_and_confined(tmp_path: Path) -> None:
    """By systemd itself; a program has to be where a unit names it, and here it is not."""
    for path in (DEPLOY / "systemd").iterdir():
        text = path.read_text("utf-8").replace("/opt/dataflow/bin/dataflow", "/bin/true")
        (tmp_path / path.name).write_text(text)
    names = [path.name.replace("@.", "@scores.") for path in sorted((DEPLOY / "systemd").iterdir())]
    done = subprocess.run(
        ["systemd-analyze", "verify", *(tmp_path / name for name in names)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SYSTEMD_LOG_LEVEL": "warning"},
    )
    assert (done.returncode, done.stderr) == (0, "")
    for name in ("dataflow@.service", "dataflow-page.service"):
        # Of ten, above which it fails.
        subprocess.run(
            ["systemd-analyze", "security", "--offline=true", "--threshold=20", tmp_path / name],
            capture_output=True,
            check=True,
        )


def test_a_driver_may_ask_for_network_interfaces() -> None:
    """ZeroMQ, which it talks to its workers by, does so, and ends the process where that is not allowed."""
    unit = (DEPLOY / "systemd" / "dataflow@.service").read_text("utf-8")
    (allowed,) = re.findall(r"^RestrictAddressFamilies=(.*)$", unit, re.MULTILINE)

    assert {"AF_INET", "AF_INET6", "AF_UNIX", "AF_NETLINK"} == set(allowed.split())


@pytest.mark.skipif(promtool.program() is None, reason=promtool.MISSING)
def test_prometheus_takes_its_configuration(tmp_path: Path) -> None:
    text = (DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8")
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    (tmp_path / "prometheus.yml").write_text(text.replace("/run/secrets/page_token", str(token)))
    shutil.copy(promtool.RULES, tmp_path / RULES_FILE)
    promtool.run("check", "config", tmp_path / "prometheus.yml")


def test_prometheus_asks_the_page_by_a_name_that_it_answers_to() -> None:
    """Whoever asks by another name is refused."""
    config = yaml.safe_load((DEPLOY / "prometheus" / "prometheus.yml").read_text("utf-8"))
    (scrape,) = config["scrape_configs"]
    (target,) = scrape["static_configs"][0]["targets"]
    services = deployments.compose()["services"]
    host, _, port = target.partition(":")
    command = services[host]["command"]
    asked = parser().parse_args(command)
    assert host in asked.name
    assert int(port) == asked.port
    assert scrape["authorization"]["credentials_file"] == str(asked.token_file)
    assert scrape["honor_labels"] is True
    secret = Path(str(asked.token_file)).name
    assert services[host]["secrets"] == [secret] == services["prometheus"]["secrets"]
