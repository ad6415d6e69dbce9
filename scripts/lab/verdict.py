# SPDX-License-Identifier: GPL-2.0
"""Judges the results of the stock and the patched guest, and prints them as a table. The patched kernel must pass every
test that it need not skip; the stock kernel must fail exactly the tests that are listed. The tests oops.* run on the
stock kernel in separate guests, which must crash."""
import dataclasses
import fnmatch
import json
import os
import pathlib
import re
import sys
import typing

from lab import ktap, printable, splat
from lab.base import Skip, deadly

# The rows of perf_bpf_probe: the seven effects in lib/effects.cc and the three stops in probe/stops.cc. For each row:
# the test that fails on a kernel with the bug, the word for a kernel without the bug, and the words for one with it.
ROWS: typing.Dict[str, typing.Dict[str, typing.Tuple[str, ...]]] = {
    "effects": {name: (f"effects.{name}.rejected", "suppressed", "delivered")
                for name in ("sample", "wakeup", "sigio", "setsig", "sigtrap", "hup")} |
               {"limit": ("effects.limit.rejected", "untouched", "consumed")},
    "stops": {name: (f"stepping.{name}.call.setsig", "works", *defects) for name, *defects in (
        ("continue", "loses the next"), ("step", "does not stop"), ("handler", "hits too seldom", "hits again"))},
}
GOOD = {good for rows in ROWS.values() for _, good, *_ in rows.values()}
# The message of a failed expectation (selftests/harness/run.cc). A test that ended without a verdict prints a similar
# one.
EXPECTATION = re.compile(r"^# (\S+): expected (?!a verdict)", re.M)
BAD = {word for rows in ROWS.values() for _, _, *bad in rows.values() for word in bad}


@dataclasses.dataclass
class Expected:
    """The expected results of a run."""
    fails: typing.Set[str]                               # tests that stock fails, including oops.*
    survived: typing.Set[str] = dataclasses.field(default_factory=set)   # oops.* that stock fails without a crash
    lacks: typing.Set[str] = dataclasses.field(default_factory=set)      # tests that require Debian's configuration
    defects: typing.Optional[typing.Set[str]] = None     # the bugs that the probe must report; None: @fails
    skips: typing.Optional[typing.Dict[str, Skip]] = None  # by the patched kernel; None: no list
    left: typing.Optional[typing.Set[str]] = None        # tests that the feature alone does not fix
    suite: typing.Optional[typing.Tuple[typing.Set[str], typing.Set[str]]] = None  # what stock and patched must run


def read_run(text: str) -> typing.Dict[str, typing.Any]:
    """The output of perf_bpf_probe --json and of the suite as a dictionary. "error" is None if it can be trusted."""
    run: typing.Dict[str, typing.Any] = {
        "error": None, "tests": {}, "effects": {}, "stops": {}, "reasons": {}, "took": {}, "met": {}}
    probe, _, tests = text.partition("TAP version ")
    try:
        printed = json.loads(probe)
        for part in ROWS:
            run[part] = {printable(str(row["id"])): {
                **row, "title": printable(str(row["title"])), "result": printable(str(row["result"]))}
                for row in printed[part]}
            if len(run[part]) != len(printed[part]):
                run["error"] = "perf_bpf_probe printed a row twice"
    except (ValueError, KeyError, TypeError, RecursionError):
        run["error"] = "perf_bpf_probe gave no result"
    try:
        run["tests"] = ktap.parse(("TAP version " if tests else "") + tests)
    except ktap.Bad as error:
        run["error"] = str(error)
    run["reasons"], run["took"], run["met"] = ktap.reasons(tests), ktap.took(tests), ktap.met(tests)
    return run


