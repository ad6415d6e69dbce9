# SPDX-License-Identifier: GPL-2.0
"""Compares the results of other projects' tests on the stock and on the patched kernel, for make peers."""
import pathlib
import typing

from lab import ktap, results

# The test of make peers that does what bpftrace's own test does, which bpftrace has disabled.
BPFTRACE, BPFTRACE_TEST = "bpftrace-watchpoint-running", "watchpoint - absolute address"


def judge(name: str, stock: typing.Mapping[str, str], patched: typing.Mapping[str, str],
          required: typing.Collection[str], fails: typing.Collection[str], out: pathlib.Path,
          command: str = "make peers") -> int:
    """Prints TAP, and returns the exit code. If all tests pass, notes for make results how many do, and the results of
    bpftrace's test, which make peers does not require. @name: the base; @required: the tests that must pass with the
    series; @fails: those that must fail without it; @out: the folder with the logs; @command: for make results."""
    tap, passed = ktap.Printer("peers: "), 0
    for test in dict.fromkeys([*stock, *patched, *required]):
        before, after = stock.get(test, "nothing"), patched.get(test, "nothing")
        passed += after == "PASS"
        if test in fails and before != "FAIL":
            tap.test(False, f"{test}: {before} on stock, which must fail; see {out}/stock.log")
        elif after == "PASS":
            tap.test(True, test if before == "PASS" else f"{test}, {before} on stock")
        elif before == after and test not in required:
            tap.test(True, test, f"SKIP {before} on both kernels; see {out}/stock.log")
        else:
            tap.test(False, f"{test}: {before} on stock, {after} with the series; see {out}/patched.log")
    code = tap.end()
    if not code:
        results.note(command, "tests", name, passed)
    if not code and BPFTRACE in stock:
        results.note(f'make peers, bpftrace "{BPFTRACE_TEST}"', "stock, series", name,
                     ", ".join(found.get(BPFTRACE, "nothing").lower() for found in (stock, patched)))
    return code
