from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, distribution, packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What of ours each room may import; a name with a dot stands for that module alone.
ALLOWED = {
    "engine": {"engine"},
    "auth": {"auth"},
    "server": {"server", "auth", "engine"},
    "launcher": {
        "launcher",
        "auth",
        "engine.artifact",
        "engine.catalogue",
        "engine.errors",
        "engine.manifest",
    },
    "deploy": {"deploy", "server.main"},  # the demo runs the server in a process that dies with it
}
OURS = {*ALLOWED, "benchmarks", "tests"}
LIGHT = ("engine.artifact", "engine.catalogue", "engine.errors", "engine.manifest")
ROOMS = [room for room in ALLOWED if (ROOT / room).is_dir()]


def modules(room: str) -> dict[str, Path]:
    """Module names and files of a room."""
    found = {}
    for path in sorted((ROOT / room).rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imports(path: Path) -> Iterator[str]:
    """Every module that a file names in an import, wherever in the file."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.name} has a relative import"
            assert node.module is not None
            known = modules(node.module.split(".")[0]) if node.module.split(".")[0] in ROOMS else {}
            for alias in node.names:
                inner = f"{node.module}.{alias.name}"
                yield inner if inner in known else node.module


def with_packages(module: str) -> set[str]:
    """A module and the packages that importing it runs."""
    parts = module.split(".")
    return {".".join(parts[:count]) for count in range(1, len(parts) + 1)}


def test_the_rooms_are_there() -> None:
    """The walk below would pass on an empty tree."""
    assert {"engine", "auth", "server"} <= set(ROOMS)
    assert len(modules("engine")) > 30


@pytest.mark.parametrize("room", ROOMS)
def test_imports_point_one_way(room: str) -> None:
    """No file imports from a room above its own, or from the tests."""
    wrong = [
        f"{module} imports {name}"
        for module, path in modules(room).items()
        for name in imports(path)
        if name.split(".")[0] in OURS and not with_packages(name) & ALLOWED[room]
    ]
    assert wrong == []


def test_auth_needs_only_starlette() -> None:
    """Whoever reads the room that keeps callers out need read little else."""
    names = {name.split(".")[0] for path in modules("auth").values() for name in imports(path)}
    assert names - set(sys.stdlib_module_names) <= {"auth", "starlette"}


def test_set_up_needs_only_the_standard_library() -> None:
    """It runs before anything is installed, but for the module that runs the server."""
    files = modules("deploy")
    files.pop("deploy.owned_server", None)
    names = {name.split(".")[0] for path in files.values() for name in imports(path)}
    assert names - set(sys.stdlib_module_names) <= {"deploy"}


def test_light_modules_reach_no_numpy_in_the_source() -> None:
    """Nor any other package that is not the standard library, through whatever they import."""
    engine = modules("engine")
    seen: set[str] = set()
    waiting = {package for module in LIGHT for package in with_packages(module)}
    foreign = set()
    while waiting:
        module = waiting.pop()
        seen.add(module)
        for name in imports(engine[module]):
            if name.split(".")[0] == "engine":
                waiting |= with_packages(name) - seen
            elif name.split(".")[0] not in sys.stdlib_module_names:
                foreign.add(f"{module} imports {name}")
    assert foreign == set()


def test_light_modules_load_no_numpy() -> None:
    """The same seen from outside: a fresh process that imports them has not loaded it."""
    program = f"import sys, {', '.join(LIGHT)}; sys.exit('numpy' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=False).returncode == 0


def test_import_names_belong_to_one_distribution() -> None:
    """Where the project is installed, no other distribution provides its rooms' names."""
    try:
        name = distribution("prism-inference").metadata["Name"]
    except PackageNotFoundError:
        pytest.skip("the project is not installed in this environment")
    providers = packages_distributions()
    for room in ("auth", "engine", "server"):
        assert set(providers.get(room, [name])) == {name}
