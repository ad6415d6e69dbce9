# SPDX-License-Identifier: GPL-2.0
"""A base: its series in patches/linux-X.Y, the results expected of its runs in patches/expect, and its mutants in
patches/mutants. The bases are the folders patches/linux-X.Y; there is no other list of them."""
import fnmatch
import functools
import hashlib
import os
import pathlib
import re
import sys
import typing

from lab import BUILD, TOP, debian, die, replace
from lab.arch import ARCH, names as architectures


def order(version: str) -> typing.List[int]:
    return [int(part) for part in version.split(".")]


def names() -> typing.List[str]:
    """All bases, oldest first."""
    return sorted((path.parent.name.removeprefix("linux-") for path in TOP.glob("patches/linux-*/series")
                   if re.fullmatch(r"linux-\d+\.\d+", path.parent.name, re.ASCII)), key=order)


def measured() -> typing.List[str]:
    """The bases whose stock-fails was measured on $ARCH."""
    return [name for name in names() if not unmeasured(name)]


def unmeasured(name: str) -> typing.Optional[str]:
    """Why measured() does not list a base, or None."""
    expected = Base(name).of_arch("stock-fails")
    path = expected.relative_to(TOP)
    if not expected.is_file():
        return f"{path} does not exist, so nothing says what its stock kernel must fail"
    return None if Base(name).stock_fails(None) else f"{path} lists no test, so its stock kernel was never booted"


def left_out(name: str) -> typing.Optional[str]:
    """Why make matrix does not measure a base on $ARCH, or None. The source comes from Debian, from KERNEL_MIRROR, or
    from the build folder."""
    why = unmeasured(name)
    if not why and "kernel.org" in Base(name).kernels()[0] and not os.environ.get("KERNEL_MIRROR") \
            and not any(BUILD.glob(f"linux-{name}")) and not any(BUILD.glob(f"linux-{name}.*")):
        why = "its source is on kernel.org; set KERNEL_MIRROR=" \
            "https://cdn.kernel.org/pub/linux/kernel, or another mirror"
    return why


def at_hand() -> typing.List[str]:
    """The bases that make matrix measures."""
    return [name for name in names() if not left_out(name)]


def part() -> typing.Optional[str]:
    """The part of a series that PART= selects: "feature" for its first section, None for the whole series."""
    name = os.environ.get("PART")
    if name and name != "feature":
        die(f"PART={name}: no such part (available: feature)")
    if name and pathlib.Path(sys.argv[0]).name not in ("apply", "verify", "dist", "matrix"):
        die("PART= is for make apply, verify and dist; leave it out")
    return name or None


def kept(name: str) -> str:
    """The name of make verify's results for a base: results-6.1, or feature-6.1."""
    if part():
        find(name).patches()
    return f"{part() or 'results'}-{name}"


subjects: typing.Dict[typing.Tuple[str, str], str] = {}  # cache of subject(), by title and architecture


def find(name: typing.Optional[str] = None, x86_only: bool = False, live: bool = False) -> "Base":
    """The base that a command is for. Checks the environment as well, before hours of builds. With @live, the command
    supports the live patch, too: its subject is named by a kernel of Debian (6.1.0-56-amd64; "live" is the newest)."""
    part()
    name = debian.newest() if live and name == "live" else name or "6.1"
    if live and "-" in name:
        find(debian.line_of(name), x86_only=True)
        return Live(name)
    if name not in names():
        die(f"no such base: {name} (available: {' '.join(names())})")
    if not ARCH.known:
        die(f"no such architecture: {ARCH.name} (available: {' '.join(architectures())})")
    if x86_only and ARCH.suffix:
        die(f"ARCH={ARCH.name}: this command supports only x86; leave out ARCH")
    accel = os.environ.get("ACCEL")
    if accel and accel not in ("auto", "kvm", "tcg", "icount"):
        die(f"ACCEL={accel}: no such accelerator (available: auto kvm tcg)")
    return Base(name)


