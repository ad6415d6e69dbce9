# SPDX-License-Identifier: GPL-2.0
"""Parses the output of the suite, and prints TAP."""
import collections
import re
import typing

from lab import printable

RESULT = re.compile(r"(ok|not ok) ([0-9]{1,6}) ([A-Za-z0-9_.-]+)(?: # (SKIP)[ -~]*)?")
LINE = re.compile(r"^(ok|not ok) \d+ ?(.*?)( # (?i:SKIP).*)?$", re.M)
# The last line of the suite, from its own counters.
TOTALS = re.compile(r"# Totals: pass:([0-9]+) fail:([0-9]+) xfail:0 xpass:0 skip:([0-9]+) error:0")
# The lines that progress() counts.
TESTS = "^(ok|not ok) "


class Bad(Exception):
    """The output of a guest cannot be trusted; the message says why."""


def parse(text: str) -> typing.Dict[str, str]:
    """Test name -> "pass", "fail" or "skip". Raises Bad unless @text is exactly one complete KTAP run."""
    # Not splitlines(), which would also split a test's message at a form feed.
    lines = text.split("\n")
    starts = [i for i, line in enumerate(lines) if line.startswith("TAP version ")]
    if not starts:
        raise Bad("no test results (is the test binary there?)")
    if len(starts) > 1:
        raise Bad("more than one KTAP header")
    results: typing.Dict[str, str]
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
            # A message of the shell or a library, such as "sh: ...", is allowed; anything else is not KTAP.
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
        raise Bad("the totals in the last line do not match the results")
    return results


def results(lines: typing.Iterable[str]) -> typing.List[typing.Tuple[str, str]]:
    """(test name, result) of each result line; all other lines are ignored."""
    return [(match[3], "skip" if match[4] else "pass" if match[1] == "ok" else "fail")
            for match in map(RESULT.fullmatch, lines) if match]


def reasons(text: str) -> typing.Dict[str, str]:
    """Test name -> its first message."""
    found: typing.Dict[str, str] = {}
    for match in re.finditer(r"^# (\S+): (.*)", text, re.M):
        found.setdefault(match[1], printable(match[2]))
    return found


def took(text: str) -> typing.Dict[str, float]:
    """Test name -> its duration in seconds."""
    return {name: float(seconds) for name, seconds in
            re.findall(r"^# (\S+) took ([0-9]{1,6}\.[0-9]{3}) s$", text, re.M)}


def met(text: str) -> typing.Dict[str, int]:
    """Name of a test that provokes a race -> how often both sides have met."""
    return {name: int(times) for name, times in
            re.findall(r"^# ([A-Za-z0-9_.-]+) met ([0-9]{1,18}) times, floor [0-9]{1,18}$", text, re.M)}


class Said(typing.NamedTuple):
    """The results in the output of a run that may have been cut short."""
    passed: typing.List[str]
    failed: typing.List[str]
    skipped: typing.List[str]

    @classmethod
    def of(cls, text: str) -> "Said":
        results = cls([], [], [])
        for result, name, skip in LINE.findall(text):
            (results.failed if result == "not ok" else results.skipped if skip else results.passed).append(name)
        return results


class Printer:
    """Prints TAP: a line for each test, and the plan."""

    def __init__(self, what: str, plan: typing.Optional[int] = None) -> None:
        self.what, self.number, self.wrong, self.planned = what, 0, 0, plan
        self.lines: typing.List[str] = []  # all lines printed so far
        if plan is not None:
            self.say(f"1..{plan}")

    def say(self, line: str) -> None:
        self.lines.append(line)
        print(line)

    def test(self, good: object, text: str, note: str = "") -> None:
        self.number += 1
        self.wrong += not good
        # A "#" in @text would begin a directive: "not ok ... # TODO" does not count as a failure.
        text = text.replace("#", "no.")
        self.say(f"{'ok' if good else 'not ok'} {self.number} {self.what}{text}{note and ' # ' + note}")

    def end(self) -> int:
        """Prints the plan, unless it was printed at the start; returns the exit code. It is 0 only if as many tests ran
        as were planned, at least one, and none failed."""
        if self.planned is None:
            self.say(f"1..{self.number}")
        return 1 if self.wrong or not self.number or self.number != (self.planned or self.number) else 0


def rounds(text: str) -> typing.Counter[str]:
    """The sums of the figures that perf_bpf_stress prints for each round, "# round: hits 5 lost 0"."""
    total: typing.Counter[str] = collections.Counter()
    for line in re.findall(r"^# round:((?: \w+ \d+)+)", text, re.M):
        words = line.split()
        total.update(dict(zip(words[::2], map(int, words[1::2]))))
    return total
