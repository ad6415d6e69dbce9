#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Tables of results of stock and patched guests, each with the complaints of the verdict. Prints TAP."""
import contextlib
import io
import json
import pathlib
import re
import sys
import tempfile
import types
import typing

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from lab import TOP, ktap, livepatch, suite, tree, verdict  # noqa: E402
from lab.base import Skip  # noqa: E402

TESTS = {"p": "pass", "f": "fail", "s": "skip"}


def guest(tests: str, probe: typing.Iterable[str] = (), reasons: typing.Any = ()) -> typing.Dict[str, typing.Any]:
    """A guest with the results "NAME=p ...". Its probe is that of a kernel without bugs, except for the rows in @probe:
    "ROW=WORD"; without a word, the row is missing."""
    run: typing.Dict[str, typing.Any]
    run = {"error": None, "reasons": dict(reasons),
           "tests": {name: TESTS[result] for name, _, result in (test.partition("=") for test in tests.split())}}
    for part, rows in verdict.ROWS.items():
        run[part] = {row: {"title": row, "result": good} for row, (_, good, *_) in rows.items()}
    for row, _, word in (change.partition("=") for change in probe):
        results = run["stops" if row in verdict.ROWS["stops"] else "effects"]
        results[row] = {"title": row, "result": word}
        if not word:
            del results[row]
    return run


# The tests that stock fails or skips; the probe on stock; the probe on the patched kernel; the complaint.
PROBES = (
    ("", "", "", None),
    ("sigio=f", "sigio=delivered", "", None),
    ("limit=f", "limit=consumed", "", None),
    ("step=f", "step=does not stop", "", None),
    ("handler=f", "handler=hits again", "", None),
    ("handler=f", "handler=hits too seldom", "", None),
    ("sigtrap=s", "sigtrap=unavailable", "sigtrap=unavailable", None),
    ("-", "sigtrap=unavailable", "sigtrap=unavailable", None),
    *[("", "", f"{row}=", ("patched", f"the probe does not print {row}")) for row in ("sample", "hup", "step")],
    *[("", f"{row}=", "", ("stock", f"the probe does not print {row}")) for row in ("wakeup", "limit", "continue")],
    ("", "", "other=suppressed", ("patched", "the probe prints an unknown row 'other' in effects")),
    ("", "other=delivered", "", ("stock", "the probe prints an unknown row 'other' in effects")),
    *[("", "", f"{row}={word}", ("patched", f"the probe reports {word} for {row}, expected {right}"))
      for row, word, right in (
        ("sigio", "delivered", "suppressed"), ("limit", "suppressed", "untouched"),
        ("sample", "untouched", "suppressed"), ("sample", "works", "suppressed"),
        ("hup", "unknown", "suppressed"), ("hup", "unavailable", "suppressed"),
        ("step", "does not stop", "works"), ("step", "unavailable", "works"))],
    ("-", "", "hup=unavailable", ("patched", "the probe reports unavailable for hup, expected suppressed")),
    ("hup=p", "hup=unavailable", "", ("stock", "the probe reports unavailable for hup, expected suppressed")),
    ("hup=s", "hup=unavailable", "", ("patched", "the probe reports suppressed for hup, expected unavailable")),
    ("hup=s", "", "hup=unavailable", ("stock", "the probe reports suppressed for hup, expected unavailable")),
    ("", "setsig=delivered", "", ("stock", "the probe reports delivered for setsig, expected suppressed")),
    ("setsig=f", "", "", ("stock", "the probe reports suppressed for setsig, expected delivered")),
    ("limit=f", "limit=delivered", "", ("stock", "the probe reports delivered for limit, expected consumed")),
    ("step=f", "", "", ("stock", "the probe reports works for step, expected does not stop")),
    ("step=f", "step=hits again", "", ("stock", "the probe reports hits again for step, expected does not stop")),
)


