# SPDX-License-Identifier: GPL-2.0
"""Measurements: the results that make verify left in the build folder, and the committed copy of all figures,
patches/results.json. A subject is a base (6.1), a base on another architecture (6.1 arm64), or a distribution's kernel
with the live patch (6.1.0-56-amd64).

results.json has three parts, each by subject. Each entry has the date, and in "of" the digest of the series and
the suite that were measured (null: unknown, so an older one):

  verify  tests passed and run, on stock and with the series; the same for each rule; hits lost in races;
          how often both sides of each race met with the series
  bench   guest instructions on stock and with the series, by part and title
  runs    the figure of each other command, such as the number of mutants killed
"""
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import typing

from lab import BUILD, TOP, arch, base, die, replace, suite

COMMITTED = TOP / "patches/results.json"
FIGURE = re.compile(r"(\d+) of (\d+) ((?:hits lost|runs with a wrong cookie))")
Entry = typing.Dict[str, typing.Any]


def is_live(name: str) -> bool:
    return name.split()[0] not in base.names()


def command_for(name: str) -> str:
    """The command that measures a subject."""
    one, _, other = name.partition(" ")
    return f"make verify-live KERNEL={one}" if is_live(name) else f"make verify BASE={one}{other and ' ARCH=' + other}"


def digest_of(name: str) -> str:
    """The digest of what a measurement today would be of; "" if the base no longer exists."""
    one, _, arch = name.partition(" ")
    if is_live(name):
        return base.Live(one).subject(arch) if ".".join(one.split(".")[:2]) in base.names() else ""
    return base.find(one).subject(arch)


AGES = ["", "older suite", "older series"]


def age(name: str, entry: Entry) -> str:
    """Which of AGES: whether what was measured has changed since."""
    now, then = digest_of(name), entry["of"] or ""
    return AGES[0 if then == now else 1 if now and then[:8] == now[:8] else 2]


def measured() -> typing.List[str]:
    """The subjects with results in the build folder: bases, distribution kernels, bases on other architectures."""
    def of(folder: str) -> typing.List[str]:
        return [path.stem.removeprefix("results-") for path in sorted((BUILD / folder).glob("results-*.json"))]

    here = of("")
    return [name for name in base.names() if name in here] + [name for name in here if is_live(name)] + [
        f"{name} {other}" for other in arch.names() for name in base.names() if name in of(other)]


def load(path: pathlib.Path) -> Entry:
    """What make verify wrote. Raises OSError or ValueError if it is not whole."""
    found: Entry = json.loads(path.read_text())
    try:
        _ = found["verdict"], found["of"], found["stock"]["logs"]
    except (KeyError, TypeError):
        raise ValueError(f"{path.name} is not what make verify writes") from None
    return found


def read(name: str) -> Entry:
    one, _, other = name.partition(" ")
    its = arch.Arch(other or "x86")
    try:
        kept = base.kept(one) if base.part() else f"results-{one}"
        results = load(BUILD / other / f"{kept}.json")
        folder = pathlib.Path(results["stock"]["logs"]).parent
        results["suite"] = suite.ask(folder / f"selftests{its.suffix}/perf_bpf_filter", its)
    except (OSError, ValueError, KeyError, subprocess.SubprocessError) as error:
        die(f"no results for {name} ({error}); run {command_for(name)}")
    results["rule"] = results["suite"].rule_of()
    return results


def passed(results: Entry, kernel: str, rule: typing.Optional[str] = None) -> typing.Optional[str]:
    """ "passed/run" for the tests of a rule, or for all tests; None if none was run."""
    run = [result for test, result in results[kernel]["tests"].items()
           if rule in (None, results["rule"].get(test)) and result != "skip"]
    if kernel == "stock":
        run += ["dies" for test in results["deadly"] if rule in (None, results["rule"].get(test))]
    return f"{run.count('pass')}/{len(run)}" if run else None


def races(results: Entry, kernel: str) -> typing.Dict[str, str]:
    """Test -> "lost/tried"."""
    found = {}
    for test, text in results[kernel]["reasons"].items():
        if figure := FIGURE.match(text):
            found[test if figure[3] == "hits lost" else f"{test}: wrong cookies"] = f"{figure[1]}/{figure[2]}"
    return found


def committed() -> Entry:
    try:
        found: Entry = json.loads(COMMITTED.read_text())
    except (OSError, ValueError) as error:
        die(f"{COMMITTED.relative_to(TOP)}: {error}; git checkout restores it")
    parts = [found.get(part) for part in ("verify", "bench", "runs")] if isinstance(found, dict) else [None]
    if not all(isinstance(part, dict) and all(isinstance(entry, dict) for entry in part.values()) for part in parts):
        die(f"{COMMITTED.relative_to(TOP)}: not the measurements that make results writes; git checkout restores it")
    return found


