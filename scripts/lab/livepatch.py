# SPDX-License-Identifier: GPL-2.0
"""The sources of a base's live patch, and the kernel with the module that scripts/livepatch/build makes of them. The
plan, patches/livepatch/linux-X.Y.plan, selects source files and patches of the series; linux-X.Y.patch is applied on
top of these."""
import os
import pathlib
import re
import shlex
import subprocess
import sys
import typing

from lab import BUILD, SCRIPTS, TOP, base, die, printable, tree

FOLDER = TOP / "patches/livepatch"
PROGRAMS = SCRIPTS / "livepatch"
NAME = "perf_bpf_filter_livepatch"
PARTS = ("before", "loaded", "after")  # of a run of make verify-live


def bases() -> typing.List[str]:
    """The bases that have a live patch, oldest first."""
    return sorted((path.stem.removeprefix("linux-") for path in FOLDER.glob("linux-*.plan")), key=base.order)


class Plan:
    """The lines "object" and "without" of a plan; scripts/livepatch/cut.cc reads the others."""

    def __init__(self, name: str) -> None:
        if name not in bases():
            die(f"no live patch for Linux {name} (available: {' '.join(bases())})")
        self.name = name
        self.path = FOLDER / f"linux-{name}.plan"
        self.series = base.Series(TOP / "patches" / f"linux-{name}")
        text = self.path.read_text()
        self.objects: typing.List[str] = re.findall(r"^object ([^\s#]+)", text, re.M)
        self.without: typing.List[str] = re.findall(r"^without ([^\s#]+)", text, re.M)

    def patches(self) -> typing.List[pathlib.Path]:
        """The series without the patches that the plan leaves out, then the changes for a running kernel."""
        names = self.series.patches()
        for name in self.without:
            if name not in names:
                die(f"{self.path} leaves out a patch that is not in the series: {name}")
        return [*(self.series.folder / name for name in names if name not in self.without),
                self.path.with_suffix(".patch")]

    def digest(self) -> str:
        """A hash of the plan and its patches."""
        return base.digest([self.path, *self.patches()])

    def folders(self) -> typing.Dict[str, typing.List[str]]:
        """The folder of each object -> the names of its objects."""
        found: typing.Dict[str, typing.List[str]] = {}
        for path in self.objects:
            folder, name = os.path.split(path)
            found.setdefault(folder, []).append(name)
        return found

    def files(self) -> typing.List[str]:
        """The files of the kernel tree that the series touches or that are compiled."""
        return sorted({*self.series.files(), *(path.removesuffix(".o") + ".c" for path in self.objects)})


def build(kernel: str, log: pathlib.Path, mutant: typing.Optional[base.Mutant] = None) -> int:
    """Builds the module, or livepatch/KERNEL-mutant with a mutant; returns the exit code. The caller has locked the
    build folder."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "wb") as output:
        return subprocess.call([PROGRAMS / "build", kernel], stdout=output, stderr=output if mutant else None,
                               pass_fds=tree.held, env=os.environ | {
                                   "LOCKED": str(BUILD), "MUTANT": str(mutant.path) if mutant else ""})


class Work(tree.Work):
    """A kernel of Debian, its source, and the module that was built for it."""

    def __init__(self, one: base.Live) -> None:
        made = BUILD / "livepatch" / one.title
        version = re.search(r"Debian (\S+) ", tree.read(made / "module/build.h"))
        self.module = made / f"{NAME}.ko"
        if not version or not self.module.is_file():
            die(f"run make verify-live KERNEL={one.title} first, to build the module")
        super().__init__(one, BUILD / f"linux-{version[1]}/stock")

    def need(self, *_: str) -> None:
        """Requires that the module has the current patches: build records their digest. Both kernels are Debian's."""
        self.base.subject()  # hash the series now: it may be edited while the measurement runs
        if tree.read(self.module.with_name(".patches-applied")).strip() != Plan(self.base.name).digest():
            die(f"{self.module} was built from earlier patches; run make verify-live KERNEL={self.base.title} first")

    def loaded(self, command: typing.Iterable[object], module: typing.Optional[pathlib.Path] = None
               ) -> typing.List[object]:
        """A command that loads the live patch, and then runs @command."""
        return ["sh", "-c", f"{PROGRAMS}/cycle load {module or self.module} && {shlex.join(map(str, command))}"]

    def cycles(self, count: int, module: pathlib.Path) -> typing.List[object]:
        """The command that loads and unloads the module @count times while breakpoints are hit on every CPU."""
        hits = module.with_name("hits")
        hits.parent.mkdir(parents=True, exist_ok=True)
        if subprocess.call(["g++", "-std=gnu++20", "-O2", "-static", "-o", hits, PROGRAMS / "hits.cc", "-lbpf", "-lelf",
                            "-lz"]):
            die("scripts/livepatch/hits.cc does not compile")
        return [hits, PROGRAMS / "cycles", count, module, hits]

    def compare(self, tests: typing.Sequence[str], loaded: typing.Sequence[str]) -> pathlib.Path:
        """Boots the kernel, and runs the probe and @tests before the live patch is loaded and after it was unloaded,
        and @loaded while it is loaded: tests that can crash a kernel with the bugs. Returns the folder of the results,
        in which "== PART" precedes the output of each part."""
        probe, suite = self.program("perf_bpf_probe"), self.program()
        script = self.module.with_name("suite")
        script.write_text(f"""part() {{
	echo "== $1"
	shift
	{probe} --json
	{suite} "$@"
}}
part before {shlex.join(tests)}
{PROGRAMS}/cycle load {self.module} && part loaded {shlex.join(loaded)}
{PROGRAMS}/cycle unload {NAME} && part after {shlex.join(tests)}
echo '== end'
""")
        kernel = self.base.title
        ran = self.boot(kernel, ["sh", script], self.folder / f"live-{kernel}", f"{kernel}: boot", "--hold-keys",
                        *tree.PREEMPT, "--timeout", os.environ.get("TIMEOUT") or "3000")
        if ran.code:
            print("\n".join(ran.said()), file=sys.stderr)
            # The next guest overwrites the console, and in CI nothing else remains.
            splat = "".join(re.findall(r"^.*-\[ cut here \]-.*?-\[ end trace .*?\n", ran.console, re.M | re.S))
            for line in splat.splitlines()[:100]:
                print(f"# {printable(line)}", file=sys.stderr)
            sys.exit(ran.code)
        return ran.out
