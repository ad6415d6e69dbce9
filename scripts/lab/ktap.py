# SPDX-License-Identifier: GPL-2.0
"""What the suite prints."""
import collections
import re
import typing

from lab import printable

RESULT = re.compile(r"(ok|not ok) ([0-9]{1,6}) ([A-Za-z0-9_.-]+)(?: # (SKIP)[ -~]*)?")
LINE = re.compile(r"^(ok|not ok) \d+ ?(.*?)( # (?i:SKIP).*)?$", re.M)
# What the suite prints last of all, from counts of its own.
TOTALS = re.compile(r"# Totals: pass:([0-9]+) fail:([0-9]+) xfail:0 xpass:0 skip:([0-9]+) error:0")
# A line for progress to count.
TESTS = "^(ok|not ok) "


class Bad(Exception):
    """What a guest left behind cannot be trusted; the text says why."""


def parse(text):
    """Test name -> "pass", "fail" or "skip". Raises Bad on anything but one whole KTAP run."""
    # Not splitlines(), to which a form feed in a test's message is the end of a line.
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith("TAP version ")]
    if not starts:
        raise Bad("no test results (is the test binary there?)")
    if len(starts) > 1:
        raise Bad("more than one KTAP header")
    plan, results = None, {}
    for line in lines[starts[0] + 1:]:
        if line.startswith("#") or not line.strip():
            continue
        if match := re.fullmatch(r"1\.\.([0-9]{1,6})", line):
            if plan is not None:
                raise Bad("more than one KTAP plan")
            plan = int(match[1])
        elif match := RESULT.fullmatch(line):
            ok, number, name, skip = match.groups()
            if int(number) != len(results) + 1 or name in results:
                raise Bad(f"KTAP out of order at: {line[:60]}")
            if skip and ok == "not ok":
                raise Bad(f"a failed test cannot be skipped: {line[:60]}")
            results[name] = "skip" if skip else "pass" if ok == "ok" else "fail"
        elif not re.match(r"[A-Za-z0-9_./-]+: ", line):
            # What the shell or a library says, as "sh: ..."; anything else is no KTAP.
            raise Bad(f"not KTAP: {printable(line)[:60]}")
    if plan is None:
        raise Bad("no KTAP plan")
    if plan != len(results):
        raise Bad(f"{plan} tests planned, {len(results)} results")
    if not results:
        raise Bad("no test was run")
    counts = [str(list(results.values()).count(result)) for result in ("pass", "fail", "skip")]
    totals = TOTALS.fullmatch("\n".join(lines).rstrip("\n").rpartition("\n")[2])
    if not totals or list(totals.groups()) != counts:
        raise Bad("the last line is not the sum of the results")
    return results


def results(lines):
    """(test name, result) of each line that is one, whatever stands between them."""
    return [(match[3], "skip" if match[4] else "pass" if match[1] == "ok" else "fail")
            for match in map(RESULT.fullmatch, lines) if match]


def reasons(text):
    """Test name -> the first thing that it said."""
    found = {}
    for match in re.finditer(r"^# (\S+): (.*)", text, re.M):
        found.setdefault(match[1], printable(match[2]))
    return found


def took(text):
    """Test name -> the seconds that it took."""
    return {name: float(seconds) for name, seconds in
            re.findall(r"^# (\S+) took ([0-9]{1,6}\.[0-9]{3}) s$", text, re.M)}


class Said(typing.NamedTuple):
    """The results that were printed, of a run that may have been cut short."""
    passed: list
    failed: list
    skipped: list

    @classmethod
    def of(cls, text):
        said = cls([], [], [])
        for result, name, skip in LINE.findall(text):
            (said.failed if result == "not ok" else said.skipped if skip else said.passed).append(name)
        return said


class Printer:
    """TAP of our own: a line for each test, and the sum."""

    def __init__(self, what, plan=None):
        self.what, self.number, self.wrong, self.planned = what, 0, 0, plan
        self.lines = []  # what was printed
        if plan is not None:
            self.say(f"1..{plan}")

    def say(self, line):
        self.lines.append(line)
        print(line)

    def test(self, good, text, note=""):
        self.number += 1
        self.wrong += not good
        # A "#" in what is told would begin a directive: "not ok ... # TODO" is no failure.
        text = text.replace("#", "no.")
        self.say(f"{'ok' if good else 'not ok'} {self.number} {self.what}{text}{note and ' # ' + note}")

    def end(self):
        """Prints the plan, if it was not known before; returns the exit code."""
        if self.planned is None:
            self.say(f"1..{self.number}")
        return 1 if self.wrong else 0


def rounds(text):
    """What perf_bpf_stress said of its rounds, "# round: hits 5 lost 0", added up."""
    total = collections.Counter()
    for line in re.findall(r"^# round:((?: \w+ \d+)+)", text, re.M):
        words = line.split()
        total.update(dict(zip(words[::2], map(int, words[1::2]))))
    return total