def stamp(path: pathlib.Path, of: typing.Optional[str]) -> Entry:
    day = datetime.datetime.fromtimestamp(path.stat().st_mtime, datetime.timezone.utc)
    return {"date": f"{day:%Y-%m-%d}", "of": of}


def pairs(results: Entry, figures: typing.Callable[[Entry, str], typing.Dict[str, str]]) -> typing.Dict[str, list]:
    """Key -> [figure of the stock kernel, figure with the series], from the results of figures()."""
    both = [figures(results, kernel) for kernel in ("stock", "patched")]
    return {key: [of.get(key) for of in both] for key in sorted({**both[0], **both[1]})}


def verified(name: str) -> typing.Optional[Entry]:
    """The entry for the part "verify"; None if the run ended with complaints, or did not test the unmodified base."""
    results = read(name)
    if results["verdict"] != "pass" or results.get("with"):
        return None
    one, _, other = name.partition(" ")
    rules = results["suite"].rules
    return stamp(BUILD / other / f"results-{one}.json", results["of"]) | {
        "stock": passed(results, "stock"), "series": passed(results, "patched"),
        "skipped": sum(result == "skip" for result in results["patched"]["tests"].values()),
        "rules": {rule: [passed(results, kernel, rule) for kernel in ("stock", "patched")] for rule in rules
                  if passed(results, "patched", rule)},
        "races": pairs(results, races), "met": results["patched"].get("met", {})}


def priced(other: str) -> typing.Dict[str, Entry]:
    """The entries for the part "bench" on an architecture."""
    path, found = BUILD / other / "bench.json", {}
    for one, guests in (json.loads(path.read_text()) if path.is_file() else {}).items():
        if one != "here":
            found[f"{one} {other}".strip()] = stamp(path, guests.get("of")) | {
                part: {row["title"]: [guests[kernel][part].get(way, {}).get("p50") for kernel in ("stock", "patched")]
                       for way, row in guests["patched"][part].items()}
                for part in ("ways", "overflows", "stops") if guests["patched"].get(part)}
    return found


def note(command: str, counts: typing.Optional[str], name: str, figure: typing.Union[float, str]) -> None:
    """Writes the figure of a successful run to the build folder, for make results. A run with KSRC or VERSION does not
    measure the base."""
    if other := next(filter(os.environ.get, ("KSRC", "VERSION")), None):
        print(f"{command}: not recorded, because {other} is set", file=sys.stderr)
        return
    folder = BUILD / "runs"
    folder.mkdir(parents=True, exist_ok=True)
    name = f"{name} {arch.ARCH.folder}".strip()
    file = re.sub(r"[^\w.]+", "-", f"{command} {name}").strip("-")
    replace(folder / f"{file}.json", json.dumps(
        {"command": command, "counts": counts, "name": name, "figure": figure, "of": digest_of(name)}) + "\n")


def update(data: Entry) -> typing.List[str]:
    """
    Copies the build folder's entries that are newer, match the current series and suite, or match more of these than
    the known ones. Returns a line for each one, and for each run that is not recorded.
    """
    taken = []

    def take(part: Entry, what: str, name: str, entry: Entry) -> None:
        old = part.get(name)
        rank = AGES.index(age(name, entry))
        if old is None or old["date"] < entry["date"] or not rank or rank < AGES.index(age(name, old)):
            part[name] = entry
            taken.append(f"{what} {name}")

    for name in measured():
        if entry := verified(name):
            take(data["verify"], "verify", name, entry)
        else:
            taken.append(f"{command_for(name)} ended with complaints, or had KSRC, VERSION or RACE_SECONDS set: "
                         "not recorded; repeat it")
    for other in ("", *(name for name in arch.names() if name != "x86")):
        for name, entry in priced(other).items():
            take(data["bench"], "bench", name, entry)
    for path in sorted((BUILD / "runs").glob("*.json")):
        run = json.loads(path.read_text())
        where = data["runs"].setdefault(run["command"], {"counts": run["counts"], "of": {}})
        take(where["of"], run["command"], run["name"], stamp(path, run["of"]) | {"figure": run["figure"]})
    return taken


def write(data: Entry) -> None:
    """Writes one entry on each line, so that a diff shows which figures were measured again."""
    def entries(part: Entry) -> str:
        return ",\n".join(f"  {json.dumps(name)}: {json.dumps(entry)}" for name, entry in part.items())

    runs = ",\n".join(f"  {json.dumps(command)}: {{\"counts\": {json.dumps(run['counts'])}, \"of\": {{\n" + ",\n".join(
        f"   {json.dumps(name)}: {json.dumps(entry)}" for name, entry in run["of"].items()) + "}}"
        for command, run in data["runs"].items())
    replace(COMMITTED, f'{{"licence": "GPL-2.0",\n "verify": {{\n{entries(data["verify"])}}},\n'
            f' "bench": {{\n{entries(data["bench"])}}},\n "runs": {{\n{runs}}}}}\n')
