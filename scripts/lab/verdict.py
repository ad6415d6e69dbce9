# SPDX-License-Identifier: GPL-2.0
"""What the stock and the patched guest said, judged, and as a table. The patched kernel must pass
every test; the stock kernel must fail those that are listed, and no other. Those of the theme "oops"
it need not survive: it must die of them, in a guest of their own, if they are listed."""
import json
import os
import sys

from lab import ktap, printable
from lab.base import deadly


def read_run(text):
    """What perf_bpf_probe --json and the suite printed, as a dictionary; "error" is None if it can be
    trusted."""
    run = {"error": None, "tests": {}, "effects": {}, "stops": {}, "reasons": {}, "took": {}}
    probe, _, tests = text.partition("TAP version ")
    try:
        said = json.loads(probe)
        for part, found in (("effects", said["effects"]), ("stops", said.get("stops", []))):
            run[part] = {printable(str(e["id"])): {
                **e, "title": printable(str(e["title"])), "result": printable(str(e["result"]))} for e in found}
    except (ValueError, KeyError, TypeError, RecursionError):
        run["error"] = "perf_bpf_probe gave no result"
    try:
        run["tests"] = ktap.parse(("TAP version " if tests else "") + tests)
    except ktap.Bad as error:
        run["error"] = str(error)
    run["reasons"], run["took"] = ktap.reasons(tests), ktap.took(tests)
    return run


def read_guest(folder, may_skip_all=False):
    """What a boot left in its folder, as read_run(). @may_skip_all: nothing but tests to skip is right, too."""
    guest = {"logs": str(folder)}
    try:
        guest.update({"exit": None, **json.loads((folder / "boot.json").read_text())})
        guest["outcome"] = str(guest["outcome"])
        # Not read_text(), to which a lone CR in a test's message is the end of a line.
        text = (folder / "output.log").read_bytes().decode(errors="replace").replace("\r\n", "\n")
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise SystemExit(f"report: {folder}: {error}; scripts/boot writes what is missing")
    guest.update(read_run(text.replace("guest-init: up\n", "", 1)))
    if guest["outcome"] not in ("passed", "failed"):
        guest["error"] = guest["outcome"] + (f": {guest['splats'][0]['line']}"
                                             if guest.get("splats") else "")
    elif may_skip_all and guest["exit"] == 4 and set(guest["tests"].values()) == {"skip"}:
        pass  # so it ends for kselftest
    elif guest["exit"] != ("fail" in guest["tests"].values()) and not guest["error"]:
        guest["error"] = f"exit code {guest['exit']} does not fit the test results"
    return guest


def judge(stock, patched, expected, dead, lacks=()):
    """A list of (kernel, test, complaint): what is not as it must be. @lacks: tests of what Debian's
    configuration has and the patched kernel's has not."""
    complaints = [(name, None, guest["error"])
                  for name, guest in (("stock", stock), ("patched", patched)) if guest["error"]]
    if deadly(expected) and dead != "splat":
        complaints.append(("stock", "oops.*", f"is listed as crashing the kernel and did not: {dead}"))
    for effect_id, effect in patched["effects"].items():
        if effect["result"] not in ("suppressed", "untouched", "unavailable"):
            complaints.append(("patched", None, f"{effect_id} is {effect['result']}, says the probe"))
    for stop in patched["stops"].values():
        if stop["result"] != "works":
            complaints.append(("patched", None, f"{stop['title']}: {stop['result']}, says the probe"))
    for test, result in patched["tests"].items():
        if result == "fail":
            complaints.append(("patched", test, patched["reasons"].get(test, "failed")))
        elif result == "skip" and stock["tests"].get(test, "skip") != "skip" and test not in lacks:
            complaints.append(("patched", test, "is skipped, but stock ran it"))
    if patched["tests"]:
        for test in sorted(deadly(expected) - {t for t, r in patched["tests"].items() if r != "skip"}):
            complaints.append(("patched", test, "is listed as crashing stock, and was not run here"))
    expected = expected - deadly(expected)
    for test, result in stock["tests"].items():
        if result == "fail" and test not in expected:
            complaints.append(("stock", test, "fails, but is not listed as failing: " +
                               stock["reasons"].get(test, "no reason given")))
        elif result != "fail" and test in expected:
            complaints.append(("stock", test, "is listed as failing on stock and did not: " + result))
    if stock["tests"]:
        for test in sorted(expected - stock["tests"].keys()):
            complaints.append(("stock", test, "is listed as failing on stock, but does not exist"))
    if not stock["error"] and not patched["error"] and \
            stock["tests"].keys() - deadly(stock["tests"]) != \
            patched["tests"].keys() - deadly(patched["tests"]):
        complaints.append(("patched", None, "did not run the same tests as stock"))
    return complaints


