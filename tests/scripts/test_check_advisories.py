"""scripts/check-advisories on crates and advisories of its own; needs no cargo and no network."""

import datetime
import json
import subprocess
import tempfile
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
LOCK = """
[[package]]
name = "decoder"
version = "1.2.3"
source = "registry+somewhere"

[[package]]
name = "decoder"
version = "0.9.1"
source = "registry+somewhere"

[[package]]
name = "ours"
version = "0.1.0"
"""
ADVISORY = """```toml
[advisory]
id = "RUSTSEC-2026-9999"
package = "decoder"
date = "2026-01-02"
{more}
[versions]
patched = [">= 1.2.4", "^0.9.2"]
unaffected = ["< 0.9.0"]
```

# The decoder writes beyond its buffer

More.
"""


def script() -> ModuleType:
    """Loads the script, which has no suffix, as a module."""
    loader = SourceFileLoader("check_advisories", str(ROOT / "scripts/check-advisories"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


check_advisories = script()


def known(*crates: str, more: str = "") -> dict:
    advisory = check_advisories.read_advisory(ADVISORY.format(more=more))
    return {"crates": list(crates), "advisories": [advisory] if advisory else []}


class Ranges(unittest.TestCase):
    def test_ranges_are_those_of_semver(self) -> None:
        for text, inside, outside in (
            (">= 1.2.3", "1.2.3 1.2.4 2.0.0", "1.2.2 1.2.4-rc.1"),
            (">=0.3.20", "0.3.20", "0.3.19"),
            (">= 0", "0.0.0 9.9.9", ""),
            ("> 1.2", "1.3.0", "1.2.9"),
            ("<= 0.1.37", "0.1.37 0.1.0", "0.1.38"),
            ("<= 1.2", "1.2.9", "1.3.0"),
            ("< 0.23", "0.22.9", "0.23.0 0.22.9-rc.1"),
            ("< 0.10.0, >= 0.9.18", "0.9.18 0.9.99", "0.9.17 0.10.0"),
            ("^0.20.2", "0.20.2 0.20.9", "0.20.1 0.21.0 1.0.0"),
            ("^ 0.3.1", "0.3.1", "0.4.0"),
            ("^1.2.3", "1.9.0", "2.0.0 1.2.2"),
            ("^0.0.3", "0.0.3", "0.0.4"),
            ("^0.0", "0.0.9", "0.1.0"),
            ("^0", "0.9.0", "1.0.0"),
            ("0.13.10", "0.13.10 0.13.11", "0.14.0 0.13.9"),
            ("=0.2.1", "0.2.1 0.2.1+build", "0.2.2"),
            ("=0.2", "0.2.9", "0.3.0"),
            ("1.2.*", "1.2.0 1.2.9", "1.3.0"),
            ("*", "0.0.0 7.7.7", ""),
            ("~1.2.3", "1.2.9", "1.3.0 1.2.2"),
            ("~1", "1.9.9", "2.0.0"),
            (">= 0.104.0-alpha.6", "0.104.0-alpha.6 0.104.0-alpha.10 0.104.0", "0.104.0-alpha.5 0.105.0-alpha.7"),
        ):
            for version in inside.split():
                self.assertTrue(check_advisories.within(check_advisories.Version.parse(version), text), (version, text))
            for version in outside.split():
                self.assertFalse(
                    check_advisories.within(check_advisories.Version.parse(version), text), (version, text)
                )

    def test_other_texts_are_no_ranges(self) -> None:
        for text in ("", "newer", ">= 1.2.3.4", "=> 1"):
            with self.assertRaises(ValueError):
                check_advisories.within(check_advisories.Version.parse("1.2.3"), text)


class Advisories(unittest.TestCase):
    versions = check_advisories.locked(LOCK)

    def test_planted_vulnerable_versions_are_found(self) -> None:
        self.assertEqual(self.versions, {"decoder": {"1.2.3", "0.9.1"}})
        first, second = check_advisories.check(self.versions, known("decoder"), {})
        self.assertIn("decoder 0.9.1 is vulnerable: RUSTSEC-2026-9999, The decoder writes beyond its buffer", first)
        self.assertIn("decoder 1.2.3", second)
        self.assertIn(">= 1.2.4", second)

    def test_fixed_and_older_versions_pass(self) -> None:
        for version in ("1.2.4", "2.0.0", "0.9.2", "0.8.9"):
            self.assertEqual(check_advisories.check({"decoder": {version}}, known("decoder"), {}), [], version)

    def test_ignored_advisories_need_a_case(self) -> None:
        ignored = {"RUSTSEC-2026-9999": "a reason"}
        self.assertEqual(check_advisories.check(self.versions, known("decoder"), ignored), [])
        (wrong,) = check_advisories.check({"decoder": {"1.2.4"}}, known("decoder"), ignored)
        self.assertIn("applies to nothing", wrong)

    def test_ignored_advisories_need_a_reason(self) -> None:
        entry = {"id": "RUSTSEC-2026-9999", "reason": "a reason"}
        self.assertEqual(check_advisories.ignores({"advisories": {"ignore": [entry]}}), {entry["id"]: entry["reason"]})
        for bad in ("RUSTSEC-2026-9999", {"id": "RUSTSEC-2026-9999"}, entry | {"reason": ""}):
            with self.assertRaises(SystemExit):
                check_advisories.ignores({"advisories": {"ignore": [bad]}})

    def test_crates_that_the_file_does_not_know_fail(self) -> None:
        (wrong,) = check_advisories.check({"new": {"1.0.0"}}, known("decoder"), {})
        self.assertIn("new is not in scripts/advisories.json", wrong)

    def test_withdrawn_and_foreign_advisories_do_not_apply(self) -> None:
        self.assertEqual(known("decoder", more='withdrawn = "2026-02-03"\n')["advisories"], [])
        foreign = known("decoder", more='informational = "unsound"\n[affected]\nos = ["windows"]\n')
        self.assertEqual(check_advisories.check(self.versions, foreign, {}), [])
        local = known("decoder", more='informational = "unsound"\n[affected]\nos = ["linux", "macos"]\n')
        self.assertIn("is unsound", check_advisories.check(self.versions, local, {})[0])


class Files(unittest.TestCase):
    def test_the_file_is_made_from_a_database(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            root = Path(folder)
            for crate in ("decoder", "other"):
                (root / "crates" / crate).mkdir(parents=True)
                (root / "crates" / crate / "RUSTSEC-2026-9999.md").write_text(ADVISORY.format(more=""))
            git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@example"]
            for command in (["init", "--quiet"], ["add", "."], ["commit", "--quiet", "--message", "x"]):
                subprocess.run([*git, *command], check=True)
            made = check_advisories.collect(root, {"decoder", "clean"})
        self.assertEqual([advisory["id"] for advisory in made["advisories"]], ["RUSTSEC-2026-9999"])
        self.assertEqual((made["crates"], len(made["revision"])), (["clean", "decoder"], 40))
        self.assertEqual(json.loads(check_advisories.written(made)), made)

    def test_the_committed_file_is_small_and_whole(self) -> None:
        text = check_advisories.FILE.read_text()
        committed = json.loads(text)
        self.assertLess(len(text.encode()), check_advisories.MAX_BYTES)
        self.assertEqual(len(committed["revision"]), 40)
        self.assertGreater(len(committed["advisories"]), 50)

    def test_age_counts_from_the_revision(self) -> None:
        self.assertEqual(check_advisories.age({"date": "2026-08-21"}, datetime.date(2026, 10, 20)), 60)


if __name__ == "__main__":
    unittest.main()