def probes(fails: str, stock: str, patched: str, complaint: typing.Optional[typing.Tuple[str, str]]
           ) -> typing.Tuple[typing.List, typing.List]:
    """All tests of the rows pass on both kernels except for @fails, or did not run ("-")."""
    tests = {test: row for rows in verdict.ROWS.values() for row, (test, *_) in rows.items()}
    results = dict(one.split("=") for one in fails.split()) if fails != "-" else {}
    ran = " ".join(f"{test}={results.get(row, 'p')}" for test, row in tests.items()) if fails != "-" else "a=p"
    listed = {test for test, row in tests.items() if results.get(row) == "f"}
    got = verdict.judge(guest(ran, filter(None, [stock])), guest(ran.replace("=f", "=p"), filter(None, [patched])),
                        verdict.Expected(listed))
    return got, [(complaint[0], None, complaint[1])] if complaint else []


# The result of a test that stock passes; the list of skips; the complaint.
NO_BTF = Skip("no BTF", False)
SKIPS: typing.Tuple = (
    ("s", {"b": NO_BTF}, None),
    ("s", {"b": Skip("no BTF", True)}, None),
    ("p", {"b": Skip("no BTF", True)}, None),
    ("p", {}, None),
    ("p", None, None),
    ("p", {"b": NO_BTF}, "is listed as skipped, but was not"),
    ("s", {}, "is skipped, but is not listed as skipped: no BTF"),
    ("s", None, "is skipped, but stock ran it"),
    ("s", {"b": Skip("no kprobes", False)}, "is skipped for a reason other than the listed one: no BTF"),
    ("s", {"b": Skip("no kprobes", True)}, "is skipped for a reason other than the listed one: no BTF"),
)


def skips(result: str, listed: typing.Optional[typing.Dict[str, Skip]], complaint: typing.Optional[str]
          ) -> typing.Tuple[typing.List, typing.List]:
    got = verdict.judge(guest("a=p b=p"), guest(f"a=p b={result}", reasons={"b": "no BTF"} if result == "s" else {}),
                        verdict.Expected(set(), skips=listed))
    return got, [("patched", "b", complaint)] if complaint else []


# The suite's tests; the patterns that were run, or none; the complaint, for kernels that ran a, b and oops.fork.
SUITE = (
    ("a b oops.fork", "", None),
    ("a b oops.fork gdb.arrival", "", None),
    ("a b c oops.fork", "a b oops.f*", None),
    ("a b c oops.fork", "", "did not run 1 of the suite's {} tests: c"),
    ("a b c d e f oops.fork", "", "did not run 4 of the suite's {} tests: c d e ..."),
    ("a b oops.fork oops.query", "a b oops*", "did not run 1 of the suite's {} tests: oops.query"),
    ("b oops.fork", "", "printed results of 1 other tests: a"),
)


def suites(names: str, patterns: str, complaint: typing.Optional[str]) -> typing.Tuple[typing.List, typing.List]:
    """Without patterns, the stock kernel does not run oops.*."""
    whole = [suite.chosen(names.split(), patterns.split() or default) for default in (["*"], ["*", "oops.*"])]
    run = [guest(tests) for tests in ("a=p b=p" if not patterns else "a=p b=p oops.fork=p", "a=p b=p oops.fork=p")]
    got = verdict.judge(run[0], run[1], verdict.Expected(set(), suite=(whole[0], whole[1])))
    return got, [(kernel, None, complaint.format(len(its))) for kernel, its in zip(("stock", "patched"), whole)
                  if complaint]


