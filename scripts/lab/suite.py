# SPDX-License-Identifier: GPL-2.0
"""The rules and the tests, as the suite lists them."""
import fnmatch
import json
import pathlib
import re
import subprocess
import typing

from lab import TOP, base, die, tree
from lab.arch import ARCH, Arch


# The suite's folder in a kernel tree.
PLACE = "tools/testing/selftests/perf_bpf_filter"


class Test(typing.NamedTuple):
    name: str
    rule: str
    says: str
    file: str  # in selftests/

    def theme(self) -> str:
        """The first word of all test names in its file: tests/THEME.cc, tests/THEME_PART.cc or THEME/FILE.cc."""
        folder, _, name = self.file.rpartition("/")
        return re.split("[_.]", name)[0] if folder == "tests" else folder


class Cell(typing.NamedTuple):
    table: str
    row: str
    column: str
    test: str  # that covers the cell, or ""
    why: str  # the cell needs no test


class Suite(typing.NamedTuple):
    rules: typing.Dict[str, str]  # C1 -> what must hold
    tests: typing.List[Test]
    cells: typing.List[Cell]

    def rule_of(self) -> typing.Dict[str, str]:
        return {test.name: test.rule for test in self.tests}


def ask(binary: typing.Union[str, pathlib.Path], arch: Arch = ARCH) -> Suite:
    """Asks a suite's program. Raises OSError, ValueError or SubprocessError if it fails or prints anything else."""
    answer = json.loads(subprocess.run([*arch.user, str(binary), "--rules"], capture_output=True, text=True,
                                       check=True).stdout)
    return Suite({rule["id"]: rule["what"] for rule in answer["rules"]},
                 [Test(test["name"], test["rule"], test["says"], test["file"]) for test in answer["tests"]],
                 [Cell(**cell) for cell in answer.get("cells", [])])


def chosen(names: typing.Collection[str], patterns: typing.Iterable[str]) -> typing.Set[str]:
    """The tests that perf_bpf_filter runs for these patterns (select_tests() in selftests/harness/main.cc)."""
    usual = base.by_default(names)
    return {name for pattern in patterns for name in fnmatch.filter(names, pattern)
            if name in usual or not base.by_default([pattern])}


def must_match(program: pathlib.Path, patterns: typing.Collection[str]) -> None:
    """Stops if one of @patterns matches no test, before a kernel is built for it."""
    names = ask(program).rule_of() if patterns else {}
    for pattern in patterns:
        if not chosen(names, [pattern]):
            die(f"no test matches {pattern}; {program} --list shows all of them", 2)


def contract() -> typing.Dict[str, str]:
    """The rules, C1 -> what must hold, from the suite's source, so that nothing need be built."""
    source = (TOP / "selftests/harness/main.cc").read_text()
    return {name: "".join(re.findall(r'"([^"]*)"', text))
            for name, text in re.findall(r'^\t\{ "(C\d+)",((?:\s*"[^"]*")+) \},$', source, re.M)}


def copy_sources(kernel: pathlib.Path) -> None:
    """Copies the suite into a kernel tree, without two pages that are about this repository."""
    ours = [name for name in tree.say("git", "-C", TOP / "selftests", "ls-files").splitlines()
            if name not in ("README.md", "RULES.md")]
    (kernel / PLACE).mkdir(parents=True, exist_ok=True)
    tree.call("rsync", "-rpt", "--files-from=-", TOP / "selftests", kernel / PLACE, input="\n".join(ours), text=True)
