#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Damages and forges the output of guests, which must never deceive scripts/report.

  forge.py [SEED [N]]    default: seed 1, 1000 forgeries. Prints TAP, one test for each kind of run.

The verdict may be green only if the run was, and then only with the same results. A test may print anything anywhere in
the output. But it cannot change the exit code, which is sent separately; a complete forged run with a matching exit
code could not be detected.
"""
import json
import pathlib
import random
import sys
import tempfile
import typing

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from lab import verdict as report  # noqa: E402

NAMES = ["a.one", "a.two", "b.listed", "b.other", "c.skipped", "d.last"]
EXPECTED = {"b.listed"}


def output(results: str, probe: str = "suppressed") -> bytes:
    """The output of a guest with these results: "p" for pass, "f" for fail, "s" for skip."""
    rows = {part: [{"id": row, "title": row, "result": probe if row == "sigio" else good}
                   for row, (_, good, *_) in rows.items()] for part, rows in report.ROWS.items()}
    lines = ["guest-init: up", json.dumps(rows), "TAP version 13", f"1..{len(NAMES)}"]
    for number, (name, result) in enumerate(zip(NAMES, results), 1):
        if result != "p":
            lines.append(f"# {name}: 7 of 900 hits lost, 3 detaches")
        lines.append(f"{'not ok' if result == 'f' else 'ok'} {number} {name}"
                     f"{' # SKIP' if result == 's' else ''}")
    count = [results.count(result) for result in "pfs"]
    lines.append("# Totals: pass:%d fail:%d xfail:0 xpass:0 skip:%d error:0" % tuple(count))
    return ("\n".join(lines) + "\n").encode()


STOCK = (output("ppfpsp"), 1)
# Runs of the patched kernel: description, output, exit code, whether the verdict is green without damage.
RUNS = (
    ("a run that is right", output("ppppsp"), 0, True),
    ("a test that fails", output("pppfsp"), 1, False),
    ("results that belie the exit code", output("ppppsp"), 1, False),
    ("a suite killed in the middle", output("ppppsp").split(b"ok 4")[0], 137, False),
    ("a probe that sees what the tests do not", output("ppppsp", "delivered"), 0, False),
)
WHOLE = output("ppppsp").split(b"\n", 2)[2]
# Lines that a test may print to imitate the suite.
LINES = [line + b"\n" for line in WHOLE.split(b"\n") if line] + [
    b"1..0 # SKIP\n", b"1..1\n", b"1..6\n", b"1..999999999999\n", b"1.." + b"9" * 5000 + b"\n",
    "ok \u0664 b.other\n".encode(), b"ok 04 b.other\n", b"ok " + b"4" * 5000 + b" b.other\n",
    b"not ok 4 b.other # SKIP\n", b"not ok 4 b.other # TODO\n", b"    ok 4 b.other\n",
    b"KTAP version 1\n", b"TAP version 14\n", b"Bail out!\n", b"pragma +strict\n", b"exit 0\n",
    b"# Totals: pass:6 fail:0 xfail:0 xpass:0 skip:0 error:0\n", b"guest-init: up\n", WHOLE,
    WHOLE[WHOLE.index(b"ok 4"):]]
RUBBISH = [b"\0", b"\r", b"\x0b", b"\x0c", b"\x1c", b"\x85", "\u2028".encode(), b"\xff\xfe", b"\xc3",
           b"\x1b[2K", b"\x1b[1A", b"\b" * 40, b"\r\n", b"\n", b" ", b"#", b"# ", b"x: ",
           b"A" * 100000, b"[" * 100000]


def damage(rng: random.Random, text: bytes) -> bytes:
    """One to three changes."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        at, to = sorted((rng.randrange(len(text) + 1), rng.randrange(len(text) + 1)))
        line = text.rfind(b"\n", 0, at) + 1
        forged = rng.choice(LINES)
        text = rng.choice((
            lambda: text[:at],                                              # cut in the middle
            lambda: text[:line],
            lambda: text[:at] + text[to:],                                  # with a hole
            lambda: text[:to] + text[at:],                                  # doubled
            lambda: text + text[at:],
            lambda: text[:at] + forged + text[at:],                         # forged
            lambda: text[:line] + forged + text[line:],
            lambda: text[:line] + forged.replace(b"\n", b"\r") + text[line:],
            lambda: text[:line] + forged,
            lambda: text[:at] + b"\n" + forged + text[at:],
            lambda: text[:at] + rng.choice(RUBBISH) + text[at:],            # rubbish
            lambda: text[:line] + rng.choice(RUBBISH) + forged + text[line:],
            lambda: text[:at] + rng.randbytes(rng.randrange(1, 64)) + text[to:],
            lambda: text[:at] + bytes([text[at] ^ 1 << rng.randrange(8)]) + text[at + 1:]
            if at < len(text) else text,                                    # a bit
            lambda: text.replace(b"not ok", b"ok"),
            lambda: text.replace(b"\n", rng.choice(RUBBISH), 1),
        ))()
    return text