def read_guest(folder: pathlib.Path) -> typing.Dict[str, typing.Any]:
    """The results of a boot: those of read_run(), and the contents of boot.json."""
    guest: typing.Dict[str, typing.Any] = {"logs": str(folder)}
    try:
        guest.update({"exit": None, **json.loads((folder / "boot.json").read_text())})
        guest["outcome"] = str(guest["outcome"])
        # Not read_text(), which would take a lone CR in a test's message for the end of a line.
        text = (folder / "output.log").read_bytes().decode(errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SystemExit(f"report: {folder}: {error}; scripts/boot writes what is missing")
    guest.update(read_run(text.replace("guest-init: up\n", "", 1)))
    if guest["outcome"] not in ("passed", "failed") or guest.get("splats"):
        guest["error"] = guest["outcome"] + (f": {guest['splats'][0]['line']}"
                                             if guest.get("splats") else "")
    elif guest["exit"] != ("fail" in guest["tests"].values()) and not guest["error"]:
        guest["error"] = f"exit code {guest['exit']} does not fit the test results"
    return guest


def read_oops(folder: pathlib.Path) -> typing.Tuple[typing.Dict[str, str], typing.Optional[str]]:
    """The results of a guest that ran oops.*: (test -> result, the error or None). The result of the test during which
    the kernel crashed is "dies"."""
    guest = read_guest(folder)
    ran = dict(ktap.results((folder / "output.log").read_bytes().decode(errors="replace").split("\n")))
    if guest["outcome"] == "splat" and guest.get("splats"):
        first, died = guest["splats"][0], splat.crashed(guest["splats"])
        if not first["test"]:
            return ran, f"the kernel complains before the first test: {first['line']}"
        if died != first["test"] or died in ran or guest["exit"] is not None:
            return ran, f"the kernel complains during {first['test']}, but does not crash: {first['line']}"
        ran[died] = "dies"
    elif guest["error"]:
        return ran, guest["error"]
    return ran, None


def judge_probe(kernel: str, guest: typing.Dict[str, typing.Any], defects: typing.Container[str],
                reference: typing.Optional[typing.Dict[str, typing.Any]] = None
                ) -> typing.List[typing.Tuple[str, typing.Optional[str], str]]:
    """Complaints about the rows of the probe. Each row must agree with its test: it must be "unavailable" if and only
    if the guest skips the test. If the test was not run, the row must be "unavailable" if it is in @reference, the
    results of the stock kernel."""
    if guest["error"]:
        return []
    complaints: typing.List[typing.Tuple[str, typing.Optional[str], str]] = []
    for part, rows in ROWS.items():
        complaints += [(kernel, None, f"the probe prints an unknown row '{row}' in {part}")
                       for row in guest[part] if row not in rows]
        for row, (test, good, *bad) in rows.items():
            word = guest[part].get(row, {}).get("result")
            right, result = bad if test in defects else [good], guest["tests"].get(test)
            if result == "skip":
                right = ["unavailable"]
            elif not result and (reference or guest)[part].get(row, {}).get("result") == "unavailable":
                right = ["unavailable"]
            if word is None:
                complaints.append((kernel, None, f"the probe does not print {row}"))
            elif word not in right:
                complaints.append((kernel, None, f"the probe reports {word} for {row}, expected {' or '.join(right)}"))
    return complaints


def judge_skips(stock: typing.Dict[str, typing.Any], patched: typing.Dict[str, typing.Any], expected: Expected
                ) -> typing.List[typing.Tuple[str, typing.Optional[str], str]]:
    """Complaints about tests that the patched kernel skips, or that it runs although they are listed as skipped."""
    complaints, skips = [], expected.skips
    for test, result in patched["tests"].items():
        reason, listed = patched["reasons"].get(test, "no reason given"), (skips or {}).get(test)
        if result != "skip":
            if listed and not listed.may:
                complaints.append((test, "is listed as skipped, but was not"))
        elif listed:
            if reason != listed.reason:
                complaints.append((test, f"is skipped for a reason other than the listed one: {reason}"))
        elif skips is not None:
            complaints.append((test, f"is skipped, but is not listed as skipped: {reason}"))
        elif stock["tests"].get(test, "skip") != "skip" and test not in expected.lacks:
            complaints.append((test, "is skipped, but stock ran it"))
    complaints += [(test, "is listed as skipped, but does not exist")
                   for test in sorted((skips or {}).keys() - patched["tests"].keys()) if patched["tests"]]
    return [("patched", test, what) for test, what in complaints]


def judge_suite(kernel: str, guest: typing.Dict[str, typing.Any], whole: typing.Set[str]
                ) -> typing.List[typing.Tuple[str, typing.Optional[str], str]]:
    """Complaints about a guest that did not run exactly the tests @whole."""
    if guest["error"]:
        return []
    gone, others = sorted(whole - guest["tests"].keys()), sorted(guest["tests"].keys() - whole)
    return [(kernel, None, f"{what}: {' '.join(tests[:3])}{' ...' * (len(tests) > 3)}") for tests, what in (
        (gone, f"did not run {len(gone)} of the suite's {len(whole)} tests"),
        (others, f"printed results of {len(others)} other tests")) if tests]


def judge_oops(expected: Expected, guests: typing.Sequence[typing.Tuple[typing.Dict[str, str], typing.Optional[str]]]
               ) -> typing.Tuple[typing.List[typing.Tuple[str, typing.Optional[str], str]], typing.Dict[str, str]]:
    """(complaints, results of the tests that ran). @guests: the results of read_oops() for the stock kernel's guests.
    If a single guest ran all of these tests, it suffices that one test crashed it: the tests after that have no result,
    and those before it may be races that the kernel happened to win."""
    listed, ran = deadly(expected.fails), {}
    complaints = [("oops.*", wrong) for _, wrong in guests if wrong]
    for results, _ in guests:
        ran.update(results)
    for test in sorted(listed):
        how, wanted = ran.get(test), "fail" if test in expected.survived else "dies"
        if how != wanted and ("dies" not in ran.values() or len(guests) > 1):
            complaints.append((test, f"is listed as {'failing' if wanted == 'fail' else 'crashing the kernel'}, "
                               f"but the result is: {how or 'not run'}"))
    complaints += [(test, f"{'crashes the kernel' if how == 'dies' else 'fails'}, but is not listed")
                   for test, how in sorted(ran.items()) if how in ("dies", "fail") and test not in listed]
    return [("stock", test, what) for test, what in complaints], ran


def judge(stock: typing.Dict[str, typing.Any], patched: typing.Dict[str, typing.Any], expected: Expected
          ) -> typing.List[typing.Tuple[str, typing.Optional[str], str]]:
    """A list of (kernel, test, complaint), one for each difference from the expected results."""
    complaints: typing.List[typing.Tuple[str, typing.Optional[str], str]] = [
        (name, None, guest["error"]) for name, guest in (("stock", stock), ("patched", patched)) if guest["error"]]
    complaints += judge_probe("stock", stock, expected.fails if expected.defects is None else expected.defects)
    left = expected.left or set()
    complaints += judge_probe("patched", patched, left, stock)
    complaints += [("patched", test, patched["reasons"].get(test, "failed"))
                   for test, result in patched["tests"].items() if result == "fail" and test not in left]
    complaints += [("patched", test, f"is listed as failing with the feature alone, but the result is: {result}")
                   for test, result in patched["tests"].items() if result != "fail" and test in left]
    complaints += [("patched", test, "is listed as failing with the feature alone, but does not exist")
                   for test in sorted(left - patched["tests"].keys()) if patched["tests"]]
    complaints += judge_skips(stock, patched, expected)
    if patched["tests"] and expected.left is None:
        for test in sorted(deadly(expected.fails) - {t for t, r in patched["tests"].items() if r != "skip"}):
            complaints.append(("patched", test, "is listed as crashing stock, and was not run here"))
    listed = expected.fails - deadly(expected.fails)
    for test, result in stock["tests"].items():
        if result == "fail" and test not in listed:
            complaints.append(("stock", test, "fails, but is not listed as failing: " +
                               stock["reasons"].get(test, "no reason given")))
        elif result != "fail" and test in listed:
            complaints.append(("stock", test, "is listed as failing on stock, but the result is: " + result))
    if stock["tests"]:
        for test in sorted(listed - stock["tests"].keys()):
            complaints.append(("stock", test, "is listed as failing on stock, but does not exist"))
    if not stock["error"] and not patched["error"]:
        ran = [guest["tests"].keys() for guest in (stock, patched)]
        if ran[0] - deadly(ran[0]) != ran[1] - deadly(ran[1]):
            complaints.append(("patched", None, "did not run the same tests as stock"))
    for kernel, guest, whole in zip(("stock", "patched"), (stock, patched), expected.suite or ()):
        complaints += judge_suite(kernel, guest, whole)
    return complaints


def judge_live(guests: typing.Dict[str, typing.Dict[str, typing.Any]], expected: typing.Dict[str, typing.Set[str]],
               defects: typing.Dict[str, typing.Set[str]], suites: typing.Dict[str, typing.Set[str]],
               skips: typing.Mapping[str, Skip]) -> typing.List[typing.Tuple[str, typing.Optional[str], str]]:
    """Like judge(), for the parts "before", "loaded" and "after" of a run with the live patch: a list of (part, test,
    complaint). @suites: the tests that each part must run; @expected: those of them that must fail; @defects: those
    that fail in a whole run. @skips: those that the kernel with the series skips; Debian's kernel has more options, and
    may run them."""
    complaints: typing.List[typing.Tuple[str, typing.Optional[str], str]] = []
    for part, guest in guests.items():
        if guest["error"]:
            complaints.append((part, None, guest["error"]))
            continue
        for test, result in guest["tests"].items():
            if result == "fail" and test not in expected[part]:
                complaints.append((part, test, "fails, but is not listed as failing: " +
                                   guest["reasons"].get(test, "no reason given")))
            elif result != "fail" and test in expected[part]:
                complaints.append((part, test, f"is listed as failing, but the result is: {result}"))
            elif result == "skip" and guests["before"]["tests"].get(test, "skip") != "skip":
                complaints.append((part, test, "is skipped, but was not before"))
        complaints += [(part, test, "is listed as failing, but does not exist")
                       for test in sorted(expected[part] - guest["tests"].keys())]
        complaints += judge_suite(part, guest, suites[part])
    complaints += [("loaded", test, what) for _, test, what in judge_skips(
        guests["before"], guests["loaded"], Expected(set(), skips={
            test: skip._replace(may=True) for test, skip in skips.items() if test in guests["loaded"]["tests"]}))]
    for part in ("before", "loaded"):
        complaints += judge_probe(part, guests[part], defects[part], guests["before"])
    if any(guests["after"][part] != guests["before"][part] for part in ROWS):
        complaints.append(("after", None, "the probe does not print the same as before"))
    return complaints


def killers(names: typing.Collection[str], ran: typing.Any, dies: typing.Collection[str] = ()
            ) -> typing.Tuple[typing.List[str], typing.List[str]]:
    """Judges a mutant that the tests @names, names or globs, must notice: (tests that do, reasons why it survives).
    @ran: a tree.Ran.

    Each named test must fail. Of the tests that match a glob, at least one must fail and none may pass; skipped tests
    do not count, because the machine may lack what they need. Only a failed expectation counts as a failure: any kernel
    that is broken enough causes setup errors and tests without a verdict. A test of oops.* or @dies notices the mutant
    if the kernel crashes during it, not if it only prints a warning; of several such tests one suffices, as the crash
    ends the guest."""
    expectations, notice, survives = set(EXPECTATION.findall(ran.output)), [], []
    fatal = deadly(names) | set(dies)
    crash = [test for name in fatal for test in fnmatch.filter([ran.crashed or ""], name)]
    for name in [name for name in names if name not in fatal]:
        passed, failed, skipped = (fnmatch.filter(results, name) for results in ran.results)
        killed = [test for test in failed if test in expectations]
        notice += killed
        if passed:
            survives.append(" ".join(passed))
        elif not killed:
            error = ktap.reasons(ran.output).get(failed[0], "none given") if failed else None
            why = f"failed by an error, not by an expectation: {error}" if error else \
                "was skipped" if skipped else "did not run"
            survives.append(f"{name}, which {why}")
    if fatal and not crash:
        where = f", the kernel crashed in {ran.crashed}" if ran.crashed else ""
        survives.append(" ".join(sorted(fatal)) + where)
    return notice + crash[:1], survives


def differs(expected: typing.Mapping[str, str], ran: typing.Any) -> typing.Optional[str]:
    """The first difference between a run and @expected, name -> result, as text; None if there is none. A run may
    stop at its first failure; the tests that are missing then are not reported. @ran: a tree.Ran."""
    results = dict(ktap.results(ran.output.split("\n")))
    for test, result in results.items():
        if result == "fail" and expected.get(test) != "fail":
            return f"{test} fails: {ktap.reasons(ran.output).get(test, 'no reason given')}"
    if ran.outcome not in ("passed", "failed"):
        where = f" in {ran.during}" if ran.during else f" after {list(results)[-1]}" if results else ""
        return f"{ran.outcome}{where}{': ' + ran.splats[0] if ran.splats else ''}"
    for test, result in results.items():
        if result != expected.get(test):
            return f"{test}: {result}, not {expected.get(test)}"
    missing = sorted(expected.keys() - results.keys())
    return f"the suite ended before {missing[0]}" if missing else None


def count(guest: typing.Dict[str, typing.Any], result: str) -> int:
    return sum(1 for r in guest["tests"].values() if r == result)


def table(guests: typing.Mapping[str, typing.Dict[str, typing.Any]], fails: typing.Set[str],
          died: typing.Collection[str] = ()) -> typing.List[typing.Optional[typing.List[str]]]:
    """The rows of the table: lists of cells, or None for a line. @guests: title -> guest, the stock kernel first, which
    must fail the tests @fails; @died: the tests that crashed it."""
    stock, *others = guests.values()
    rows = [["side effect of a rejected hit", *guests], None]
    rows += [[effect["title"], *(guest["effects"].get(effect_id, {"result": "?"})["result"]
                                 for guest in guests.values())] for effect_id, effect in stock["effects"].items()]
    # These rows are printed only if a stop does not work on one of the kernels.
    if any(stop["result"] != "works" for guest in guests.values() for stop in guest["stops"].values()):
        rows.append(None)
        rows += [[stop["title"], *(guest["stops"].get(stop_id, {"result": "?"})["result"]
                                   for guest in guests.values())] for stop_id, stop in stock["stops"].items()]
    rows.append(None)
    listed, failed = fails - deadly(fails), {t for t, r in stock["tests"].items() if r == "fail"}
    as_listed = ", as listed" if failed and listed == failed - deadly(failed) else ""
    for what, result in (("passed", "pass"), ("failed", "fail"), ("skipped", "skip")):
        rows.append([f"tests {what}", f"{count(stock, result)}{as_listed if result == 'fail' else ''}",
                     *(str(count(guest, result)) for guest in others)])
    if died:
        rows.append(["tests seen to crash the kernel", str(len(died)), *("0" for _ in others)])
    return rows


def colour(cell: str, width: int) -> str:
    """Pads a cell and, on a terminal, colours results: good, bad and unknown."""
    code = 32 if cell in GOOD else 31 if cell in BAD else 33 if cell in ("unknown", "?") else None
    padded = cell.ljust(width)
    plain = code is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return padded if plain else f"\033[{code}m{padded}\033[0m"


def print_table(rows: typing.Sequence[typing.Optional[typing.List[str]]]) -> None:
    widths = [max(len(row[i]) for row in rows if row) for i in range(len(rows[0] or ()))]
    for row in rows:
        cells = ["-" * w for w in widths] if row is None else [
            colour(cell, width) for cell, width in zip(row, widths)]
        print("  ".join(cells).rstrip())


def conclude(complaints: typing.Collection[typing.Tuple[str, typing.Optional[str], str]]) -> int:
    """Prints the complaints; returns the exit code."""
    for kernel, test, what in complaints:
        print(f"WRONG  {kernel}: {test + ': ' if test else ''}{what}")
    print(f"verdict: {f'{len(complaints)} complaints' if complaints else 'as expected'}")
    return 1 if complaints else 0


def tap(guests: typing.Mapping[str, typing.Dict[str, typing.Any]],
        complaints: typing.Iterable[typing.Tuple[str, typing.Optional[str], str]],
        died: typing.Iterable[str] = ()) -> str:
    """The TAP: one line for each test in each of @guests (name -> guest), "ok" if it has the expected result."""
    # A "#" in a test's message would begin a directive: "not ok ... # TODO" does not count as a failure.
    lines: typing.List[str]
    wrong: typing.Dict[typing.Tuple[str, typing.Optional[str]], str]
    what: typing.Optional[str]
    lines, wrong = [], {}
    for kernel, test, what in complaints:
        wrong[kernel, test] = "; ".join(filter(None, [wrong.get((kernel, test)), what.replace("#", "no.")]))
    for kernel, guest in guests.items():
        for test, result in guest["tests"].items():
            what = wrong.pop((kernel, test), None)
            note = " # SKIP" if result == "skip" and not what else ""
            how = f": {what}" if what else " fails, as listed" if result == "fail" else ""
            lines.append(f"{'not ok' if what else 'ok'} {len(lines) + 1} {kernel}: {test}{how}{note}")
    for test in sorted(died):
        what = wrong.pop(("stock", test), None)
        lines.append(f"{'not ok' if what else 'ok'} {len(lines) + 1} stock: {test}: "
                     f"{what or 'crashes the kernel, as listed'}")
    for (kernel, test), what in wrong.items():
        lines.append(f"not ok {len(lines) + 1} {kernel}: {test + ': ' if test else ''}{what}")
    return "\n".join(lines + [f"1..{len(lines)}"]) + "\n"
