# SPDX-License-Identifier: GPL-2.0
"""A base: its series in patches/linux-X.Y, what its runs are compared with in patches/expect, and its
mutants in patches/mutants. There is no list of bases but the folders patches/linux-X.Y."""
import fnmatch
import hashlib
import os
import pathlib
import re
import sys
import typing

from lab import BUILD, TOP, die, replace
from lab.arch import ARCH


def order(version):
    return [int(part) for part in version.split(".")]


def names():
    """All bases, the oldest first."""
    return sorted((path.parent.name.removeprefix("linux-") for path in TOP.glob("patches/linux-*/series")),
                  key=order)


def measured():
    """Those of which a kernel was booted on $ARCH, and stock-fails says what came of it."""
    return [name for name in names() if not unmeasured(name)]


def unmeasured(name):
    """Why a base is not one of them, or None."""
    expected = Base(name).of_arch("stock-fails")
    path = expected.relative_to(TOP)
    if not expected.is_file():
        return f"{path} does not exist, so nothing says what its stock kernel must fail"
    return None if Base(name).stock_fails(None) else f"{path} lists no test, so its stock kernel was never booted"


def left_out(name):
    """Why make matrix does not measure a base on $ARCH, or None. The source comes from Debian, from the
    mirror that is named, or from the build folder."""
    why = unmeasured(name)
    if not why and "kernel.org" in Base(name).kernels()[0] and not os.environ.get("KERNEL_MIRROR") \
            and not any(BUILD.glob(f"linux-{name}")) and not any(BUILD.glob(f"linux-{name}.*")):
        why = "its source is on kernel.org; set KERNEL_MIRROR=" \
            "https://cdn.kernel.org/pub/linux/kernel, or another mirror"
    return why


def at_hand():
    """The bases that make matrix measures."""
    return [name for name in names() if not left_out(name)]


def part():
    """What of a series PART= selects: "feature", its first section, or None for all of it."""
    name = os.environ.get("PART")
    if name and name != "feature":
        die(f"PART={name}: no such part (available: feature)")
    if name and pathlib.Path(sys.argv[0]).name not in ("apply", "verify", "dist", "matrix"):
        die("PART= is for make apply, verify and dist; leave it out")
    return name or None


def kept(name):
    """What make verify calls its results of a base: results-6.1, or feature-6.1."""
    if part():
        find(name).patches()
    return f"{part() or 'results'}-{name}"


subjects: typing.Dict[typing.Tuple[str, str], str] = {}  # of subject(), by base and architecture


def find(name=None):
    part()
    name = name or "6.1"
    if name not in names():
        die(f"no such base: {name} (available: {' '.join(names())})")
    return Base(name)


