# SPDX-License-Identifier: GPL-2.0
"""The measurements of make bench. The folder of a base has stock-bench and patched-bench, which scripts/boot wrote for
runs of "perf_bpf_bench --json".

patches/expect/linux-X.Y/instructions has a line for each way to hit a breakpoint: its name, the instructions with the
series and, if no program is attached, those on stock. Its first line names the compiler, because the figures depend on
the compiler and on Kconfig.fragment.
"""
import json
import pathlib
import re
import typing

from lab import columns, die, ktap, replace, results

KERNELS = {"stock": "stock", "patched": "series"}  # the folder's name and ours
USER_CODE = ("bare",)  # ways that do not enter the kernel
ABREAST = 4  # bases side by side, in 100 columns
PARTS = ("ways", "overflows", "stops")
TITLES = ("id", "title", "program", "available", "why")  # the others are figures


def read_measured(text: str) -> results.Entry:
    """The output of perf_bpf_bench, with its rows by ID."""
    printed = json.loads(text)
    return printed | {part: {row["id"]: row for row in printed.get(part, [])} for part in PARTS}


def read_guest(folder: pathlib.Path) -> results.Entry:
    """The measurements of a guest, and the compiler of its kernel."""
    try:
        measured = read_measured((folder / "output.log").read_text().replace("guest-init: up", "", 1))
        console = (folder / "console.log").read_text(errors="replace")
        if not measured["ways"]:
            raise ValueError("no ways")
    except (OSError, ValueError, KeyError, TypeError) as error:
        die(f"{folder}: no measurements ({error})", 2)
    compiler = re.search(r"Linux version \S+ \(\S+\) \((.+?), (?:GNU ld|LLD)", console)
    return measured | {"compiler": compiler[1] if compiler else "an unknown compiler"}


def read(folder: pathlib.Path, required: typing.Collection[str] = tuple(KERNELS)) -> typing.Dict[str, results.Entry]:
    """Kernel -> measurements. A kernel that is not @required may be missing."""
    folders = {kernel: folder / f"{kernel}-bench" for kernel in KERNELS}
    return {kernel: read_guest(path) for kernel, path in folders.items() if kernel in required or path.exists()}


def read_here(log: pathlib.Path) -> results.Entry:
    """The output of a run on this machine."""
    try:
        return read_measured(log.read_text())
    except (OSError, ValueError) as error:
        die(f"{log}: no measurements ({error})", 2)


def p50(guest: results.Entry, part: str, way: str) -> typing.Optional[int]:
    """The median; None if the kernel does not support this way."""
    return guest[part].get(way, {}).get("p50")


def print_guests(bases: typing.Dict[str, typing.Dict[str, results.Entry]], part: str, title: str) -> None:
    """A table of the ways that at least one guest measured, and the reasons why other guests lack them."""
    rows_of = {column: bases[column[0]][column[1]][part] for base in bases for kernel in KERNELS
               for column in [(base, kernel)]}
    titles = {way: row["title"] for rows in rows_of.values() for way, row in rows.items()}
    rows = [["", *(base if kernel == "stock" else "" for base, kernel in rows_of)],
            [title, *(KERNELS[kernel] for _, kernel in rows_of)]]
    missing: typing.Dict[str, typing.Dict[str, None]] = {}
    for way, name in titles.items():
        figures = {column: p50(bases[column[0]][column[1]], part, way) for column in rows_of}
        if set(figures.values()) == {None}:
            continue
        rows.append([name, *("-" if figure is None else str(figure) for figure in figures.values())])
        for (base, kernel), figure in figures.items():
            why = rows_of[base, kernel].get(way, {}).get("why")
            if figure is None and why:
                missing.setdefault(why, {})[f"{base} {KERNELS[kernel]}"] = None
    if len(rows) > 2:
        print("\n".join(columns(rows)))
        for why, where in missing.items():
            print(f"# -: {why} ({', '.join(where)})")
        print()


def number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def print_here(here: results.Entry, part: str) -> None:
    rows = here[part].values()
    names = list(dict.fromkeys(name for row in rows for name in row if name not in TITLES))
    if names:
        print("\n".join(columns([[here.get(f"{part}.title", part), *names], *(
            [row["title"], *(number(row[name]) if name in row else "-" for name in names)]
            for row in rows if row["available"])])))
    for row in rows:
        if not row["available"]:
            print(f"# {row['title']}: {row['why']}")
    if names:
        print()


