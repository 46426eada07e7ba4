"""The native kernels under every compiler at hand, with the flags of the package.

`tests/native` is a C program without Python that compares all levels of a processor by bytes. Each
toolchain builds it together with the kernels; what can be run here, natively or emulated, must find no
difference. A processor with AVX-512 and VNNI but without AMX has the instructions of that level emulated by
the program itself. `PRISM_REQUIRE_TOOLCHAINS`, names with commas, makes a missing toolchain a failure.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from engine.kernels import BUILT_LEVELS, NATIVE_LEVELS
from engine.kernels._build import GNU_FLAGS

ROOT = Path(__file__).resolve().parents[2]
KERNELS = ROOT / "engine" / "kernels" / "native"
SOURCES = sorted([*KERNELS.glob("*.c"), *(ROOT / "tests" / "native").glob("*.c")])
WARNINGS = ("-Wall", "-Wextra", "-Wpedantic", "-Wvla", "-Werror")
COMPARED = NATIVE_LEVELS + (("amx",) if "amx" in BUILT_LEVELS and "avx512-vnni" in NATIVE_LEVELS else ())
REQUIRED = frozenset(filter(None, os.environ.get("PRISM_REQUIRE_TOOLCHAINS", "").split(",")))


@dataclass(frozen=True)
class Toolchain:
    """A compiler; how to run its programs, if at all; the levels that must be among those compared."""

    requirement: str
    compiler: str
    flags: tuple[str, ...] = ()
    runner: tuple[str, ...] | None = ()
    levels: tuple[str, ...] = COMPARED

    def missing(self) -> str | None:
        """What this machine lacks, if anything."""
        for tool in (self.compiler, *(self.runner or ())):
            if shutil.which(tool) is None:
                return f"{tool} is not installed"
        return None


CLANG_FOR_ARM = ("-O1", "--target=aarch64-linux-gnu", "-I/usr/aarch64-linux-gnu/include")
SANITIZERS = (
    "-O1",
    "-g1",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
    "-fno-sanitize-address-use-after-scope",  # which doubles the time to compile
)
TOOLCHAINS = {
    "gcc": Toolchain("gcc", "gcc"),
    "gcc-sanitizers": Toolchain("gcc", "gcc", SANITIZERS),
    "clang": Toolchain("clang", "clang"),
    "aarch64-gcc": Toolchain("aarch64", "aarch64-linux-gnu-gcc", ("-static",), ("qemu-aarch64",), ("neon",)),
    "aarch64-clang": Toolchain("aarch64", "clang", CLANG_FOR_ARM, None),
    "windows-gcc": Toolchain("mingw", "x86_64-w64-mingw32-gcc", ("-O1",), None),
}


def trial(toolchain: Toolchain, folder: Path) -> str | None:
    """Why the toolchain cannot be used, or None: it must build, and where it is meant to, run a program."""
    if missing := toolchain.missing():
        return missing
    source, program = folder / "trial.c", folder / "trial.exe"
    source.write_text("#include <math.h>\nint main(int n, char **a) { (void)a; return (int)sin(n - 1.0); }\n")
    built = link(toolchain, [source], program)
    if built.returncode:
        return f"{toolchain.compiler} cannot build a program: {built.stderr}"
    if toolchain.runner is not None and subprocess.run([*toolchain.runner, program], check=False).returncode:
        return f"a program of {toolchain.compiler} does not run"
    return None


def link(toolchain: Toolchain, inputs: list[Path], program: Path) -> subprocess.CompletedProcess[str]:
    """Link objects, or build sources, to a program."""
    command: list[str | Path] = [toolchain.compiler, *toolchain.flags, *inputs, "-o", program]
    command += ["-pthread", "-lm"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def build(toolchain: Toolchain, folder: Path) -> Path:
    """The program that compares all levels."""

    def compiled(source: Path) -> Path:
        target = folder / f"{source.stem}.o"
        flags = [*GNU_FLAGS, *WARNINGS, *toolchain.flags, f"-I{KERNELS}"]
        command: list[str | Path] = [toolchain.compiler, *flags, "-c", source, "-o", target]
        result = subprocess.run(command, capture_output=True, text=True, check=False)
        assert result.returncode == 0, result.stderr
        return target

    with ThreadPoolExecutor(os.cpu_count()) as pool:
        objects = list(pool.map(compiled, SOURCES))
    program = folder / "compare_levels.exe"
    linked = link(toolchain, objects, program)
    assert linked.returncode == 0, linked.stderr
    return program


@pytest.fixture(scope="module")
def digests() -> dict[str, str]:
    """Digests of the portable level's results by toolchain, of those that have run."""
    return {}


@pytest.mark.parametrize("name", TOOLCHAINS)
def test_levels_give_the_same_bits(name: str, tmp_path: Path, digests: dict[str, str]) -> None:
    """No warning; no difference between levels, ways of one level, compilers, or from the definitions."""
    toolchain = TOOLCHAINS[name]
    if reason := trial(toolchain, tmp_path):
        if toolchain.requirement in REQUIRED:
            pytest.fail(f"required: {reason}")
        pytest.skip(reason)
    program = build(toolchain, tmp_path)
    if toolchain.runner is None:
        return
    result = subprocess.run([*toolchain.runner, program], capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout + result.stderr
    levels = re.findall(r"^[1-9]\d* comparisons, level (\S+)$", result.stdout, re.MULTILINE)
    assert set(levels) >= {"portable", *toolchain.levels}
    digests[name] = result.stdout.rpartition("digest ")[2].strip()
    assert len(set(digests.values())) == 1, digests


def test_required_toolchains_are_known() -> None:
    """A misspelt requirement would require nothing."""
    assert {toolchain.requirement for toolchain in TOOLCHAINS.values()} >= REQUIRED