def kernel_version(tree):
    """6.1.192, from the tree's Makefile; None if it is no kernel tree."""
    try:
        text = (tree / "Makefile").read_text(errors="replace")
    except OSError:
        return None
    parts = [re.search(rf"^{key} *= *(\d+)$", text, re.M) for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
    return ".".join(part[1] for part in parts) if all(parts) else None


def digest(paths, text=""):
    total = hashlib.sha256(text.encode())
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


class Series:
    """A folder with a file "series"."""

    def __init__(self, folder):
        self.folder = folder
        self.text = (folder / "series").read_text()

    def patches(self):
        """File names, in the order of the series."""
        text = self.text
        if part():
            found = re.search(r"^# Feature\n((?:[^#\n].*\n)+)", text, re.M)
            text = found[1] if found else die(f"PART=feature: {self.folder}/series has no section '# Feature', "
                                              "as Linux has it since 6.10; leave out PART")
        lines = (line.split("#")[0].strip() for line in text.splitlines())
        return [line for line in lines if line]

    def kernels(self):
        """What it is for, [X.Y, version, suite of the archive if not the machine's own] each: first
        what it was made on, "# BASE linux-6.1 ...", then what else it was tried on, "# ALSO ..."."""
        first, *others = self.text.splitlines() or [""]
        lines = [line.removeprefix("# BASE linux-") for line in [first] if line.startswith("# BASE linux-")]
        lines += [line.removeprefix("# ALSO linux-") for line in others if line.startswith("# ALSO linux-")]
        return [line.split() for line in lines]

    def until(self):
        """The month in which maintenance of this line ends, "# UNTIL 2026-12"; None if that is not announced."""
        said = re.search(r"^# UNTIL (\d{4}-\d{2})$", self.text, re.M)
        return said[1] if said else None

    def is_for(self, version):
        return version.rpartition(".")[0] in [kernel for kernel, *_ in self.kernels()]

    def files(self):
        """The files of the kernel tree that it touches."""
        found = set()
        for patch in self.patches():
            text = (self.folder / patch).read_text(errors="replace")
            found.update(re.findall(r"^\+\+\+ b/(\S+)", text, re.M))
        return sorted(found)

    def digest(self):
        """What is in it, as a number."""
        return digest([self.folder / "series", *(self.folder / patch for patch in self.patches())])

    def header(self, patch, field):
        """A line of a patch's message, unfolded: its "Subject" without the tag, or a trailer; "" if it has none."""
        message = (self.folder / patch).read_text(errors="replace").split("\n---\n")[0]
        found = re.search(rf"^{field}: (.*(?:\n[ \t].*)*)", message, re.M)
        return re.sub(r"^\[PATCH[^]]*\] ", "", " ".join(found[1].split())) if found else ""

    def tests(self, patch):
        """The patterns of tests in the line "Tests:" of a patch: what it claims to fix."""
        message = (self.folder / patch).read_text(errors="replace").split("\n---\n")[0]
        said = re.search(r"^Tests: (.*?)(?:\sin\sthe\s+selftests|\n\n|\Z)", message, re.M | re.S)
        return re.findall(r"[a-z_]+(?:\.[a-z_0-9*]+)+", said[1]) if said else []


class Base(Series):
    def __init__(self, name):
        self.name = name
        super().__init__(TOP / "patches" / f"linux-{name}")
        self.expect, self.broken = (TOP / "patches" / room / self.folder.name for room in ("expect", "mutants"))

    def of_arch(self, name):
        """What runs on $ARCH are compared with: instructions, or instructions.arm64."""
        return self.expect / (f"{name}.{ARCH.name}" if ARCH.suffix else name)

    def feature_fails(self):
        """The list of what still fails with PART=feature, in the format of stock-fails."""
        return self.of_arch("feature-fails")

    def stock_fails(self, preempt="full", shipped=False):
        return read_fails(self.expected(), preempt, shipped=shipped)

    def stock_fails_elsewhere(self):
        """What comes to it on other architectures than x86: (name, tests) each."""
        return [(path.suffix[1:], {test for test in read_fails(path, None) if not test.startswith("not ")})
                for path in self.expect.glob("stock-fails.*")]

    def live_fails(self):
        """The list of what fails with the live patch, which need not exist."""
        return TOP / f"patches/expect/live/linux-{self.name}.fails"

    def skips(self, version):
        """The list of what the patched kernel skips, or None if @version is of another line, or it does not exist."""
        path = self.of_arch("skips")
        return path if path.is_file() and f"{version}.".startswith(f"{self.name}.") else None

    def expected(self):
        """stock-fails, or what it is for $ARCH: stock-fails.ARCH has the names that come to it, and
        "not NAME" (or a pattern) for those that leave it."""
        path, differs = self.expect / "stock-fails", self.of_arch("stock-fails")
        if not ARCH.suffix or not differs.is_file():
            return path
        lines, listed, gone = differs.read_text().splitlines(), read_fails(path, None), set()
        for pattern in [line.split()[1] for line in lines if line.startswith("not ")]:
            found = fnmatch.filter(listed, pattern)
            if not found:
                die(f"{differs}: not in stock-fails: {pattern}")
            gone.update(found)
        kept = [line for line in path.read_text().splitlines() if line.partition("#")[0].strip() not in gone]
        BUILD.mkdir(parents=True, exist_ok=True)
        whole = BUILD / f"stock-fails-{self.name}{ARCH.suffix}"
        replace(whole, "\n".join(kept + [line for line in lines if not line.startswith("not ")]) + "\n")
        return whole

    def mutants(self):
        """All of them, by name."""
        return [Mutant(path) for path in sorted(self.broken.glob("*.patch"))]

    def mutant(self, name):
        """Its own, or that of another base, which most lines of a series have in common with it."""
        for folder in (self.broken, *(Base(other).broken for other in names())):
            path = folder / f"{name}.patch"
            if path.is_file():
                return Mutant(path)
        die(f"no such mutant: {name} (see {TOP}/patches/mutants)")

    def equivalent(self):
        """Changes to the series that no test notices. A generated mutant is a key, with the indented lines below it
        as the reason. What was tried by hand is a key "STATEMENT | CHANGE | WHY" without a value."""
        path = self.broken / "equivalent"
        found: typing.List[typing.List[str]] = []
        for line in path.read_text().splitlines() if path.is_file() else []:
            if line[:1].isspace() and found:
                found[-1].append(line.strip())
            elif line and not line.startswith("#"):
                found.append([line])
        for first, *rest in found:
            if not rest and first.count(" | ") != 2:
                die(f"{path}: neither 'STATEMENT | CHANGE | WHY' nor a mutant with an indented reason: {first}")
        return {first: " ".join(rest) for first, *rest in found}

    def subject(self, arch=ARCH.folder):
        """What a verdict is about, as a number: the tests, the configuration, what the patches change outside of
        Documentation/, and the lists that the results are compared with, those for @arch among them if it is named.
        A process keeps its first answer, which is that of the state that it measures."""
        if (self.name, arch) not in subjects:
            subjects[self.name, arch] = self.subject_of_now(arch)
        return subjects[self.name, arch]

    def subject_of_now(self, arch):
        sources = sorted(path for path in (TOP / "selftests").rglob("*") if path.suffix in (".cc", ".c", ".h"))
        changes = [(self.folder / patch).read_text(errors="replace").split("\n---\n", 1)[-1]
                   for patch in self.patches() if not patch.startswith("09")]
        lists = [path for name in ("stock-fails", "skips")
                 for path in (self.expect / name, self.expect / f"{name}.{arch}") if path.is_file()]
        return digest([*([self.feature_fails()] if part() and self.feature_fails().is_file() else []),
                       *lists, TOP / "Kconfig.fragment", TOP / "scripts/allow-splats", *sources], "".join(changes))


def live_subject(name):
    """What a verdict about the live patch for a base is about."""
    one = find(name)
    lists = [one.live_fails()] if one.live_fails().is_file() else []
    return digest([*lists, *sorted((TOP / "patches/livepatch").glob(f"linux-{name}.*"))])[:8] + one.subject()[:8]


def read_fails(path, preempt="full", release=None, shipped=False, failed=()):
    """The tests that must fail on the stock kernel, those of the theme "oops" among them, of which
    it dies. The comment behind a test limits it to some kernels:

      # preempt=X   to that preemption; with @preempt None each counts
      # linux-6.8   to kernels of that line, another one than the base's, if @release is of it
      # shipped     to kernels as Debian ships them, whose configuration has more than Kconfig.fragment
      # may         to machines where it does fail: if it is in @failed

    "# survives" limits nothing: see read_survived().
    """
    found = set()
    for line in path.read_text().splitlines():
        test, _, comment = line.partition("#")
        only = re.match(r" *(preempt=|linux-|shipped|may)([\w.]*)$", comment)
        holds = {"preempt=": lambda x: preempt in (None, x), "shipped": lambda x: shipped or preempt is None,
                 "may": lambda x, test=test.strip(): preempt is None or test in failed,
                 "linux-": lambda x: f"{release}.".startswith(x + ".")}
        if test.strip() and (not only or holds[only[1]](only[2])):
            found.add(test.strip())
    return found


def read_survived(path):
    """The tests of the theme "oops" that fail on the stock kernel and do not crash it: "oops.NAME # survives"."""
    return set(re.findall(r"^(oops\.\S+) *# survives$", path.read_text(), re.M))


class Skip(typing.NamedTuple):
    """A test that the patched kernel skips."""
    reason: str  # as the test prints it
    may: bool    # it depends on the machine, so the test may run


def read_skips(path):
    """test -> Skip, from lines of "TEST # REASON" or "TEST # may: REASON"."""
    return {test: Skip(reason, bool(may)) for test, may, reason in
            re.findall(r"^([\w.]+) +# (may: )?(.*)$", path.read_text(), re.M)}


def write_skips(path, skipped):
    """Lists what is @skipped, a dictionary of reasons, by reason. What may be skipped stays listed as that."""
    old = read_skips(path) if path.is_file() else {}
    may = {test: skip for test, skip in old.items() if skip.may}
    skips = may | {test: Skip(reason, test in may) for test, reason in skipped.items()}
    width = max(map(len, skips), default=0)
    replace(path, "# SPDX-License-Identifier: GPL-2.0\n# The tests that make verify skips with the series, with the "
            "reason that each gives; \"may\": on some machines.\n" +
            "".join(f"{test:{width}} # {'may: ' * skip.may}{skip.reason}\n" for test, skip in sorted(skips.items())))


def deadly(tests):
    """Those that can crash a kernel with the defect."""
    return {test for test in tests if test.startswith("oops.")}


def by_default(tests):
    """Those that run if no test is named (runs_only_if_named() in selftests/harness/main.cc)."""
    return {test for test in tests if not test.startswith(("oops", "gdb"))}


class Mutant:
    """A patch on top of the series, or of selftests/, that breaks one rule. Its message says how that shows:

    Fails: NAME...            tests (or globs) which must fail, all of them; of oops.* the kernel dies
    Config: CONFIG            it is built with that file of scripts/configs
    Splat: CONFIG: PATTERN    built so, the kernel must complain in words that match, while it
    Runs: NAME...             runs these, whatever they say
    Costs: WAY                this way to hit must cost more than the file "instructions" says
    Without: PATTERN          for it the matching lines are left out of Kconfig.fragment
    Arch: ARCH                it is of that architecture, not of x86
    """

    def __init__(self, path):
        self.path, self.name = path, path.stem
        text = path.read_text(errors="replace")
        found = {key: " ".join(value.split()) for key, value in
                 re.findall(r"^(Fails|Config|Splat|Runs|Costs|Without|Arch): ((?:.+\n)+?)(?=\n|[A-Z]\w+: )",
                            text, re.M)}
        self.fails = found.get("Fails", "").split()
        self.runs = found.get("Runs", "").split()
        self.config, _, self.splat = found.get("Splat", "").partition(": ")
        self.config = found.get("Config", self.config)
        self.of_selftests = bool(re.search(r"^\+\+\+ b/selftests/", text, re.M))
        self.costs, self.without, self.arch = found.get("Costs"), found.get("Without"), found.get("Arch", "x86")
        if not (self.fails or self.runs or self.costs):
            die(f"{path}: no 'Fails:', 'Runs:' or 'Costs:' line")

    def kills(self, tests):
        """Which of these tests it must fail, or are run until the kernel complains; a pattern that no
        test matches stands for itself."""
        return [test for pattern in self.fails or self.runs for test in fnmatch.filter(tests, pattern) or [pattern]]
