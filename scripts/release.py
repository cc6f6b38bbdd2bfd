#!/usr/bin/env python3
"""Writes what a release page holds: the archive, a Debian package, an OCI image, a bill of materials and SHA256SUMS.

Usage: release.py REPARTEE REPARTEE_LOAD FOLDER    The two binaries; the same ones give the same bytes.

The image needs no container engine: it is the binary, the libraries that it links, and an account. `podman load`,
`docker load` and `skopeo copy oci-archive:FILE ...` take it. dpkg-deb (Debian's package dpkg) writes the package.
"""

import gzip
import hashlib
import io
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EPOCH = int(os.environ.get("SOURCE_DATE_EPOCH", "0"))
# Names of this machine's kind: of Debian, and of OCI.
KINDS = {"x86_64": ("amd64", "amd64"), "aarch64": ("arm64", "arm64")}
DOCUMENTS = ["README.md", "LICENSE", "CHANGELOG.md", "SECURITY.md", "repartee.example.toml"]
ACCOUNT = 999
MAINTAINER = "Repartee's maintainers <maintainers@localhost>"
POSTINST = """#!/bin/sh
set -e
if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
"""
PRERM = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then systemctl stop repartee.service || true; fi
"""


def output(*command: str | Path) -> bytes:
    return subprocess.run([str(part) for part in command], cwd=ROOT, stdout=subprocess.PIPE, check=True).stdout


def libraries(binary: Path) -> list[Path]:
    """Paths of the shared libraries of a binary, its loader included; none for a static binary or a script."""
    listed = subprocess.run(["ldd", binary], capture_output=True, text=True, check=False)
    if listed.returncode:
        return []
    return [Path(path) for path in re.findall(r"(/\S+) \(0x", listed.stdout)]


def place(source: Path | bytes, path: Path, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(source if isinstance(source, bytes) else source.read_bytes())
    path.chmod(mode)


def packed(folder: Path) -> bytes:
    """Tar archive of a folder, with sorted names, no owners but root and no dates."""
    buffer = io.BytesIO()

    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = EPOCH
        entry.mode = 0o755 if entry.isdir() else entry.mode
        return entry

    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            archive.add(path, arcname=str(path.relative_to(folder)), recursive=False, filter=plain)
    return buffer.getvalue()


def debian(stage: Path, binaries: tuple[Path, Path], version: str, out: Path) -> Path:
    """Writes the Debian package; returns its path."""
    architecture = KINDS[platform.machine()][0]
    root = stage / "deb"
    for binary in binaries:
        place(binary, root / "usr/bin" / binary.name, 0o755)
    unit = (ROOT / "deploy/repartee.service").read_text().replace("/usr/local/", "/usr/")
    # The head of the file in the repository says where to put things, which the package has done.
    place(unit[unit.index("[Unit]") :].encode(), root / "usr/lib/systemd/system/repartee.service")
    place(ROOT / "repartee.example.toml", root / "etc/repartee/repartee.toml")
    documents = root / "usr/share/doc/repartee"
    for file in [*DOCUMENTS, *(str(page.relative_to(ROOT)) for page in (ROOT / "docs").glob("*.md"))]:
        place(ROOT / file, documents / Path(file).name)
    place(output(ROOT / "scripts/third-party"), documents / "copyright")
    place(gzip.compress(output(binaries[0], "man"), mtime=0), root / "usr/share/man/man1/repartee.1.gz")
    place(output(binaries[0], "completions", "bash"), root / "usr/share/bash-completion/completions/repartee")
    size = sum(path.stat().st_size for path in root.rglob("*") if path.is_file()) // 1024
    libc = ".".join(platform.libc_ver()[1].split(".")[:2]) or "2.36"
    control = (
        f"Package: repartee\nVersion: {version}\nArchitecture: {architecture}\nMaintainer: {MAINTAINER}\n"
        f"Installed-Size: {size}\nDepends: libc6 (>= {libc}), libgcc-s1\nSection: net\nPriority: optional\n"
        "Description: realtime voice gateway with its speech engine in the same process\n"
        " Serves the OpenAI Realtime API over WebRTC and websockets, with a demo model inside.\n"
    )
    place(control.encode(), root / "DEBIAN/control")
    place(b"/etc/repartee/repartee.toml\n", root / "DEBIAN/conffiles")
    place(POSTINST.encode(), root / "DEBIAN/postinst", 0o755)
    place(PRERM.encode(), root / "DEBIAN/prerm", 0o755)
    for path in [root, *root.rglob("*")]:
        if path.is_dir():
            path.chmod(0o755)
    package = out / f"repartee_{version}_{architecture}.deb"
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(EPOCH)}
    build = ["dpkg-deb", "--root-owner-group", "-Zgzip", "--build", str(root), str(package)]
    subprocess.run(build, check=True, env=environment, stdout=subprocess.DEVNULL)
    return package


def image(stage: Path, binary: Path, version: str, out: Path) -> Path:
    """Writes an OCI image as an archive; returns its path."""
    root = stage / "image"
    place(binary, root / "usr/local/bin/repartee", 0o755)
    for library in libraries(binary):
        place(library, root / str(library).lstrip("/"), 0o755)
    place(f"repartee:x:{ACCOUNT}:{ACCOUNT}::/nonexistent:/usr/sbin/nologin\n".encode(), root / "etc/passwd")
    place(f"repartee:x:{ACCOUNT}:\n".encode(), root / "etc/group")
    place(output(ROOT / "scripts/third-party"), root / "usr/local/share/doc/repartee/THIRD-PARTY")
    place(ROOT / "LICENSE", root / "usr/local/share/doc/repartee/LICENSE")
    certificates = Path("/etc/ssl/certs/ca-certificates.crt")
    if certificates.exists():
        place(certificates, root / str(certificates).lstrip("/"))
    (root / "tmp").mkdir()
    layer = packed(root)
    compressed = gzip.compress(layer, mtime=0)
    layout = stage / "layout"

    def blob(content: bytes, kind: str) -> dict:
        digest = hashlib.sha256(content).hexdigest()
        place(content, layout / "blobs/sha256" / digest)
        return {"mediaType": kind, "digest": f"sha256:{digest}", "size": len(content)}

    oci = "application/vnd.oci.image"
    config = {
        "architecture": KINDS[platform.machine()][1],
        "os": "linux",
        "config": {
            "User": str(ACCOUNT),
            "Env": ["REPARTEE_LISTEN=0.0.0.0:8080", "REPARTEE_WEBRTC_UDP=0.0.0.0:7000"],
            "ExposedPorts": {"8080/tcp": {}, "7000/udp": {}},
            "Entrypoint": ["/usr/local/bin/repartee"],
            "Cmd": ["serve"],
            "Labels": {"org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0"},
        },
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
    }
    manifest = {
        "schemaVersion": 2,
        "mediaType": f"{oci}.manifest.v1+json",
        "config": blob(json.dumps(config).encode(), f"{oci}.config.v1+json"),
        "layers": [blob(compressed, f"{oci}.layer.v1.tar+gzip")],
    }
    named = blob(json.dumps(manifest).encode(), f"{oci}.manifest.v1+json")
    named["annotations"] = {"org.opencontainers.image.ref.name": f"repartee:{version}"}
    place(json.dumps({"schemaVersion": 2, "manifests": [named]}).encode(), layout / "index.json")
    place(b'{"imageLayoutVersion": "1.0.0"}', layout / "oci-layout")
    path = out / f"repartee-{version}-linux-{platform.machine()}.oci.tar"
    path.write_bytes(packed(layout))
    return path


def materials(version: str, out: Path) -> Path:
    """Writes the crates that the binary links as a bill of materials in CycloneDX 1.5; returns its path."""
    metadata = json.loads(output("cargo", "metadata", "--locked", "--format-version=1"))
    packages = {(package["name"], package["version"]): package for package in metadata["packages"]}
    tree = output(
        *("cargo", "tree", "--locked", "--package=repartee", "--edges=normal,no-proc-macro", "--prefix=none"),
        "--format={p}",
    ).decode()
    linked = sorted({tuple(line.split(" v", 1)) for line in tree.splitlines() if line and "(" not in line})
    components: list[dict] = []
    for name, number in linked:
        package = packages[name, number]
        component: dict = {"type": "library", "name": name, "version": number, "purl": f"pkg:cargo/{name}@{number}"}
        if package["license"]:
            component["licenses"] = [{"expression": package["license"].replace("/", " OR ")}]
        components.append(component)
    bill = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": "repartee", "version": version}},
        "components": components,
    }
    path = out / f"repartee-{version}.cdx.json"
    path.write_text(json.dumps(bill, indent=1) + "\n")
    return path


def main() -> None:
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    binaries = (Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve())
    out = Path(sys.argv[3]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    if platform.machine() not in KINDS:
        sys.exit(f"release: no package for {platform.machine()}: only {', '.join(KINDS)}")
    if not shutil.which("dpkg-deb"):
        sys.exit("release: there is no dpkg-deb: apt-get install dpkg")
    version = output(binaries[0], "--version").decode().split()[1]
    archive = Path(output(ROOT / "scripts/archive.sh", binaries[0], out, binaries[1]).decode().strip())
    with tempfile.TemporaryDirectory() as folder:
        stage = Path(folder)
        files = [archive, debian(stage, binaries, version, out), image(stage, binaries[0], version, out)]
    files.append(materials(version, out))
    sums = "".join(f"{hashlib.sha256(file.read_bytes()).hexdigest()}  {file.name}\n" for file in files)
    (out / "SHA256SUMS").write_text(sums)
    for file in files:
        print(f"{file.stat().st_size / 1e6:8.1f} MB  {file}")


if __name__ == "__main__":
    main()
