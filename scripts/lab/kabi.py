# SPDX-License-Identifier: GPL-2.0
"""Compares what two kernel builds with MODVERSIONS promise to modules. Each is a folder with Module.symvers, layouts
(the output of pahole), and *.symtypes files anywhere below, from KBUILD_SYMTYPES=1. The patched kernel must have each
symbol of the stock kernel, with its CRC, namespace and licence, each struct that a symbol reaches with its size, and
each member with its type and offset. It may have more. Differences in structs that no symbol reaches are printed, but
do not fail: no module can get one.
"""
import collections
import pathlib
import re
import typing

from lab import die

KINDS = {"s": "struct", "u": "union", "e": "enum", "t": "typedef", "E": "enumerator"}
MEMBER = re.compile(r"\s+(\S.*?);\s*/\*\s*(\d+)(?::\s*(\d+))?\s+(\d+)\s*\*/")


def read(path: pathlib.Path, missing: str) -> str:
    try:
        return path.read_text()
    except OSError as error:
        die(f"{path}: {error.strerror}; {missing}")


def read_symbols(folder: pathlib.Path) -> typing.Dict[str, typing.Tuple[str, str, str, str]]:
    """symbol -> (CRC, module, licence, namespace)"""
    path = folder / "Module.symvers"
    symbols = {}
    for number, line in enumerate(read(path, "build the kernel first").splitlines(keepends=True), 1):
        crc, *field = line.split("\t")
        if len(field) != 4 or not re.fullmatch("0x[0-9a-f]{8}", crc) or not line.endswith("\n"):
            die(f"{path}:{number}: not a symbol with its CRC (a file cut short?): {line.strip()}")
        name, module, licence, namespace = field
        symbols[name] = (crc, module, licence, namespace.strip())
    if not symbols:
        die(f"{path}: holds no symbol")
    return symbols


def changes(before: typing.Tuple[str, str, str, str], after: typing.Optional[typing.Tuple[str, str, str, str]]
            ) -> typing.List[str]:
    """The differences of a symbol as texts; empty if there are none."""
    if after is None:
        return ["is gone"]
    found = [f"{what} {was or 'none'} -> {now or 'none'}"
             for what, was, now in zip(("CRC", "module", "licence", "namespace"), before, after) if was != now]
    if before[0] == after[0] == "0x00000000":
        found.append("has no CRC, so it cannot be compared")
    return found


def read_types(path: pathlib.Path) -> typing.Dict[str, typing.List[str]]:
    """What genksyms saw in one source file: name -> words of its definition"""
    return {name: words for name, *words in map(str.split, path.read_text().splitlines())}


def spell(name: str) -> str:
    kind, _, rest = name.rpartition("#")
    return f"{KINDS[kind]} {rest}" if kind in KINDS else name


class Types:
    """Finds the changed types of a symbol, from the two *.symtypes files of its source."""

    def __init__(self, stock: pathlib.Path, patched: pathlib.Path) -> None:
        self.stock, self.patched = stock, patched
        self.source = {}     # symbol -> the *.symtypes file with its definition
        self.reached = set() # all structs and unions that symbols refer to
        for path in stock.rglob("*.symtypes"):
            for name in read_types(path):
                if "#" in name:
                    self.reached.add(spell(name))
                else:
                    self.source[name] = path.relative_to(stock)
        if "struct perf_event" not in self.reached:
            die(f"{stock}: no symbol reaches struct perf_event; the *.symtypes are not of a whole build")
        self.read: typing.Dict[pathlib.Path, typing.List[typing.Dict[str, typing.List[str]]]] = {}

    def of(self, symbol: str) -> typing.Dict[str, typing.Tuple[typing.List[str], typing.List[str]]]:
        """name -> (words before, words after) for each changed type that the symbol refers to"""
        source = self.source.get(symbol)
        if source is None or not (self.patched / source).exists():
            return {}
        if source not in self.read:
            self.read[source] = [read_types(tree / source) for tree in (self.stock, self.patched)]
        before, after = self.read[source]
        changed, seen, todo = {}, set(), [symbol]
        while todo:
            name = todo.pop()
            if name in seen:
                continue
            seen.add(name)
            was, now = before.get(name, []), after.get(name, [])
            if was != now:
                changed[name] = was, now
            todo += [word for word in was + now if "#" in word]
        return changed


