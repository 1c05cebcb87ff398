"""The files in `deploy`, as the systems read them that they are for."""

import json
import re
import shlex
import signal
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import yaml

DEPLOY = Path(__file__).parents[1] / "deploy"
#: A process that was killed, as containers and shells report it.
KILLED = 128 + signal.SIGKILL


@attrs.frozen(kw_only=True)
class Driver:
    """How a system runs the driver of the job ``scores``.

    Attributes:
        command: ``dataflow`` and its arguments.
        environment: variables that are given to it.
        probe: what is run to see whether it is alive; exits with 0 if so.
        restarts: whether it is started again after it has ended with this status.
        stop_signal: what it gets where it is to end.
    """

    command: Sequence[str]
    environment: Mapping[str, str]
    probe: Sequence[str]
    restarts: Callable[[int], bool]
    stop_signal: str


def dockerfile() -> list[tuple[str, str]]:
    """Its instructions, each with what follows, on one line."""
    text = re.sub(r"^\s*#.*\n", "", (DEPLOY / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    return [(name, rest) for name, _, rest in (line.partition(" ") for line in lines) if name]


def image(instruction: str) -> list[str]:
    """What follows each instruction of a kind in the last stage of the image."""
    found: list[str] = []
    for name, rest in dockerfile():
        found = [] if name == "FROM" else found
        if name == instruction:
            found.append(rest)
    return found


def compose() -> dict[str, Any]:
    """The compose file."""
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def manifests(folder: str = "base") -> list[dict[str, Any]]:
    """The objects of Kubernetes in a folder, without what kustomize makes of them."""
    return [
        each
        for path in sorted((DEPLOY / "kubernetes" / folder).glob("*.yaml"))
        if path.name != "kustomization.yaml"
        for each in yaml.safe_load_all(path.read_text("utf-8"))
    ]


def unit(name: str, instance: str = "scores") -> dict[str, list[str]]:
    """The settings of a unit of systemd, with the name of the instance filled in; several of a name, in order."""
    found: dict[str, list[str]] = {}
    for line in (DEPLOY / "systemd" / name).read_text("utf-8").splitlines():
        key, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(key, []).append(value.replace("%i", instance))
    return found


def _entrypoint() -> list[str]:
    (words,) = image("ENTRYPOINT")
    found: list[str] = json.loads(words)
    return found[found.index("--") + 1 :]


def of_compose() -> Driver:
    """The service ``driver``, with the health check of the image."""
    driver = compose()["services"]["driver"]
    (check,) = image("HEALTHCHECK")
    (stop_signal,) = image("STOPSIGNAL")
    assert driver["restart"] == "unless-stopped"
    return Driver(
        command=[*_entrypoint(), *driver["command"]],
        environment=driver["environment"],
        probe=json.loads(check.partition("CMD ")[2]),
        restarts=lambda _: True,
        stop_signal=stop_signal,
    )


def of_kubernetes() -> Driver:
    """The deployment ``scores``; a deployment always restarts."""
    (found,) = [
        each
        for each in manifests()
        if (each["kind"], each["metadata"]["name"]) == ("Deployment", "scores")
    ]
    (container,) = found["spec"]["template"]["spec"]["containers"]
    (stop_signal,) = image("STOPSIGNAL")
    return Driver(
        command=[*_entrypoint(), *container["args"]],
        environment={each["name"]: each.get("value", "") for each in container["env"]},
        probe=container["livenessProbe"]["exec"]["command"],
        restarts=lambda _: True,
        stop_signal=stop_signal,
    )


def of_systemd(pipeline: str = "scores:stream") -> Driver:
    """The unit of a job, whose environment file names this pipeline."""
    settings = unit("dataflow@.service")
    environment = dict(
        pair.partition("=")[::2] for line in settings["Environment"] for pair in shlex.split(line)
    )
    (words,) = settings["ExecStart"]
    program, *arguments = shlex.split(words.replace("${DATAFLOW_PIPELINE}", pipeline))
    kept = {int(status) for status in settings["RestartPreventExitStatus"][0].split()}
    assert settings["Restart"] == ["always"]
    return Driver(
        command=[Path(program).name, *arguments],
        environment={**environment, "DATAFLOW_PIPELINE": pipeline, "DATAFLOW_JOB": "scores"},
        probe=["dataflow", "check", "scores", "--alive"],
        restarts=lambda status: status not in kept,
        stop_signal=settings["KillSignal"][0],
    )
