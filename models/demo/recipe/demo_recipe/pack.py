"""Step `pack`: what a GPU machine without network needs beside this repository, in parts that are small enough to carry
there.

Such a machine has Python with torch, numpy, scipy, tokenizers and onnxruntime. What it lacks goes into one archive, cut
into parts: the reference implementation at the pinned version, Kokoro with its voices, espeak-ng, flite and festival.
`on-gpu.sh` puts them together again.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import zipfile
from importlib.metadata import version
from pathlib import Path

from . import kokoro

PYTHON = "3.12"  # of the GPU machine
PLATFORMS = ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64")
WHEELS = ("transformers",)
# Other models.
LEFT_OUT = ("transformers/cli/", "transformers/models/")
KEPT = (
    "transformers/models/auto/",
    "transformers/models/qwen3_omni_moe/",
    "transformers/models/whisper/",
    "transformers/models/__init__",
)
DEBS = (
    *("espeak-ng", "libespeak-ng1", "espeak-ng-data", "flite", "libflite1", "libpcaudio0", "libsonic0"),
    *("festival", "libestools2.5", "festvox-kdlpc16k", "festlex-cmu", "festlex-poslex"),
)


def make(work: Path, part_mib: int) -> None:
    """Writes `pack/part-NN` of at most `part_mib` MiB and `pack/SHA256`."""
    folder = work / "pack"
    root = folder / "root"
    (root / "python").mkdir(parents=True, exist_ok=True)
    python_packages(folder / "wheels", root / "python")
    debian_packages(folder / "debs", root)
    voices(root / "kokoro")
    archive = folder / "root.tar.xz"
    print("pack: compressing", flush=True)
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(root, arcname=".")
    whole = archive.read_bytes()
    for old in folder.glob("part-*"):
        old.unlink()
    size = part_mib << 20
    parts = [whole[i : i + size] for i in range(0, len(whole), size)]
    for i, part in enumerate(parts):
        (folder / f"part-{i:02d}").write_bytes(part)
    (folder / "SHA256").write_text(f"{hashlib.sha256(whole).hexdigest()} {len(parts)}\n")
    print(
        f"pack: {len(whole) / 2**20:.1f} MiB in {len(parts)} parts of at most {part_mib} MiB, in {folder}", flush=True
    )


def wanted(name: str) -> bool:
    """True if a file of a wheel travels."""
    return any(kept in name for kept in KEPT) or not name.startswith(LEFT_OUT)


def python_packages(downloads: Path, root: Path) -> None:
    for name in WHEELS:
        platforms = [word for platform in PLATFORMS for word in ("--platform", platform)]
        command = [
            sys.executable,
            "-m",
            "pip",
            "download",
            "--quiet",
            "--disable-pip-version-check",
            "--no-deps",
            "--only-binary=:all:",
        ]
        subprocess.run(
            [*command, "--python-version", PYTHON, *platforms, "-d", downloads, f"{name}=={version(name)}"], check=True
        )
    for wheel in downloads.glob("*.whl"):
        with zipfile.ZipFile(wheel) as zipped:
            zipped.extractall(root, [name for name in zipped.namelist() if wanted(name)])


def debian_packages(downloads: Path, root: Path) -> None:
    downloads.mkdir(exist_ok=True)
    if len(list(downloads.glob("*.deb"))) < len(DEBS):
        subprocess.run(["apt-get", "download", "-qq", *DEBS], cwd=downloads, check=True)
    for deb in downloads.glob("*.deb"):
        subprocess.run(["dpkg", "-x", deb, root], check=True)


def voices(out: Path) -> None:
    """Kokoro and those of its voices that speak English."""
    if kokoro.missing():
        raise SystemExit(f"pack: {kokoro.missing()}")
    shutil.copytree(kokoro.FOLDER, out, dirs_exist_ok=True)