def difference(was: typing.List[str], now: typing.List[str]) -> typing.List[str]:
    """The members of a definition that were removed and added, as lines of text"""
    def members(words: typing.List[str]) -> typing.List[str]:
        text = " ".join(spell(word).removeprefix("typedef ") for word in words)
        return [member.strip() for member in re.split("[;{},]", text) if member.strip()]
    gone = collections.Counter(members(was)) - collections.Counter(members(now))
    new = collections.Counter(members(now)) - collections.Counter(members(was))
    return [f"- {text}" for text in gone] + [f"+ {text}" for text in new] or ["the order"]


def compare_symbols(stock: pathlib.Path, patched: pathlib.Path, types: Types) -> typing.Tuple[int, int]:
    """(how many symbols differ, of how many)"""
    before, after = read_symbols(stock), read_symbols(patched)
    differ = {name: found for name in sorted(before) if (found := changes(before[name], after.get(name)))}
    why = {}
    for name, found in differ.items():
        reached = types.of(name)
        why.update(reached)
        through = ", ".join(sorted(spell(changed) for changed in reached))
        print(f"{name} ({before[name][1]}): {', '.join(found)}{through and ': ' + through}")
    for name in sorted(why):
        print(f"{spell(name)}, as modules see it:")
        for line in difference(*why[name]):
            print(f"    {line}")
    return len(differ), len(before)


def read_layouts(folder: pathlib.Path
                 ) -> typing.Dict[str, typing.Tuple[int, typing.Set[typing.Tuple[str, int, int, int]]]]:
    """struct -> (size, {(member, offset, bit, size)})"""
    path = folder / "layouts"
    text = read(path, "scripts/prove/kabi has pahole write it")
    found = {}
    for block in re.finditer(r"^((?:struct|union) \w+) \{\n(.*?)^\}", text, re.M | re.S):
        size = re.search(r"^\t/\* size: (\d+)", block[2], re.M)
        if size:
            members = {(" ".join(m[1].split()), int(m[2]), int(m[3] or 0), int(m[4]))
                       for m in map(MEMBER.match, block[2].splitlines()) if m}
            found[block[1]] = int(size[1]), members
    if "struct perf_event" not in found:
        die(f"{path}: has no struct perf_event (a file cut short?)")
    return found


def compare_layouts(stock: pathlib.Path, patched: pathlib.Path, reached: typing.Set[str]) -> typing.Tuple[int, int]:
    """(how many structs differ, of how many)"""
    before, after = read_layouts(stock), read_layouts(patched)
    differ = 0
    for name, (size, members) in sorted(before.items()):
        now_size, now_members = after.get(name, (0, set()))
        if size == now_size and members <= now_members:
            continue
        differ += name in reached
        print(f"{name}: {size} bytes, {f'now {now_size}' if now_size else 'is gone'}"
              f"{'' if name in reached else '; no symbol reaches it'}")
        now = {member[0]: member for member in now_members}
        for text, offset, bit, length in sorted(members - now_members, key=lambda member: member[1:]):
            at = now.get(text)
            print(f"    {text}: was {length} bytes at {offset}{f' bit {bit}' if bit else ''}, " +
                  (f"is {at[3]} at {at[1]}{f' bit {at[2]}' if at[2] else ''}" if at else "is gone"))
    return differ, len(before.keys() & reached)


def report(name: str, stock: pathlib.Path, patched: pathlib.Path) -> str:
    """Prints the differences. Returns the numbers of symbols and structs as text, or "" if any differs."""
    types = Types(stock, patched)
    symbols, of_symbols = compare_symbols(stock, patched, types)
    structs, of_structs = compare_layouts(stock, patched, types.reached)
    print(f"kabi: {name}: {symbols} of {of_symbols} symbols differ, "
          f"{structs} of {of_structs} structs have another layout")
    return "" if symbols or structs else f"{of_symbols}, {of_structs}"
