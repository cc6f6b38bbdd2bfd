"""scripts/arm-counts on counts and pages of its own; needs no emulator."""

import contextlib
import io
import subprocess
import sys
import unittest
from importlib.machinery import SourceFileLoader
from importlib.util import module_from_spec, spec_from_loader
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parents[2]


def script() -> ModuleType:
    """Loads the script, which has no suffix, as a module."""
    loader = SourceFileLoader("arm_counts", str(ROOT / "scripts/arm-counts"))
    spec = spec_from_loader(loader.name, loader)
    assert spec is not None
    module = module_from_spec(spec)
    loader.exec_module(module)
    return module


arm_counts = script()
MULTIPLIES = arm_counts.SIZE[0] * arm_counts.SIZE[1]
# Two instructions a multiply-add, one from neon on.
COUNTS = {
    (number, rows, level): MULTIPLIES * rows * (2 if level == "baseline" else 1)
    for number in arm_counts.FORMATS
    for rows in arm_counts.ROWS
    for level in arm_counts.LEVELS
}


def run(log: str, printed: str, status: int = 0) -> "subprocess.Popen[bytes]":
    """Starts a program that writes what an emulator would."""
    code = f"import sys; sys.stderr.write({log!r}); print({printed!r}); sys.exit({status})"
    return subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE)


class Log(unittest.TestCase):
    def counted(self, log: str, printed: str, status: int = 0) -> int:
        with run(log, printed, status) as process:
            return arm_counts.logged(process, ("int8", 1, "neon"))

    def test_each_block_is_counted(self) -> None:
        log = "Trace 0: 0x1 [a/b/c/d] \nStopped execution of TB chain\nTrace 1: 0x2 [a/b/c/d] main\n"
        self.assertEqual(self.counted(log, "neon: 256 x 512"), 2)

    def test_other_levels_are_refused(self) -> None:
        with self.assertRaises(SystemExit):
            self.counted("Trace 0: 0x1\n", "neon+dotprod: 256 x 512")

    def test_failures_are_refused(self) -> None:
        with self.assertRaises(SystemExit):
            self.counted("Trace 0: 0x1\n", "neon: 256 x 512", 1)


class Tables(unittest.TestCase):
    def test_the_fewest_instructions_are_shown(self) -> None:
        lines = arm_counts.counts_table(COUNTS).splitlines()
        self.assertEqual(lines[2], "| bf16, 1 row | 262,144 | 131,072 | 131,072 | 131,072 | 1.00 |")
        self.assertEqual(len(lines), 2 + len(arm_counts.FORMATS) * len(arm_counts.ROWS))

    def test_rooflines_follow_from_memory_and_counts(self) -> None:
        pi = arm_counts.roofline_table(COUNTS).splitlines()[2]
        # 17.1 GB/s by 3 GB; 4 cores by 2.4 GHz by 2 instructions by 1.5 billion multiply-adds.
        self.assertIn("| 5.7 / 13 / 13 | 11 / 13 / 13 |", pi)


class Page(unittest.TestCase):
    PAGE = "before\n<!-- counts -->\nold\n<!-- end of counts -->\nafter\n"

    def test_the_rest_of_a_page_stays(self) -> None:
        written = arm_counts.rewritten(self.PAGE, "counts", "new")
        self.assertEqual(written, self.PAGE.replace("old", "new"))

    def test_pages_without_marks_are_refused(self) -> None:
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            arm_counts.rewritten(self.PAGE, "roofline", "new")

    def test_the_committed_page_has_both_marks(self) -> None:
        page = (ROOT / "docs/arm.md").read_text()
        for name in ["counts", "roofline"]:
            self.assertIn("new\n", arm_counts.rewritten(page, name, "new"))


if __name__ == "__main__":
    unittest.main()