def kernel_version(tree: pathlib.Path) -> typing.Optional[str]:
    """The version in the tree's Makefile, such as 6.1.192; None if it is not a kernel tree."""
    try:
        text = (tree / "Makefile").read_text(errors="replace")
    except OSError:
        return None
    parts: typing.List[typing.Any] = [
        re.search(rf"^{key} *= *(\d+)$", text, re.M) for key in ("VERSION", "PATCHLEVEL", "SUBLEVEL")]
    return ".".join(part[1] for part in parts) if all(parts) else None


def version_of(tree: typing.Union[str, pathlib.Path], name: typing.Optional[str] = None) -> str:
    """The version of a tree that the user has named; stops if it is not a kernel tree."""
    makefile = pathlib.Path(tree, "Makefile")
    try:
        makefile.read_bytes()
    except PermissionError as error:
        die(f"cannot read {makefile}: {error.strerror}")
    except OSError:
        pass  # it has no version, either
    if not os.path.isdir(tree):
        die(f"{name or tree} is not a kernel tree (no such folder)")
    return kernel_version(pathlib.Path(tree)) or \
        die(f"{name or tree} is not a kernel tree (no Makefile with a version)")


def digest(paths: typing.Iterable[pathlib.Path], text: str = "") -> str:
    total = hashlib.sha256(text.encode())
    for path in paths:
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


@functools.cache
def suite_code() -> str:
    """The sources of selftests/ without comments and layout."""
    paths = sorted(path for path in (TOP / "selftests").rglob("*") if path.suffix in (".cc", ".c", ".h"))
    text = "\n".join(path.read_text(errors="replace") for path in paths)
    literals_or_comments = r'''("(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*')|//[^\n]*|/\*.*?\*/'''
    return " ".join(re.sub(literals_or_comments, r"\1", text, flags=re.S).split())


class Series:
    """A folder with a quilt series."""

    def __init__(self, folder: pathlib.Path) -> None:
        self.folder = folder
        self.text = (folder / "series").read_text(errors="replace")

    def patches(self) -> typing.List[str]:
        """File names, in the order of the series."""
        if part():
            return self.feature() or die(f"PART=feature: {self.folder}/series has no section '# Feature', because "
                                         "Linux has the feature since 6.10; leave out PART")
        return self.named_in(self.text)

    def feature(self) -> typing.List[str]:
        """The patches of the section "# Feature", with which the series begins up to 6.6."""
        found = re.search(r"^# Feature\n((?:[^#\n].*\n)+)", self.text, re.M)
        return self.named_in(found[1]) if found else []

    @staticmethod
    def named_in(text: str) -> typing.List[str]:
        lines = (line.split("#")[0].strip() for line in text.splitlines())
        return [line for line in lines if line]

    def kernels(self) -> typing.List[typing.List[str]]:
        """The kernels that it is for, each as [X.Y, version, release of Debian if not the machine's own]: first the
        one that it was made on, "# BASE linux-6.1 ...", then the others that it was tested on, "# ALSO ..."."""
        first, *others = self.text.splitlines() or [""]
        lines = [line.removeprefix("# BASE linux-") for line in [first] if line.startswith("# BASE linux-")]
        lines += [line.removeprefix("# ALSO linux-") for line in others if line.startswith("# ALSO linux-")]
        if not re.match(r"# BASE linux-\S+ \S", first):
            die(f"{self.folder}/series does not begin with a '# BASE linux-X.Y VERSION' line")
        return [line.split() for line in lines if len(line.split()) > 1]

    def until(self) -> typing.Optional[str]:
        """The month in which maintenance of this kernel line ends, "# UNTIL 2026-12"; None if it is not announced."""
        match = re.search(r"^# UNTIL (\d{4}-\d{2})$", self.text, re.M)
        return match[1] if match else None

    def since(self) -> typing.Optional[str]:
        """The first point release that the series applies to, "# SINCE 6.12.115"; None if it applies to all."""
        match = re.search(r"^# SINCE (\d+\.\d+\.\d+)$", self.text, re.M)
        return match[1] if match else None

    def is_for(self, version: str) -> bool:
        return version.rpartition(".")[0] in [kernel for kernel, *_ in self.kernels()]

    def files(self) -> typing.List[str]:
        """The files of the kernel tree that it touches."""
        found = set()
        for patch in self.patches():
            text = (self.folder / patch).read_text(errors="replace")
            found.update(re.findall(r"^\+\+\+ b/(\S+)", text, re.M))
        return sorted(found)

    def digest(self) -> str:
        """A hash of the series file and its patches."""
        return digest([self.folder / "series", *(self.folder / patch for patch in self.patches())])

    def header(self, patch: str, field: str) -> str:
        """A header or trailer of a patch, unfolded, "Subject" without its tag; "" if there is none."""
        message = (self.folder / patch).read_text(errors="replace").split("\n---\n")[0]
        found = re.search(rf"^{field}: (.*(?:\n[ \t].*)*)", message, re.M)
        return re.sub(r"^\[PATCH[^]]*\] ", "", " ".join(found[1].split())) if found else ""

    def tests(self, patch: str) -> typing.List[str]:
        """The tests and patterns that the "Tests:" line of a patch names: what the patch claims to fix."""
        message = (self.folder / patch).read_text(errors="replace").split("\n---\n")[0]
        match = re.search(r"^Tests: (.*?)(?:\sin\sthe\s+selftests|\n\n|\Z)", message, re.M | re.S)
        return re.findall(r"[a-z_]+(?:\.[a-z_0-9*]+)+", match[1]) if match else []