# The results before, with and after the live patch; changed rows of the probe, as "PART.ROW=WORD; ..."; the reason that
# c gives for a skip; the complaints. The suite is a, b, c and oops.fork. Before and after, a must fail; c may skip.
LIVE: typing.Tuple = (
    ("a=f b=p c=p", "a=p b=p c=p oops.fork=p", "a=f b=p c=p", "", "", []),
    ("a=f b=p c=s", "a=p b=p c=s oops.fork=p", "a=f b=p c=s", "", "no BTF", []),
    ("a=f b=p c=p", "a=p b=p c=p oops.fork=p", "a=f b=p c=p", "before.hup=delivered; after.hup=delivered", "",
     ["before: the probe reports delivered for hup, expected suppressed"]),
    ("a=f b=p c=p", "a=p b=p c=p oops.fork=p", "a=f b=p c=p", "after.hup=delivered", "",
     ["after: the probe does not print the same as before"]),
    ("a=f b=p c=p", "a=p b=p c=p oops.fork=p", "a=f b=p c=p", "after.step=does not stop", "",
     ["after: the probe does not print the same as before"]),
    ("a=f b=p c=p", "a=p b=p c=p oops.fork=p", "a=f b=p c=p", "loaded.hup=", "",
     ["loaded: the probe does not print hup"]),
    ("a=f b=p c=p", "a=p oops.fork=p", "a=f b=p c=p", "", "",
     ["loaded: did not run 2 of the suite's 4 tests: b c"]),
    ("a=f b=p", "a=p b=p oops.fork=p", "a=f b=p", "", "",
     [f"{part}: did not run 1 of the suite's {count} tests: c"
      for part, count in (("before", 3), ("loaded", 4), ("after", 3))]),
    ("a=f b=p c=p", "a=p b=p c=p", "a=f b=p c=p", "", "",
     ["loaded: did not run 1 of the suite's 4 tests: oops.fork"]),
    ("a=f b=p c=p d=p", "a=p b=p c=p oops.fork=p", "a=f b=p c=p", "", "",
     ["before: printed results of 1 other tests: d"]),
    ("a=s b=p c=p", "a=s b=p c=p oops.fork=p", "a=s b=p c=p", "", "",
     ["before: a: is listed as failing, but the result is: skip",
      "after: a: is listed as failing, but the result is: skip",
      "loaded: a: is skipped, but is not listed as skipped: no reason given"]),
    ("a=f b=p c=p", "a=f b=p c=p oops.fork=p", "a=f b=p c=p", "", "",
     ["loaded: a: fails, but is not listed as failing: no reason given"]),
    ("a=f b=s c=p", "a=p b=s c=p oops.fork=p", "a=f b=s c=p", "", "",
     ["loaded: b: is skipped, but is not listed as skipped: no reason given"]),
    ("a=f b=p c=s", "a=p b=p c=s oops.fork=p", "a=f b=p c=s", "", "no PMU",
     ["loaded: c: is skipped for a reason other than the listed one: no PMU"]),
    ("a=f b=p c=p", "a=p b=p c=p oops.fork=s", "a=f b=p c=p", "", "",
     ["loaded: oops.fork: is skipped, but is not listed as skipped: no reason given"]),
    ("a=f b=p c=p", "a=p b=p c=p oops.fork=p", "a=p b=p c=s", "", "no BTF",
     ["after: a: is listed as failing, but the result is: pass", "after: c: is skipped, but was not before"]),
)


def live(before: str, loaded: str, after: str, probe: str, reason: str, complaints: typing.List[str]
         ) -> typing.Tuple[typing.List, typing.List]:
    runs = dict(zip(livepatch.PARTS, (before, loaded, after)))
    guests = {part: guest(tests, [row.partition(".")[2] for row in probe.split("; ") if row.startswith(f"{part}.")],
                          {"c": reason} if reason else {}) for part, tests in runs.items()}
    fails: typing.Dict[str, typing.Set[str]] = {"before": {"a"}, "loaded": set(), "after": {"a"}}
    got = verdict.judge_live(guests, fails, fails, {
        part: {"a", "b", "c", *(["oops.fork"] if part == "loaded" else [])} for part in runs}, {"c": NO_BTF})
    return [f"{part}: {test + ': ' if test else ''}{what}" for part, test, what in got], complaints


