"""Every module has a layer: import-linter refuses one that a contract does not name, where the contract says so."""

import configparser
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def layered() -> dict[str, configparser.SectionProxy]:
    """The contracts of layers inside a package, by the package."""
    contracts = configparser.ConfigParser()
    contracts.read(ROOT / "setup.cfg", encoding="utf-8")
    return {
        container: section
        for section in map(contracts.__getitem__, contracts.sections())
        if section.get("type") == "layers"
        for container in section.get("containers", "").split()
    }


LAYERED = layered()


def test_the_sdk_the_engines_and_both_cores_have_layers() -> None:
    assert LAYERED.keys() >= {"dataflow", "runners", "runners.core", "runners.millwheel"}


@pytest.mark.parametrize("package", LAYERED)
def test_a_module_that_no_layer_names_is_refused(package: str) -> None:
    section = LAYERED[package]

    assert section.getboolean("exhaustive", fallback=False), f"{package}: exhaustive = True"
    assert "exhaustive_ignores" not in section, f"{package}: a module is left out"


@pytest.mark.parametrize("package", LAYERED)
def test_every_layer_is_there(package: str) -> None:
    assert "(" not in LAYERED[package]["layers"], f"{package}: a layer in brackets may be missing"
