"""What is installed: the same from the tree, a source archive and a wheel, and one version of it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import distribution, packages_distributions, version
from pathlib import Path
from typing import Any

import pytest

from deploy.paths import ROOT
from engine.kernels import NATIVE_LEVELS

PROJECT_FILE: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PROJECT: dict[str, Any] = PROJECT_FILE["project"]
BUILD_SYSTEM: list[str] = PROJECT_FILE["build-system"]["requires"]
PACKAGES = ("auth", "engine", "server")
BINARY = (".so", ".pyd")
BINARY_FILES = ("*.so", "*.pyd")

BUILD = "import sys, setuptools.build_meta as b; print(getattr(b, sys.argv[1])(sys.argv[2]))"

# Python 3.11.4 brought the argument, and 3.12 warns where it is missing.
SAFELY: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def build(source: Path, what: str, target: Path) -> Path:
    """Build `what` from the folder `source` the way pip does, without a network."""
    command = [sys.executable, "-c", BUILD, what, str(target)]
    result = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    return target / result.stdout.splitlines()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel made from the source archive, itself made from a copy of the tree."""
    folder = tmp_path_factory.mktemp("packaging")
    tree = folder / "tree"
    ignored = shutil.ignore_patterns(
        ".*", "build", "dist", "*.egg-info", "__pycache__", "_native.c", *BINARY_FILES
    )
    shutil.copytree(ROOT, tree, ignore=ignored)
    archive = build(tree, "build_sdist", folder)
    with tarfile.open(archive) as file:
        file.extractall(folder, **SAFELY)
    return build(folder / archive.name.removesuffix(".tar.gz"), "build_wheel", folder)


def test_wheel_is_complete(wheel: Path) -> None:
    """The wheel has every module of the packages, their data and the licence, and no other module."""
    names = zipfile.ZipFile(wheel).namelist()
    modules = {name for name in names if name.endswith(".py")}
    assert modules == {
        path.relative_to(ROOT).as_posix() for package in PACKAGES for path in (ROOT / package).rglob("*.py")
    }
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    data = (
        "catalogue.toml",
        "demo/model.gguf",
        "demo/model.toml",
        "demo/self-test-8.json",
        "demo/self-test-16.json",
    )
    assert {f"engine/{name}" for name in data} <= set(names)
    assert any(name.endswith("licenses/LICENSE") for name in names)
    native = [name for name in names if name.startswith("engine/kernels/_native.") and name.endswith(BINARY)]
    assert len(native) == bool(NATIVE_LEVELS), "the wheel's native kernels are not what this environment has"


def test_wheel_runs(wheel: Path, tmp_path: Path) -> None:
    """Unpacked elsewhere, the wheel's own modules answer from another folder."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    result = subprocess.run(
        [sys.executable, "-m", "engine.driver.main", "--capabilities"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "installed")},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(result.stdout)["runtime"]["version"] == PROJECT["version"]


def test_installed_commands() -> None:
    """Every command of the project is installed and answers `--help`."""
    for name in PROJECT["scripts"]:
        command = Path(sys.executable).with_name(name + (".exe" if os.name == "nt" else ""))
        result = subprocess.run([command, "--help"], capture_output=True, text=True, check=True)
        assert result.stdout.startswith(f"usage: {name}")


def test_names_are_ours() -> None:
    """No other installed distribution brings a package with one of our import names."""
    owners = packages_distributions()
    for package in PACKAGES:
        assert set(owners.get(package, ())) <= {PROJECT["name"]}


def test_version_in_one_place() -> None:
    """The installed version is the project file's, the changelog begins with it, and no module repeats it."""
    assert version(PROJECT["name"]) == PROJECT["version"]
    headings = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert headings[0] == PROJECT["version"]
    for package in (*PACKAGES, "deploy"):
        for path in (ROOT / package).rglob("*.py"):
            assert f'"{PROJECT["version"]}"' not in path.read_text("utf-8"), path


def test_every_dependency_is_explained() -> None:
    """docs/dependencies.md has a row for each requirement, with the floor of the project file."""
    rows = re.findall(
        r"^\| `([\w-]+)` \| ([\d.]+) \|", (ROOT / "docs" / "dependencies.md").read_text("utf-8"), re.M
    )
    extras = PROJECT["optional-dependencies"].values()
    required = {*BUILD_SYSTEM, *PROJECT["dependencies"], *(one for extra in extras for one in extra)}
    assert {f"{name}>={floor}" for name, floor in rows} == required


def test_imports_are_declared() -> None:
    """What our modules import from outside is declared, and what is declared is used; the build is apart."""
    declared = {requirement.split(">=")[0] for requirement in PROJECT["dependencies"]}
    owners = packages_distributions()
    imported = set()
    for package in PACKAGES:
        for path in {*(ROOT / package).rglob("*.py")} - {ROOT / "engine" / "kernels" / "_build.py"}:
            names = re.findall(r"^\s*(?:from|import) (\w+)", path.read_text("utf-8"), re.MULTILINE)
            imported |= {owner for name in names for owner in owners.get(name, ())}
    assert imported - {PROJECT["name"]} == declared


def test_distribution_metadata() -> None:
    """The installed project says which Python it needs and under which licence it stands."""
    metadata = distribution(PROJECT["name"]).metadata
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "Apache-2.0"