def verdict(folder: pathlib.Path, stock: typing.Tuple[bytes, int], patched: typing.Tuple[bytes, int]
            ) -> typing.Tuple[typing.Sequence[typing.Tuple], typing.List[typing.Dict[str, str]]]:
    """Judges outputs and exit codes; returns the complaints, and the results of both kernels."""
    guests: typing.List[typing.Dict[str, typing.Any]] = []
    for name, (text, code) in (("stock", stock), ("patched", patched)):
        (folder / name).mkdir(exist_ok=True)
        (folder / name / "output.log").write_bytes(text)
        (folder / name / "boot.json").write_text(json.dumps(
            {"outcome": "failed" if code else "passed", "exit": code}))
        guests.append(report.read_guest(folder / name))
    complaints = report.judge(guests[0], guests[1], report.Expected(EXPECTED))
    # The table and the TAP must be printable, whatever the guests printed.
    report.table(dict(zip(("stock", "patched"), guests)), EXPECTED)
    tap = report.tap(dict(zip(("stock", "patched"), guests)), complaints)
    assert tap.isprintable() or tap.replace("\n", "").isprintable(), "control characters in the TAP"
    assert ("\nnot ok " in "\n" + tap) == bool(complaints), "the TAP does not say so"
    return complaints, [guest["tests"] for guest in guests]


def main() -> int:
    seed, number = (int(argument) for argument in (sys.argv[1:] + ["1", "1000"][len(sys.argv) - 1:]))
    rng = random.Random(seed)
    failures, green = 0, 0
    print(f"1..{len(RUNS)}")
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        right = None
        for count, (what, text, code, good) in enumerate(RUNS, 1):
            complaints, results = verdict(folder, STOCK, (text, code))
            wrong = None if bool(complaints) != good else "undamaged, the verdict is the wrong one"
            right = right or results
            for i in range(number // len(RUNS)):
                stock, patched = STOCK, (damage(rng, text), code)
                if good and i % 2:
                    stock, patched = (damage(rng, STOCK[0]), STOCK[1]), (text, code)
                try:
                    complaints, results = verdict(folder, stock, patched)
                except Exception as error:  # not green, but not a readable verdict either
                    complaints, wrong = [], f"{type(error).__name__}: {error}"[:200]
                if not complaints and not (good and results == right):
                    wrong = wrong or "green"
                green += not complaints
                if wrong:
                    print(f"# after: {stock[0] if good and i % 2 else patched[0]!r}"[:3000])
                    break
            failures += bool(wrong)
            print(f"{'not ok' if wrong else 'ok'} {count} forge: {what}{': ' + wrong if wrong else ''}")
    print(f"# seed {seed}: {number // len(RUNS) * len(RUNS)} forgeries, "
          f"{green} harmless ones, {failures} kinds taken for green")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
