# SPDX-License-Identifier: GPL-2.0
"""The rules and the tests, as the suite tells them."""
import fnmatch
import json
import re
import subprocess
import typing

from lab import TOP, base, tree
from lab.arch import ARCH


# Where it is in a kernel tree.
PLACE = "tools/testing/selftests/perf_bpf_filter"


class Test(typing.NamedTuple):
    name: str
    rule: str
    says: str
    file: str  # in selftests/

    def theme(self):
        """The first word of the names of tests in that file: tests/THEME.cc, tests/THEME_PART.cc, THEME/FILE.cc."""
        folder, _, name = self.file.rpartition("/")
        return re.split("[_.]", name)[0] if folder == "tests" else folder


class Cell(typing.NamedTuple):
    table: str
    row: str
    column: str
    test: str  # that fills it, or else
    why: str  # it needs none


class Suite(typing.NamedTuple):
    rules: dict  # C1 -> what holds
    tests: list
    cells: list

    def rule_of(self):
        return {test.name: test.rule for test in self.tests}


def ask(binary, arch=ARCH):
    """Raises OSError, ValueError or SubprocessError if the program is none, or says something else."""
    said = json.loads(subprocess.run([*arch.user, binary, "--rules"], capture_output=True, text=True,
                                     check=True).stdout)
    return Suite({rule["id"]: rule["what"] for rule in said["rules"]},
                 [Test(test["name"], test["rule"], test["says"], test["file"]) for test in said["tests"]],
                 [Cell(**cell) for cell in said.get("cells", [])])


def chosen(names, patterns):
    """The tests that perf_bpf_filter runs for these patterns (select_tests() in selftests/harness/main.cc)."""
    usual = base.by_default(names)
    return {name for pattern in patterns for name in fnmatch.filter(names, pattern)
            if name in usual or not base.by_default([pattern])}


def contract():
    """The rules, C1 -> what holds, from the suite's source: nothing need be built for that."""
    source = (TOP / "selftests/harness/main.cc").read_text()
    return {name: "".join(re.findall(r'"([^"]*)"', text))
            for name, text in re.findall(r'^\t\{ "(C\d+)",((?:\s*"[^"]*")+) \},$', source, re.M)}


def copy_sources(kernel):
    """To its place in that kernel tree. Two pages are about this repository."""
    ours = [name for name in tree.say("git", "-C", TOP / "selftests", "ls-files").splitlines()
            if name not in ("README.md", "RULES.md")]
    (kernel / PLACE).mkdir(parents=True, exist_ok=True)
    tree.call("rsync", "-rpt", "--files-from=-", TOP / "selftests", kernel / PLACE, input="\n".join(ours), text=True)