class Base(Series):
    def __init__(self, name: str) -> None:
        self.name = self.title = name  # the title is the subject's name in results
        super().__init__(TOP / "patches" / f"linux-{name}")
        self.expect, self.broken = (TOP / "patches" / room / self.folder.name for room in ("expect", "mutants"))

    def of_arch(self, name: str) -> pathlib.Path:
        """The path of the expected results for $ARCH: instructions, or instructions.arm64."""
        return self.expect / (f"{name}.{ARCH.name}" if ARCH.suffix else name)

    def feature_fails(self) -> pathlib.Path:
        """The list of the tests that still fail with PART=feature, in the format of stock-fails."""
        return self.of_arch("feature-fails")

    def stock_fails(self, preempt: typing.Optional[str] = "full", shipped: bool = False) -> typing.Set[str]:
        return read_fails(self.expected(), preempt, shipped=shipped)

    def stock_fails_elsewhere(self) -> typing.List[typing.Tuple[str, typing.Set[str]]]:
        """The additional failures on architectures other than x86, each as (architecture, tests)."""
        return [(path.suffix[1:], {test for test in read_fails(path, None) if not test.startswith("not ")})
                for path in self.expect.glob("stock-fails.*")]

    def live_fails(self) -> pathlib.Path:
        """The list of the tests that fail with the live patch; the file may not exist."""
        return self.expect.with_name("live") / f"{self.expect.name}.fails"

    def skips(self, version: typing.Optional[str]) -> typing.Optional[pathlib.Path]:
        """The list of the tests that the patched kernel skips; None if there is none for @version."""
        path = self.of_arch("skips")
        return path if path.is_file() and f"{version}.".startswith(f"{self.name}.") else None

    def expected(self) -> pathlib.Path:
        """The path of stock-fails for $ARCH. stock-fails.ARCH lists the tests that are added to stock-fails, and "not
        NAME" (or a pattern) for tests that are removed from it."""
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

    def mutants(self) -> typing.List["Mutant"]:
        """All mutants of the base, sorted by name."""
        return [Mutant(path) for path in sorted(self.broken.glob("*.patch"))]

    def mutant(self, name: str) -> "Mutant":  # type: ignore[return]
        """A mutant by name. It may be in another base's folder, as the series share most of their lines."""
        for one in (self.name, *names()):
            path = self.broken.with_name(f"linux-{one}") / f"{name}.patch"
            if path.is_file():
                return Mutant(path)
        die(f"no such mutant: {name} (see {self.broken.parent})")

    def equivalent(self) -> typing.Dict[str, str]:
        """Changes to the series that no test can notice. For a generated mutant the key is the mutant, and the value is
        the reason, from the indented lines below it. For a change that was tried by hand the key is "STATEMENT | CHANGE
        | WHY", and the value is empty."""
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

    def subject(self, arch: str = ARCH.folder) -> str:
        """A hash of everything that a verdict depends on. Its first half is of the series, what the patches change
        outside of Documentation/ and of other architectures; the second half is of the suite: the code of the tests,
        the configuration, and the lists of expected results, including those for @arch. The result is cached for the
        lifetime of the process, so that it describes the files that the process measures."""
        if (self.title, arch) not in subjects:
            its = [*self.lists(arch), TOP / "Kconfig.fragment", TOP / "scripts/allow-splats"]
            subjects[self.title, arch] = digest(self.plans(), self.changes(arch))[:8] + digest(its, suite_code())[:8]
        return subjects[self.title, arch]

    def changes(self, arch: str) -> str:
        text = "".join((self.folder / patch).read_text(errors="replace").split("\n---\n", 1)[-1]
                       for patch in self.patches() if not patch.startswith("09"))
        return "".join(file for file in re.split(r"^(?=--- .*\n\+\+\+ )", text, flags=re.M)
                       if not re.match(rf"--- .*\n\+\+\+ b/arch/(?!{arch}/)", file))

    def plans(self) -> typing.List[pathlib.Path]:
        """What else decides which code runs."""
        return []

    def lists(self, arch: str) -> typing.List[pathlib.Path]:
        """The lists of expected results."""
        found = [self.expect / f"{name}{suffix}" for name in ("stock-fails", "skips") for suffix in ("", f".{arch}")]
        return [path for path in [*([self.feature_fails()] if part() else []), *found] if path.is_file()]