HERE = """\
Times of this machine, Linux {kernel}, median of {rounds} rounds. Other programs ran meanwhile:
compare figures of one table only."""
VIRTUAL = """\
It is virtual: an exception may cost microseconds, so that methods that cost less look the same, and methods with
one exception look better than those with two."""


def print_tables(bases: typing.Dict[str, typing.Dict[str, results.Entry]], here: typing.Optional[results.Entry]
                 ) -> None:
    for part in PARTS:
        titles = [guest[f"{part}.title"].replace("ticks", "guest instructions")
                  for guests in bases.values() for guest in guests.values() if f"{part}.title" in guest]
        for at in range(0, len(bases), ABREAST):
            print_guests(dict([*bases.items()][at:at + ABREAST]), part, titles[0] if titles else "guest instructions")
    if here:
        print(HERE.format(**here))
        print((VIRTUAL + "\n") if here["virtual"] else "")
        for part in PARTS:
            print_here(here, part)


def guarded(guests: typing.Dict[str, results.Entry]) -> typing.List[results.Entry]:
    return [way for way in guests["patched"]["ways"].values()
            if way["id"] not in USER_CODE and way["available"]]


def read_committed(path: pathlib.Path) -> typing.Tuple[str, typing.Dict[str, int], typing.Dict[str, int]]:
    """(compiler, way -> instructions with the series, way -> instructions on stock)"""
    try:
        lines = path.read_text().splitlines()
        rows = [line.split() for line in lines if line.strip() and not line.startswith("#")]
        return lines[0].removeprefix("# "), {row[0]: int(row[1]) for row in rows}, \
            {row[0]: int(row[2]) for row in rows if len(row) > 2}
    except (OSError, ValueError, IndexError) as error:
        die(f"{path}: {error}; run scripts/prove/bench --record", 2)


def compare(base: str, folder: pathlib.Path, path: pathlib.Path) -> typing.Iterator[typing.Tuple[typing.Any, ...]]:
    """Compares the guests with the file "instructions"; without a guest of stock, the figures of stock are those of the
    file. Yields the tests: (whether it passed, its text, and optionally a TAP directive)."""
    way: typing.Any  # a row or its name
    name, guests = "/".join(path.parts[-4:]), read(folder, ["patched"])
    compiler, committed, on_stock = read_committed(path)
    ours = guests["patched"]["compiler"]
    measured = guarded(guests)
    for way in measured:
        cost, most = way["p50"], committed.get(way["id"])
        if compiler != ours:
            yield True, way["title"], f"SKIP {name} was measured with {compiler}, this with {ours}"
        elif most is None:
            yield False, f"{way['title']} is not in {name}; run scripts/prove/bench --record {base}"
        elif cost > most:
            yield False, f"{way['title']} costs {cost} instructions, {cost - most} more than {name} says"
        elif cost < most:
            yield True, f"{way['title']} costs {cost} instructions, {most - cost} less than {name} says"
        else:
            yield True, f"{way['title']} costs {cost} instructions, as {name} says"
    for way in sorted(committed.keys() - {way["id"] for way in measured}):
        yield False, f"{way} is in {name} and was not measured"
    for way in measured:
        if way["program"]:
            continue
        cost = way["p50"]
        stock = p50(guests["stock"], "ways", way["id"]) if "stock" in guests else on_stock.get(way["id"])
        if "stock" not in guests and compiler != ours:
            yield True, way["title"], f"SKIP stock was measured with {compiler}, this with {ours}"
        elif stock is None:
            yield False, f"{way['title']} was not measured on stock"
        elif cost > stock:
            yield False, f"{way['title']} costs {cost} instructions, {cost - stock} more than on stock"
        else:
            yield True, f"{way['title']} costs {cost} instructions, no more than the {stock} on stock"


def check(base: str, folder: pathlib.Path, path: pathlib.Path) -> int:
    tap = ktap.Printer(f"bench {base}: ")
    for good, text, *note in compare(base, folder, path):
        tap.test(good, text, *note)
    return tap.end()


def record(base: str, guests: typing.Dict[str, results.Entry], path: pathlib.Path) -> None:
    ways = guarded(guests)
    text = f"""\
# {guests["patched"]["compiler"]}
# SPDX-License-Identifier: GPL-2.0
# Guest instructions of one hit with the series and, if no program is attached, on stock:
# "scripts/prove/bench --check {base}" compares them with it, "--record" writes it again.
"""
    for way in ways:
        stock = "" if way["program"] else p50(guests["stock"], "ways", way["id"])
        text += f"{way['id']:20}{way['p50']:>6}{stock:>7}".rstrip() + "\n"
    replace(path, text)