# How oops.exec and oops.fork are listed ("d": crashes, "f": fails); the results in each guest; the complaints.
CRASHES: typing.Tuple = (
    ("dd", ["exec=d", "fork=d"], []),
    ("dd", ["exec=d"], []),
    ("df", ["exec=d", "fork=f"], []),
    ("df", ["exec=d"], []),
    ("dd", [], ["exec: is listed as crashing the kernel, but the result is: not run",
                "fork: is listed as crashing the kernel, but the result is: not run"]),
    ("dd", ["exec=p fork=d"], []),
    ("dd", ["exec=p", "fork=d"], ["exec: is listed as crashing the kernel, but the result is: pass"]),
    ("dd", ["exec=d", "fork=f"], ["fork: is listed as crashing the kernel, but the result is: fail"]),
    ("dd", ["exec=d", "exec=d"], ["fork: is listed as crashing the kernel, but the result is: not run"]),
    ("fd", ["fork=d"], []),
    ("df", ["exec=d", "fork=d"], ["fork: is listed as failing, but the result is: dies"]),
    ("df", ["exec=d", "fork=s"], ["fork: is listed as failing, but the result is: skip"]),
    ("dd", ["exec=d", "fork=d", "query=d"], ["query: crashes the kernel, but is not listed"]),
    ("dd", ["exec=d", "fork=d", "query=f"], ["query: fails, but is not listed"]),
    ("dd", ["exec=d", "fork=d", "hang"], ["*: hang"]),
)


def crashes(how: str, guests: typing.List[str], complaints: typing.List[str]) -> typing.Tuple[typing.List, typing.List]:
    results = {**TESTS, "d": "dies"}
    ran = [({f"oops.{name}": results[result] for name, result in (test.split("=") for test in tests.split())}, None)
           if "=" in tests else ({}, tests) for tests in guests]
    survived = {name for name, one in zip(("oops.exec", "oops.fork"), how) if one == "f"}
    got, _ = verdict.judge_oops(verdict.Expected({"oops.exec", "oops.fork"}, survived), ran)
    return got, [("stock", *f"oops.{complaint}".split(": ", 1)) for complaint in complaints]


# Splats: (the test that was running, the line).
OOPS = [("oops.fork", "BUG: kernel NULL pointer dereference, address: 8"),
        ("oops.fork", "Kernel panic - not syncing: Fatal exception")]
WARN, INIT = ("oops.fork", "WARNING: CPU: 1 PID: 7 at a.c:1 f"), "Kernel panic - not syncing: Attempted to kill init!"
STALL = ("oops.fork", "rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:")
LATER = [(f"oops.{name}", line) for name, (_, line) in zip(("fork", "query"), (WARN, OOPS[1]))]

# The splats of a guest that runs oops.*; the command's exit code, or None; the results before the end; what the guest
# shows: the results with "d" for a crash, and the start of the error.
DEATHS: typing.Tuple = (
    (OOPS, None, "", "fork=d", None),
    (OOPS, None, "exec=f", "exec=f fork=d", None),
    ([("oops.fork", "Kernel panic - not syncing: Oops: Fatal exception")], None, "", "fork=d", None),
    ([WARN, *OOPS], None, "", "fork=d", None),
    ([WARN], None, "", "", "the kernel complains during oops.fork, but does not crash: WARNING"),
    ([WARN], 0, "fork=p", "fork=p", "the kernel complains during oops.fork, but does not crash: WARNING"),
    ([STALL], None, "", "", "the kernel complains during oops.fork, but does not crash: rcu: INFO"),
    ([("oops.fork", INIT)], None, "", "", "the kernel complains during oops.fork, but does not crash: Kernel"),
    (LATER, None, "fork=p", "fork=p", "the kernel complains during oops.fork, but does not crash: WARNING"),
    (OOPS, 1, "fork=f", "fork=f", "the kernel complains during oops.fork, but does not crash: BUG"),
    ([(None, line) for _, line in OOPS], None, "", "", "the kernel complains before the first test: BUG"),
    ([], None, "exec=p", "exec=p", "splat"),
)


def boot(folder: str, splats: typing.Iterable[typing.Tuple[typing.Optional[str], str]], code: typing.Optional[int],
         output: str, outcome: str = "splat") -> pathlib.Path:
    """Writes what scripts/boot leaves of a guest."""
    room = pathlib.Path(folder) / "boot"
    room.mkdir()
    (room / "output.log").write_text(output)
    (room / "boot.json").write_text(json.dumps({
        "outcome": outcome, "exit": code, "splats": [{"test": test, "line": line} for test, line in splats]}))
    return room