class Live(Base):
    """A kernel of Debian with the live patch of its base."""

    def __init__(self, kernel: str) -> None:
        super().__init__(debian.line_of(kernel))
        self.title = kernel
        self.broken = self.broken.parent / "live" / self.broken.name

    def plans(self) -> typing.List[pathlib.Path]:
        return sorted((TOP / "patches/livepatch").glob(f"linux-{self.name}.*"))

    def lists(self, arch: str) -> typing.List[pathlib.Path]:
        return super().lists(arch) + ([self.live_fails()] if self.live_fails().is_file() else [])


def read_fails(path: pathlib.Path, preempt: typing.Optional[str] = "full",
               shipped: bool = False, failed: typing.Collection[str] = ()) -> typing.Set[str]:
    """The tests that must fail on the stock kernel, including the tests oops.*, which crash it. A comment after a test
    limits it to some kernels:

      # preempt=X   kernels with that preemption mode; all if @preempt is None
      # shipped     kernels as Debian ships them, whose configuration has more than Kconfig.fragment
      # may         machines where it does fail, that is, if it is in @failed

    "# survives" does not limit a test: see read_survived().
    """
    found = set()
    for line in path.read_text(errors="replace").splitlines():
        test, _, comment = line.partition("#")
        only = re.match(r" *(preempt=|shipped|may)([\w.]*)$", comment)
        holds: typing.Dict[str, typing.Callable[..., bool]] = {
            "preempt=": lambda x: preempt in (None, x), "shipped": lambda x: shipped or preempt is None,
            "may": lambda x, test=test.strip(): preempt is None or test in failed}
        if test.strip() and (not only or holds[only[1]](only[2])):
            found.add(test.strip())
    return found


def read_survived(path: pathlib.Path) -> typing.Set[str]:
    """The tests oops.* that fail on the stock kernel but do not crash it: "oops.NAME # survives"."""
    return set(re.findall(r"^(oops\.\S+) *# survives$", path.read_text(errors="replace"), re.M))


class Skip(typing.NamedTuple):
    """A test that the patched kernel skips."""
    reason: str  # as the test prints it
    may: bool    # whether it is skipped depends on the machine