def count(guest, result):
    return sum(1 for r in guest["tests"].values() if r == result)


def table(stock, patched, expected):
    """The rows of the table: lists of three cells; None is a rule."""
    releases = [guest.get("kernel") or "?" for guest in (stock, patched)]
    rows = [["side effect of a rejected hit", f"{releases[0]} stock", f"{releases[1]} + series"], None]
    for effect_id, effect in stock["effects"].items():
        rows.append([effect["title"], effect["result"],
                     patched["effects"].get(effect_id, {"result": "?"})["result"]])
    # Where all goes on as it should there is nothing to tell.
    if any(stop["result"] != "works" for guest in (stock, patched) for stop in guest["stops"].values()):
        rows.append(None)
        for stop_id, stop in stock["stops"].items():
            rows.append([stop["title"], stop["result"], patched["stops"].get(stop_id, {"result": "?"})["result"]])
    rows.append(None)
    as_listed = expected - deadly(expected) == {t for t, r in stock["tests"].items() if r == "fail"}
    fails = count(stock, "fail")
    rows.append(["tests passed", str(count(stock, "pass")), str(count(patched, "pass"))])
    rows.append(["tests failed", f"{fails}, as listed" if fails and as_listed else str(fails),
                 str(count(patched, "fail"))])
    rows.append(["tests skipped", str(count(stock, "skip")), str(count(patched, "skip"))])
    if deadly(expected):
        rows.append(["tests that crash the kernel", str(len(deadly(expected))), "0"])
    return rows


def colour(cell, width):
    """Pads the cell and, on a terminal, colours what a reader looks for."""
    code = {"suppressed": 32, "untouched": 32, "works": 32, "delivered": 31, "consumed": 31, "loses the next": 31,
            "does not stop": 31, "hits again": 31, "hits too seldom": 31, "unknown": 33, "?": 33}.get(cell)
    padded = cell.ljust(width)
    plain = code is None or not sys.stdout.isatty() or os.environ.get("NO_COLOR")
    return padded if plain else f"\033[{code}m{padded}\033[0m"


def print_table(rows):
    widths = [max(len(row[i]) for row in rows if row) for i in range(3)]
    for row in rows:
        cells = ["-" * w for w in widths] if row is None else [
            colour(cell, width) for cell, width in zip(row, widths)]
        print("  ".join(cells).rstrip())


def tap(stock, patched, complaints, expected):
    """One test for each test on each kernel, which passes if it came out as it must there."""
    # A "#" in what a test says would begin a directive: "not ok ... # TODO" is no failure.
    lines, wrong = [], {(kernel, test): what.replace("#", "no.") for kernel, test, what in complaints}
    for kernel, guest in (("stock", stock), ("patched", patched)):
        for test, result in guest["tests"].items():
            what = wrong.pop((kernel, test), None)
            note = " # SKIP" if result == "skip" and not what else ""
            how = f": {what}" if what else " fails, as listed" if result == "fail" else ""
            lines.append(f"{'not ok' if what else 'ok'} {len(lines) + 1} {kernel}: {test}{how}{note}")
    if deadly(expected) and ("stock", "oops.*") not in wrong:
        lines.append(f"ok {len(lines) + 1} stock: oops.* crashes the kernel, as listed")
    for (kernel, test), what in wrong.items():
        lines.append(f"not ok {len(lines) + 1} {kernel}: {test + ': ' if test else ''}{what}")
    return "\n".join(lines + [f"1..{len(lines)}"]) + "\n"
