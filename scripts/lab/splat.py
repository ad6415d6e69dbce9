# SPDX-License-Identifier: GPL-2.0
"""Finds kernel splats on a console."""
import fnmatch
import pathlib
import re
import typing

from lab import SCRIPTS, die, printable

SPLAT = re.compile(r"""
      # No leading \b: output of a program may directly precede the first word on the same line.
      WARNING:\                          # WARN(), lockdep, RCU
    | (?<!DE)BUG:                        # BUG(), NULL dereference, KASAN, KCSAN, sleeping
    | BUG\ \S+\ \((?:Not\ t|T)ainted    # SLUB
    | kernel\ BUG\ at
    | Oops:
    | general\ protection\ fault(?!\ ip:)  # "traps: PROGRAM[PID] ... ip:" is a program's fault
    | UBSAN:
    | Kernel\ panic
    | unreferenced\ object               # kmemleak
    | new\ suspected\ memory\ leaks
    | trying\ to\ register\ non-static\ key
    | INFO:.*(detected\ (?:expedited\ )?stall|self-detected)  # RCU, and its tasks
    | INFO:\ task\ .*\ blocked\ (?:in\ I/O\ wait\ )?for
    | watchdog:\ BUG
    | hard\ LOCKUP
    | possible\ recursive\ locking
    | circular\ locking\ dependency
    | inconsistent\ lock\ state
    | suspicious\ RCU\ usage
    | refcount_t:
    | list_(?:add|del)\ corruption
    | stack\ guard\ page
    | unchecked\ MSR\ access\ error
    | Uhhuh\.\ NMI\ received
    | Unable\ to\ handle\ kernel        # arm64
    | Unexpected\ kernel\ (?:single-step|BRK)\ exception  # arm64
    | \w:\ [0-9a-f]{4,16}\ \[\#\d+\]  # die(), on x86 up to 6.11 without "Oops: "
    | PANIC:\ double\ fault
    | Internal\ error:                  # arm64
    | huh,\ entered\ softirq
    | exited\ with\ (?:preempt_count|irqs\ disabled)
    | scheduling\ from\ the\ idle\ thread
    | NOHZ\ tick-stop\ error
    | irq\ \d+:\ no\w+\ cared
    | No\ irq\ handler\ for\ vector
    | non-responsive\ CSD\ lock
    | ref_ctr\ going\ negative
    | percpu:\ allocation\ failed
    | ODEBUG:\ Out\ of\ memory
    | Kernel\ memory\ leak\ detector\ disabled
    | INFO:\ lockdep\ is\ turned\ off
    | printk\ messages\ dropped          # a splat may be among them
""", re.VERBOSE)
# The timestamp of a kernel message, with the caller if the kernel prints it.
TIME = re.compile(r"\[ *\d+\.\d{6}\](?:\[ *[TC]\d+\])? ")
# The number of following lines in which "then" of an allow-splats entry must match, or the end of a line that was cut.
AFTER = 10
# Each test writes its name to /dev/kmsg when it starts.
MARKER = re.compile(r"perf_bpf_filter: test (\S+)")
RELEASE = re.compile(r"Linux version (\S+)")
# scripts/boot sets oops=panic. Init dies of a signal, not of an oops.
CRASH = re.compile(r"Kernel panic(?!.*Attempted to kill init)")


class Allowed(typing.NamedTuple):
    """An entry of allow-splats."""
    pattern: typing.Union[str, typing.Pattern[str]]
    reason: str
    bases: typing.List[str]  # empty: all
    line: str     # an example, a splat without this entry, with the lines that follow it
    tests: str    # applies only while a test that matches this glob runs
    then: str     # applies only if one of the next lines matches


def read_allowed(path: pathlib.Path = SCRIPTS / "allow-splats") -> typing.List[Allowed]:
    entries = []
    for block in re.split(r"\n\s*\n", re.sub(r"^#.*\n", "", path.read_text(), flags=re.M).strip()):
        fields = dict(re.findall(r"^(\w+): +(.*(?:\n\s+\S.*)*)", block, re.M))
        if fields.keys() - {"tests", "then"} != {"pattern", "reason", "bases", "line"}:
            die(f"{path}: an entry has pattern, reason, bases, line and maybe tests and then, "
                f"not {', '.join(fields) or 'nothing'}")
        bases = [] if fields["bases"] == "all" else fields["bases"].split()
        entries.append(Allowed(fields["pattern"], " ".join(fields["reason"].split()), bases,
                               re.sub(r"\n\s+", "\n", fields["line"]), fields.get("tests", "*"),
                               fields.get("then", "")))
    return entries


def cut_in_two(line: str, following: typing.Iterable[str]) -> typing.Iterator[str]:
    """What @line may be if the timestamp of another CPU's message interrupts it: its end follows after the timestamp,
    or after the whole message, or several, in the first of the lines @following without a timestamp."""
    if cut := TIME.search(line, 1):
        yield line[:cut.start()] + line[cut.end():]
        yield from (line[:cut.start()] + end for end in [end for end in following if not TIME.match(end)][:1])


def splats(console: str, allowed: typing.Optional[typing.Iterable[Allowed]] = None
           ) -> typing.List[typing.Dict[str, typing.Any]]:
    """The kernel splats on a console, each with the test that was running."""
    release = RELEASE.search(console)
    base = re.match(r"\d+\.\d+", release[1] if release else "")
    harmless: typing.List[typing.Any] = [
        entry._replace(pattern=re.compile(entry.pattern))
        for entry in (read_allowed() if allowed is None else allowed)
        if not entry.bases or base and base[0] in entry.bases]
    test: typing.Optional[str]
    found: typing.List[typing.Dict[str, typing.Any]]
    test, found = None, []
    lines = console.splitlines()

    def splat_of(part: str, number: int) -> typing.Optional[typing.Dict[str, typing.Any]]:
        for entry in harmless:
            if fnmatch.fnmatchcase(test or "", entry.tests) and \
                    any(re.search(entry.then, line[:5120]) for line in lines[number + 1:number + 1 + AFTER] or [""]):
                part = entry.pattern.sub("", part)
        splat: typing.Any = SPLAT.search(part)
        return splat and {"line": printable(part[max(0, splat.start() - 80):][:400].strip("\r")), "test": test}

    for number, line in enumerate(lines):
        # Programs also write to the console, so a splat may follow a marker or other text on the same line. A long
        # line is searched in overlapping parts: the patterns would take too long on all of it.
        for at in range(0, len(line) or 1, 4096):
            part = line[at:at + 5120]
            marker = MARKER.search(part)
            test = marker[1] if marker else test
            whole = [part, *cut_in_two(part, (end[:5120] for end in lines[number + 1:number + 1 + AFTER]))]
            if splat := next(filter(None, (splat_of(each, number) for each in whole)), None):
                found.append(splat)
                break
    return found


def crashed(found: typing.Iterable[typing.Dict[str, typing.Any]]) -> typing.Optional[str]:
    """The test during which the kernel crashed; None if it printed only warnings."""
    return next((splat["test"] for splat in found if CRASH.search(splat["line"])), None)


def stale_int3(console: str, found: typing.Sequence[typing.Dict[str, typing.Any]]) -> bool:
    """Whether the first splat is an int3 that the CPU executed although memory does not contain it."""
    if not found or "int3: 0000" not in found[0]["line"]:
        return False
    code = re.compile(r"\bCode: (?:\w\w )*(\w\w) <\w\w>").search(console, console.index("int3: 0000"))
    return bool(code and code[1] != "cc")