def read_skips(path: pathlib.Path) -> typing.Dict[str, Skip]:
    """test -> Skip, from lines of "TEST # REASON" or "TEST # may: REASON"."""
    return {test: Skip(reason, bool(may)) for test, may, reason in
            re.findall(r"^([\w.]+) +# (may: )?(.*)$", path.read_text(errors="replace"), re.M)}


def write_skips(path: pathlib.Path, skipped: typing.Mapping[str, str]) -> None:
    """Writes the list of skipped tests. @skipped: test -> reason. Tests that are listed with "may" keep it."""
    old = read_skips(path) if path.is_file() else {}
    may = {test: skip for test, skip in old.items() if skip.may}
    skips = may | {test: Skip(reason, test in may) for test, reason in skipped.items()}
    width = max(map(len, skips), default=0)
    replace(path, "# SPDX-License-Identifier: GPL-2.0\n# The tests that make verify skips with the series, with the "
            "reason that each gives; \"may\": on some machines.\n" +
            "".join(f"{test:{width}} # {'may: ' * skip.may}{skip.reason}\n" for test, skip in sorted(skips.items())))


def deadly(tests: typing.Iterable[str]) -> typing.Set[str]:
    """The tests that can crash a kernel that has the bug."""
    return {test for test in tests if test.startswith("oops.")}


def by_default(tests: typing.Iterable[str]) -> typing.Set[str]:
    """The tests that run if none is named (runs_only_if_named() in selftests/harness/main.cc)."""
    return {test for test in tests if not test.startswith(("oops", "gdb"))}


class Mutant:
    """A patch on top of the series, or to selftests/, that breaks one rule. Fields of its message:

    Fails: NAME...            tests (or patterns) that must all fail; oops.* must crash the kernel
    Config: CONFIG            the kernel is built with that file of scripts/configs
    Splat: CONFIG: PATTERN    the kernel, built with CONFIG, must print a splat that matches PATTERN
    Runs: NAME...             the tests that run with Splat:, whatever their results are
    Costs: WAY                this way to hit must cost more than the file "instructions" says
    Without: PATTERN          the matching lines of Kconfig.fragment are left out
    Arch: ARCH                the mutant is for that architecture; x86 by default

    and for mutants of the live patch:

    Dies: NAME...             tests during which the kernel must crash
    Stops: WORDS              the build must stop, and say this
    Hits: WORDS               what livepatch/hits.cc must print while the live patch is loaded and unloaded
    Sed: EXPRESSION           changes the finished module
    """

    def __init__(self, path: pathlib.Path) -> None:
        self.path, self.name = path, path.stem
        text = path.read_text(errors="replace")
        found = {key: " ".join(value.split()) for key, value in
                 re.findall(r"^(Fails|Config|Splat|Runs|Costs|Without|Arch|Dies|Stops|Hits|Sed): "
                            r"((?:.+\n)+?)(?=\n|[A-Z]\w+: |\Z)", text, re.M)}
        self.fails = found.get("Fails", "").split()
        self.runs = found.get("Runs", "").split()
        self.config, _, self.splat = found.get("Splat", "").partition(": ")
        self.config = found.get("Config", self.config)
        self.of_selftests = bool(re.search(r"^\+\+\+ b/selftests/", text, re.M))
        self.costs, self.without, self.arch = found.get("Costs", ""), found.get("Without"), found.get("Arch", "x86")
        self.dies, self.sed = found.get("Dies", "").split(), found.get("Sed")
        self.stops, self.hits = found.get("Stops", ""), found.get("Hits", "")
        if not (self.fails or self.runs or self.costs or self.dies or self.stops or self.hits):
            die(f"{path}: says nothing that must happen (Fails:, Runs:, Costs:, Dies:, Stops: or Hits:)")

    def kills(self, tests: typing.Collection[str]) -> typing.List[str]:
        """The tests, of @tests, that must fail with it, or that run until the kernel prints a splat. A pattern that
        matches no test is returned as it is."""
        return [test for pattern in self.fails or self.runs for test in fnmatch.filter(tests, pattern) or [pattern]]
