"""Files of a model hub, for real-models.py: asked first, within seconds, and left alone where none answers.

Needs huggingface_hub, which scripts/requirements-real.txt has; without it, or without a hub, the packages serve.
HF_ENDPOINT names another hub, HF_HUB_OFFLINE=1 asks none.
"""

import hashlib
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

# A machine without a way to the hub waits no longer than this.
ANSWERS_WITHIN_S = 4.0
SHA256 = re.compile(r"[0-9a-f]{64}")

os.environ.setdefault("HF_HUB_DOWNLOAD_TIMEOUT", "30")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
os.environ.setdefault("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
os.environ.setdefault("HF_HUB_DISABLE_XET", "1")


class Hub:
    """The hub of one run; `say` tells why it serves nothing."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say, self._answers = say, True

    def fetch(self, source: dict, folder: Path) -> bool:
        """Fetches all files of `source` (`repository`, `revision`, `files`: `path`, and `sha256` if it is known) into
        `folder`; false if the hub does not answer, or has another file than the table.

        Every file is asked for before the first is fetched, so that nothing large is fetched in vain.
        """
        if not self._answers or os.environ.get("HF_HUB_OFFLINE") == "1":
            return False
        try:
            import huggingface_hub as hub
        except ImportError:
            self._answers = False
            return False
        repository, revision, endpoint = source["repository"], source.get("revision"), os.environ.get("HF_ENDPOINT")
        sums = {}
        for file in source["files"]:
            url = hub.hf_hub_url(repository, file["path"], revision=revision, endpoint=endpoint)
            try:
                found = hub.get_hf_file_metadata(url, timeout=ANSWERS_WITHIN_S, endpoint=endpoint)
            except hub.errors.HfHubHTTPError as error:
                self._say(f"{repository} has no {file['path']} for us ({type(error).__name__}): the packages serve")
                return False
            except Exception as error:  # noqa: BLE001 (whatever its connection raises means the same: no hub)
                self._say(f"no model hub answers ({type(error).__name__}): the packages serve")
                self._answers = False
                return False
            # Large files are named by their checksum.
            named = found.etag if found.etag and SHA256.fullmatch(found.etag) else None
            if named and file.get("sha256", named) != named:
                self._say(f"{repository} has another {file['path']} than the table: the packages serve")
                return False
            sums[file["path"]] = file.get("sha256", named)
        scratch = folder / "hub"
        for path, due in sums.items():
            self._say(f"{path} of {repository}")
            try:
                options = {"revision": revision, "endpoint": endpoint}
                got = Path(hub.hf_hub_download(repository, path, local_dir=scratch, **options))
            except Exception as error:  # noqa: BLE001 (as above)
                self._say(f"{path} could not be fetched from {repository} ({type(error).__name__}): the packages serve")
                return False
            if due and checksum(got) != due:
                self._say(f"{repository} sent another {path} than the table: the packages serve")
                shutil.rmtree(scratch)
                return False
        for path in sums:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (scratch / path).replace(folder / path)
        shutil.rmtree(scratch)
        return True


def checksum(path: Path) -> str:
    """SHA-256 of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
