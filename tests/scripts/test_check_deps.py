"""scripts/check-deps on packages and rules of its own; needs no cargo."""

import contextlib
import io
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]
ALLOW = ["Apache-2.0", "MIT"]
RULES = """
[graph]
targets = ["x86_64-unknown-linux-gnu"]
[licenses]
allow = ["Apache-2.0", "MIT"]
{exceptions}
[sources]
unknown-registry = "deny"
unknown-git = "deny"
[bans]
multiple-versions = "deny"
skip = []
"""
# Licences that neither of ALLOW covers: a copyleft per file, one of data, and one of an older kind.
EXCEPTIONS = """
# Files of ours are not under it.
[[licenses.exceptions]]
crate = "decoder"
allow = ["MPL-2.0"]

# Certificates, no code.
[[licenses.exceptions]]
crate = "roots@1.2.3"
allow = ["CDLA-Permissive-2.0"]

# No conditions.
[[licenses.exceptions]]
crate = "words"
allow = ["WTFPL"]
"""


def script() -> ModuleType:
    """Loads the script, which has no suffix, as a module."""
    loader = SourceFileLoader("check_deps", str(ROOT / "scripts/check-deps"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


check_deps = script()


def package(name: str, license_: str | None, version: str = "1.0.0") -> dict[str, str | None]:
    return {"name": name, "version": version, "license": license_}


PACKAGES = [
    package("plain", "MIT OR Apache-2.0"),
    package("decoder", "MPL-2.0"),
    package("roots", "CDLA-Permissive-2.0", "1.2.3"),
    package("words", "WTFPL AND MIT"),
]


def exception(crate: str, *allow: str) -> dict[str, str | list[str]]:
    return {"crate": crate, "allow": list(allow)}


class Rules(unittest.TestCase):
    def refused(self, exceptions: str, reason: str) -> None:
        with self.assertRaises(SystemExit) as refusal, contextlib.redirect_stderr(io.StringIO()):
            check_deps.rules(RULES.format(exceptions=exceptions))
        self.assertIn(reason, str(refusal.exception))

    def test_own_rules_are_understood(self) -> None:
        self.assertIn("MIT", check_deps.rules((ROOT / "deny.toml").read_text())["licenses"]["allow"])

    def test_exceptions_are_read(self) -> None:
        self.assertEqual(check_deps.rules(RULES.format(exceptions=""))["licenses"]["exceptions"], [])
        read = check_deps.rules(RULES.format(exceptions=EXCEPTIONS))["licenses"]["exceptions"]
        self.assertEqual(
            read,
            [
                exception("decoder", "MPL-2.0"),
                exception("roots@1.2.3", "CDLA-Permissive-2.0"),
                exception("words", "WTFPL"),
            ],
        )

    def test_unknown_rules_are_refused(self) -> None:
        self.refused("confidence-threshold = 0.5", "licenses.confidence-threshold")

    def test_exceptions_need_a_reason(self) -> None:
        table = '[[licenses.exceptions]]\ncrate = "decoder"\nallow = ["MPL-2.0"]'
        self.refused(table, "no reason")
        self.refused(f"# A reason.\n\n{table}", "no reason")
        self.refused(f"#\n{table}", "no reason")
        self.refused('exceptions = [{ crate = "decoder", allow = ["MPL-2.0"] }]', "as a table")

    def test_exceptions_need_exact_fields(self) -> None:
        head = "# A reason.\n[[licenses.exceptions]]\n"
        self.refused(f'{head}crate = "decoder"', "needs a `crate`")
        self.refused(f'{head}allow = ["MPL-2.0"]', "needs a `crate`")
        self.refused(f'{head}crate = "decoder"\nallow = []', "needs a `crate`")
        # cargo-deny refuses it too.
        self.refused(f'{head}crate = "decoder"\nallow = ["MPL-2.0"]\nreason = "a reason"', "unknown fields: reason")


class Licenses(unittest.TestCase):
    def exceptions(self) -> list[dict]:
        return check_deps.rules(RULES.format(exceptions=EXCEPTIONS))["licenses"]["exceptions"]

    def test_exceptions_allow_their_crates(self) -> None:
        self.assertEqual(check_deps.check_licenses(PACKAGES, ALLOW, self.exceptions()), [])
        self.assertEqual(check_deps.check_exceptions(PACKAGES, ALLOW, self.exceptions()), [])

    def test_licences_without_exception_are_violations(self) -> None:
        wrong = check_deps.check_licenses(PACKAGES, ALLOW, [])
        self.assertEqual([line.split()[0] for line in wrong], ["decoder", "roots", "words"])

    def test_exceptions_allow_no_other_crate(self) -> None:
        others = [package("other", "MPL-2.0"), package("roots", "CDLA-Permissive-2.0", "1.2.4")]
        wrong = check_deps.check_licenses(others, ALLOW, self.exceptions())
        self.assertEqual([line.split()[0] for line in wrong], ["other", "roots"])

    def test_unknown_crates_are_violations(self) -> None:
        (wrong,) = check_deps.check_exceptions(PACKAGES, ALLOW, [exception("decoders", "MPL-2.0")])
        self.assertIn("decoders is in licenses.exceptions, but", wrong)
        (wrong,) = check_deps.check_exceptions(PACKAGES, ALLOW, [exception("decoder@2.0.0", "MPL-2.0")])
        self.assertIn("decoder@2.0.0", wrong)

    def test_unneeded_exceptions_are_violations(self) -> None:
        for unneeded in (exception("plain", "MPL-2.0"), exception("decoder", "MPL-2.0", "WTFPL")):
            (wrong,) = check_deps.check_exceptions(PACKAGES, ALLOW, [unneeded])
            self.assertIn("needs no exception", wrong)

    def test_invalid_licences_are_violations_once(self) -> None:
        broken = [package("decoder", "MPL-2.0 AND"), package("words", None)]
        exceptions = [exception("decoder", "MPL-2.0"), exception("words", "WTFPL")]
        self.assertEqual(len(check_deps.check_licenses(broken, ALLOW, exceptions)), 2)
        self.assertEqual(check_deps.check_exceptions(broken, ALLOW, exceptions), [])

    def test_expressions_are_read_as_spdx(self) -> None:
        for expression, satisfied in (
            ("MIT/Apache-2.0", True),
            ("MPL-2.0 OR MIT", True),
            ("MPL-2.0 AND MIT", False),
            ("(MPL-2.0 OR MIT) AND Apache-2.0", True),
            ("Apache-2.0 WITH LLVM-exception", False),
        ):
            self.assertEqual(check_deps.allowed(expression, set(ALLOW)), satisfied, expression)


class Others(unittest.TestCase):
    def test_duplicates_are_skipped_by_version(self) -> None:
        twice = [package("a", "MIT", "1.0.0"), package("a", "MIT", "2.0.0"), package("b", "MIT")]
        self.assertEqual(len(check_deps.check_duplicates(twice, [])), 1)
        self.assertEqual(check_deps.check_duplicates(twice, [{"crate": "a@1.0.0"}]), [])
        (wrong,) = check_deps.check_duplicates(twice, [{"crate": "a@1.0.0"}, {"crate": "b@1.0.0"}])
        self.assertIn("b@1.0.0", wrong)


if __name__ == "__main__":
    unittest.main()