def deaths(splats: typing.List, code: typing.Optional[int], got: str, shown: str, error: typing.Optional[str]
           ) -> typing.Tuple[typing.Tuple, typing.Tuple]:
    def named(tests: str) -> typing.List[typing.Tuple[str, str]]:
        return [(f"oops.{name}", result) for name, result in (test.split("=") for test in tests.split())]

    with tempfile.TemporaryDirectory() as folder:
        output = "TAP version 13\n1..9\n" + "".join(LINES[result].format(name) + "\n" for name, result in named(got))
        ran, wrong = verdict.read_oops(boot(folder, splats, code, output))
    return (ran, (wrong or "")[:len(error or "")] or wrong), \
        ({name: {**TESTS, "d": "dies"}[result] for name, result in named(shown)}, error)


# The tests that a mutant must fail; the results: "NAME=p" (pass), "f" (failed expectation), "e" (error), "v" (no
# verdict) or "s" (skip); the splats, or the test during which the kernel crashed; the tests that notice; why the mutant
# survives.
MUTANTS: typing.Tuple = (
    ("a b", "a=f b=f", None, ["a", "b"], []),
    ("a b", "a=f b=p", None, ["a"], ["b"]),
    ("a b", "a=f b=s", None, ["a"], ["b, which was skipped"]),
    ("a b", "a=f", None, ["a"], ["b, which did not run"]),
    ("a", "a=e", None, [], ["a, which failed by an error, not by an expectation: perf_event_open: EINVAL"]),
    ("a", "a=v", None, [],
     ["a, which failed by an error, not by an expectation: expected a verdict within 30 s, got none"]),
    ("r.*", "r.1=f r.2=s r.3=f", None, ["r.1", "r.3"], []),
    ("r.*", "r.1=f r.2=e", None, ["r.1"], []),
    ("r.*", "r.1=f r.2=p", None, ["r.1"], ["r.2"]),
    ("r.*", "r.1=s r.2=s", None, [], ["r.*, which was skipped"]),
    ("a r.*", "r.1=f r.2=f", None, ["r.1", "r.2"], ["a, which did not run"]),
    ("a", "a=f", "a", ["a"], []),
    ("a", "", "a", [], ["a, which did not run"]),
    ("oops.fork", "", "oops.fork", ["oops.fork"], []),
    ("oops.*", "", "oops.fork", ["oops.fork"], []),
    ("oops.exec oops.fork", "", "oops.fork", ["oops.fork"], []),
    ("oops.exec", "", "oops.fork", [], ["oops.exec, the kernel crashed in oops.fork"]),
    ("oops.fork", "oops.fork=f", None, [], ["oops.fork"]),
    ("a oops.fork", "a=f", "oops.fork", ["a", "oops.fork"], []),
    ("a oops.fork", "a=p", "oops.fork", ["oops.fork"], ["a"]),
    ("oops.fork", "", [WARN], [], ["oops.fork"]),
    ("oops.fork", "oops.fork=p", [WARN], [], ["oops.fork"]),
    ("oops.fork", "", [STALL], [], ["oops.fork"]),
    ("oops.fork", "", [WARN, *OOPS], ["oops.fork"], []),
    ("oops.fork", "oops.fork=p", LATER, [], ["oops.fork, the kernel crashed in oops.query"]),
    ("a", "a=f a=p", None, ["a"], ["a"]),
)
LINES = {"p": "ok 1 {}", "s": "ok 1 {} # SKIP", "f": "# {0}: expected 1 hit, got 2 (t.cc:1)\nnot ok 1 {0}",
         "e": "# {0}: perf_event_open: EINVAL\nnot ok 1 {0}",
         "v": "# {0}: expected a verdict within 30 s, got none\nnot ok 1 {0}"}


def mutants(names: str, got: str, crash: typing.Any, notice: typing.List[str], survives: typing.List[str]
            ) -> typing.Tuple[typing.Tuple, typing.Tuple]:
    output = "".join(LINES[result].format(name) + "\n" for name, result in (test.split("=") for test in got.split()))
    splats = [(crash, line) for _, line in OOPS] if isinstance(crash, str) else crash or []
    with tempfile.TemporaryDirectory() as folder:
        room = boot(folder, splats, None if splats else 1, output, "splat" if splats else "failed")
        ran = tree.Ran(room, room / "log", 13)
    return verdict.killers(names.split(), ran), (notice, survives)


# The results without a mutant; those with it; the outcome; how the mutant is noticed.
GENERATED = (
    ("a=p b=p", "a=p b=p", "passed", None),
    ("a=p b=s", "a=p b=s", "passed", None),
    ("a=p b=p", "a=p b=f", "failed", "b fails: expected 1 hit, got 2 (t.cc:1)"),
    # The run stopped at its first failure.
    ("a=p b=p", "a=f", "passed", "a fails: expected 1 hit, got 2 (t.cc:1)"),
    ("a=p b=p", "a=p b=s", "passed", "b: skip, not pass"),
    ("a=p b=s", "a=p b=p", "passed", "b: pass, not skip"),
    ("a=p b=p", "a=p", "passed", "the suite ended before b"),
    ("a=p", "", "passed", "the suite ended before a"),
    ("a=p b=p", "a=p", "hang", "hang after a"),
    ("a=p b=p", "", "no-boot", "no-boot"),
    ("a=p b=p", "a=p b=p", "splat", "splat in b: BUG: x"),
    ("a=p b=p", "a=p b=f", "splat", "b fails: expected 1 hit, got 2 (t.cc:1)"),
)


def generated(expected: str, got: str, outcome: str, notice: typing.Optional[str]
              ) -> typing.Tuple[typing.Optional[str], typing.Optional[str]]:
    def pairs(text: str) -> typing.List[typing.List[str]]:
        return [test.split("=") for test in text.split()]

    splat = outcome == "splat"
    ran = types.SimpleNamespace(output="".join(LINES[result].format(name) + "\n" for name, result in pairs(got)),
                                outcome=outcome, during="b" if splat else None, splats=["BUG: x"] * splat)
    return verdict.differs({name: TESTS[result] for name, result in pairs(expected)}, ran), notice


# The plan of a verb that prints TAP, or None; the results; the exit code.
PRINTED: typing.Tuple = ((None, "pp", 0), (None, "pf", 1), (None, "", 1), (2, "pp", 0), (2, "p", 1), (2, "ppp", 1),
                         (0, "", 1))


def printed(plan: typing.Optional[int], results: str, code: int) -> typing.Tuple[int, int]:
    with contextlib.redirect_stdout(io.StringIO()):
        tap = ktap.Printer("", plan)
        for result in results:
            tap.test(result == "p", "a")
        return tap.end(), code


def words() -> typing.Tuple[typing.List, typing.List]:
    """The rows and words of verdict.py must be those in the probe's source."""
    source = "".join((TOP / "selftests" / file).read_text()
                     for file in ("lib/effects.cc", "lib/effects.h", "probe/stops.cc"))
    rows = [set(re.findall(pattern, source, re.M)) for pattern in (r'\.id = "(\w+)"', r'^\t\{ "(\w+)", ')]
    used = {word for word in (verdict.GOOD - {"works"}) | verdict.BAD if f'"{word}"' in source}
    return [rows, used], [[set(part) for part in verdict.ROWS.values()], (verdict.GOOD - {"works"}) | verdict.BAD]


def main() -> int:
    tap = ktap.Printer("verdict: ")
    table: typing.Any
    judged: typing.Any
    for table, judged in ((PROBES, probes), (SKIPS, skips), (SUITE, suites), (LIVE, live), (CRASHES, crashes),
                          (DEATHS, deaths), (MUTANTS, mutants), (GENERATED, generated),
                          (PRINTED, printed), ([()], words)):
        for row in table:
            got, wanted = judged(*row)
            tap.test(got == wanted, f"{judged.__name__} {row}" + ("" if got == wanted else f": {got}, not {wanted}"))
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
