# SPDX-License-Identifier: GPL-2.0
"""Trees, builds and boots. Each kernel has a folder in the build folder: stock/, patched/, trees with other patches,
selftests/, and a folder for each boot with its log next to it."""
import atexit
import contextlib
import fcntl
import filecmp
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import typing
import zlib

from lab import BUILD, SCRIPTS, TOP, die, ktap, splat
from lab.arch import ARCH
from lab.base import Base, names, version_of

IMAGE = ARCH.image
OBJ = f"obj{ARCH.suffix}"
# For debug kernels, which require more memory. On QEMU's older machine type, pc, ACPI's PCI interrupt routing is a loop
# in its bytecode, which such a kernel may abort after 30 s; on q35 it is a table. Other architectures have no such
# choice.
LARGE = ["--memory", "2G", *([] if ARCH.suffix else ["--machine", "q35"])]
# Full preemption, where the kernel has it: it exposes races that the other modes hide.
PREEMPT = ["--append", "preempt=full"]
held: typing.List[int] = []  # the descriptor of the lock, which child processes inherit
running: typing.Set["subprocess.Popen[typing.Any]"] = set()  # the processes that this one waits for


@atexit.register
def end_all() -> None:
    """When a step fails, terminate the commands of other threads. A guest dies with its scripts/boot."""
    for process in list(running):
        process.terminate()


def call(*command: typing.Any, **keywords: typing.Any) -> "subprocess.CompletedProcess[typing.Any]":
    """Runs another verb. If it fails, it has printed the reason, and this program exits with its exit code."""
    done = subprocess.run(list(map(str, command)), pass_fds=held, **keywords)
    if done.returncode:
        sys.exit(done.returncode)
    return done


def say(*command: typing.Any, **keywords: typing.Any) -> str:
    """Like call(), but returns the output on stdout."""
    return call(*command, stdout=subprocess.PIPE, text=True, **keywords).stdout.strip()


class Failed(Exception):
    """A command or a check failed; the message is its whole output."""


def output(*command: typing.Any, **keywords: typing.Any) -> str:
    """The output of a command, including stderr. If it fails, raises Failed with the output."""
    if "input" not in keywords:
        keywords.setdefault("stdin", subprocess.DEVNULL)
    try:
        done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              errors="replace", pass_fds=held, **keywords)
    except OSError as error:
        raise Failed(f"{command[0]}: {error.strerror}") from None
    if done.returncode:
        raise Failed(done.stdout or f"{command[0]} ended with {done.returncode}")
    return done.stdout


def patch(path: typing.Union[str, pathlib.Path], folder: pathlib.Path, *options: str) -> str:
    """Applies a patch with fuzz 0. Returns the error, or ""."""
    try:
        output("patch", "-d", folder, "-p1", "-F0", "-s", "-f", "-i", pathlib.Path(path).resolve(), *options)
    except Failed as error:
        return str(error).strip()
    return ""


def wait_for(command: typing.Iterable[object], *locks: int, **keywords: typing.Any) -> int:
    """Runs a command, which also inherits @locks; returns its exit code. When this process is terminated, so is the
    command, which then ends its children; subprocess.run() would kill it, and they would continue."""
    process = subprocess.Popen(list(map(str, command)), pass_fds=[*held, *locks], **keywords)
    running.add(process)
    code = process.wait()
    running.discard(process)
    return code


class Killed(SystemExit):
    """A make was killed, so its files may be half-written."""


def progress(label: str, command: typing.Iterable[object], log: pathlib.Path, pattern: str = ktap.TESTS,
             unit: str = "tests", **keywords: typing.Any) -> int:
    """Runs a command with its output in @log; returns the exit code. Meanwhile a terminal shows a progress line: how
    many lines of @log match @pattern, and the time."""
    start = time.monotonic()
    with open(log, "wb") as output:
        process = subprocess.Popen(list(map(str, command)), stdin=subprocess.DEVNULL, stdout=output,
                                   stderr=subprocess.STDOUT, pass_fds=held, **keywords)
    running.add(process)
    # If several commands run in parallel, only the main thread's has a progress line.
    live = sys.stderr.isatty() and threading.current_thread() is threading.main_thread()
    while live and process.poll() is None:
        count = len(re.findall(pattern, read(log), re.M))
        print(f"\r{label}: {count} {unit}, {time.monotonic() - start:.0f} s ", end="", file=sys.stderr, flush=True)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(0.5)
    code = process.wait()
    running.discard(process)
    if live:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    return code


def read(path: pathlib.Path) -> str:
    """The text of a log, or "" if there is none. A lone CR in a test's message does not end a line."""
    try:
        return path.read_bytes().decode(errors="replace").replace("\r\n", "\n")
    except OSError:
        return ""


def last_line(log: pathlib.Path) -> str:
    return (read(log).strip().splitlines() or [f"{log} is empty"])[-1]


def lock(lock: typing.Optional[int] = None, owner: typing.Optional[str] = None) -> None:
    """Locks the build folder until this process and all its children have exited. A shell passes its own descriptor
    as @lock, and its process ID as @owner."""
    path = BUILD / ".lock"
    if os.environ.get("LOCKED") == str(BUILD):
        return  # make check holds the lock, and knows which steps can run in parallel
    try:
        BUILD.mkdir(parents=True, exist_ok=True)
        lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o644) if lock is None else lock
    except OSError:
        die(f"cannot write to {BUILD}")
    for wait in range(600):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # type: ignore[arg-type]
            break
        except BlockingIOError:
            other = path.read_text().strip()
            # The children of a killed run exit soon: a guest at its time limit, a make when everything is built.
            if re.fullmatch(r"\d+", other) and pathlib.Path(f"/proc/{other}").exists():
                die(f"another run (process {other}) is using {BUILD}; wait for it, or set another "
                    "BUILD=/path")
            if not wait:
                print("waiting for the processes of a killed run to end", file=sys.stderr)
            time.sleep(1)
    else:
        die(f"{path} is still locked; fuser {path} shows the process")
    try:
        path.write_text(f"{owner or os.getpid()}\n")
    except OSError as error:
        die(f"cannot write to {BUILD}: {error.strerror}")
    held.append(lock)  # type: ignore[arg-type]


@contextlib.contextmanager
def making(folder: pathlib.Path) -> typing.Iterator[int]:
    """Allows one make at a time in a folder. Yields the descriptor of the lock: a make that inherits it keeps the lock
    if it outlives this process. make compares only timestamps, so it would take a file that a killed make left
    half-written for finished. Therefore the folder is emptied if the last make did not end normally."""
    marker = folder / ".making"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        file = open(marker, "a+")
    except OSError:
        die(f"cannot write to {folder}")
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if os.fstat(file.fileno()).st_size:
            for child in folder.iterdir():
                if child != marker:
                    child.unlink() if child.is_symlink() or not child.is_dir() else shutil.rmtree(child)
        file.write("a make runs\n")
        file.flush()
        ended = True
        try:
            yield file.fileno()
        except (KeyboardInterrupt, Killed):
            ended = False
            raise
        finally:
            if ended:
                file.truncate(0)


def ksrc_folder() -> typing.Optional[pathlib.Path]:
    """The folder with the copy of the tree $KSRC; None if KSRC is not set."""
    ksrc = os.environ.get("KSRC")
    return BUILD / f"ksrc-{zlib.crc32(bytes(pathlib.Path(ksrc).resolve()))}" if ksrc else None


def built(base: Base) -> bool:
    """Whether a patched kernel has been built, of any version."""
    folder = ksrc_folder()
    # The first release of a line has the name of the line: linux-7.0.
    folders = [folder.name] if folder else [f"linux-{base.name}", f"linux-{base.name}.*"]
    return any(any(BUILD.glob(f"{name}/patched/{OBJ}/{IMAGE}")) for name in folders)


def copy_ksrc(one: Base, folder: pathlib.Path) -> "Work":
    """Updates the copy of the user's tree, which stays unchanged, and returns its Work."""
    ksrc = os.environ["KSRC"]
    version = version_of(ksrc, f"KSRC={ksrc}")
    if not one.is_for(version):
        fit = [name for name in names() if Base(name).is_for(version)]
        die(f"KSRC={ksrc} is Linux {version}, but BASE is {one.name}; " +
            (f"set BASE={fit[-1]}" if fit else f"no series is for Linux {version}"))
    stock = folder / "stock"
    stock.mkdir(parents=True, exist_ok=True)
    # Compare contents, and give each changed file a new timestamp: a change may make a file older ("mv file.orig
    # file"), and make would not notice it. The lock serialises the parallel stages of make check.
    with open(folder / ".lock", "a") as alone:
        fcntl.flock(alone, fcntl.LOCK_EX)
        if subprocess.call(["rsync", "-rlpgoD", "--checksum", "--delete", "--exclude=/.git", "--exclude=/obj*",
                            f"{pathlib.Path(ksrc).resolve()}/", f"{stock}/"]):
            die(f"cannot copy {ksrc} to {stock}")
        if (stock / ".config").exists() or (stock / "include/config").is_dir():
            if subprocess.call(["make", "-s", "-C", stock, "mrproper"], stdout=subprocess.DEVNULL):
                die(f"cannot clean the copy of {ksrc} in {stock}")
    return Work(one, stock)


def fetch(base: Base) -> "Work":
    """The Work for a copy of the tree $KSRC, for $VERSION, or for the newest version."""
    if folder := ksrc_folder():
        return copy_ksrc(base, folder)
    version = os.environ.get("VERSION")
    return Work(base, pathlib.Path(say(SCRIPTS / "fetch", base.name, *([version] if version else []))))


def build_selftests(stock: pathlib.Path, folder: pathlib.Path, source: pathlib.Path = TOP / "selftests") -> None:
    """Builds the selftests for a kernel in FOLDER/selftests, or FOLDER/selftests-ARCH for another architecture."""
    log, out = folder / f"selftests{ARCH.suffix}.log", folder / f"selftests{ARCH.suffix}"
    ARCH.prepare()
    with making(out) as lock, open(log, "wb") as output:
        code = wait_for(["make", f"-j{os.cpu_count()}", "-C", source, f"KSRC={stock}", f"OUT={out}", *ARCH.make()],
                        lock, env=os.environ | ARCH.environment(), stdout=output, stderr=output)
        if code < 0:
            raise Killed(f"{out}: make was killed by signal {-code}")
    if code:
        print("\n".join(read(log).splitlines()[-15:]), file=sys.stderr)
        die(f"the selftests do not build; see {log}")


class Work:
    """The folder of one kernel in the build folder."""

    def __init__(self, base: Base, stock: pathlib.Path) -> None:
        self.base, self.stock, self.folder = base, stock, stock.parent
        self.patched = self.folder / "patched"

    def __str__(self) -> str:
        return self.folder.name

    def image(self, kernel: str, obj: str = OBJ) -> pathlib.Path:
        return self.folder / kernel / obj / IMAGE

    def program(self, name: str = "perf_bpf_filter") -> pathlib.Path:
        return self.folder / f"selftests{ARCH.suffix}" / name

    def need(self, *kernels: str) -> None:
        """Requires these kernels. Builds the stock one, which verify does not build where Debian ships it."""
        self.base.subject()  # hash the series now: it may be edited while the measurement runs
        for kernel in sorted(kernels):
            if self.image(kernel).is_file():
                if kernel == "patched" and not self.is_applied():
                    die(f"{self.patched} was built from an earlier series; run make verify BASE={self.base.name} first")
                continue
            if kernel != "stock" or not self.image("patched").is_file():
                die(f"nothing built in {self.folder / kernel}; run make verify BASE={self.base.name} first")
            self.build(kernel)

    def is_applied(self) -> bool:
        """Whether the patched tree has exactly this series: apply records the digest of the series there."""
        return read(self.patched / ".series-applied").strip() == self.base.digest()

    def build_selftests(self) -> None:
        build_selftests(self.stock, self.folder)

    def apply(self, kernel: str, patches: typing.Optional[typing.Collection[pathlib.Path]] = None,
              log: typing.Optional[pathlib.Path] = None, what: typing.Optional[str] = None) -> None:
        """Creates the tree @kernel: stock with the series, or with these patches. With a log, the error message is its
        last line, after @what."""
        with tempfile.TemporaryDirectory() as name:
            folder = self.base.folder
            if patches is not None:
                folder = pathlib.Path(name)
                comments = [line for line in self.base.text.splitlines() if line.startswith("#")]
                (folder / "series").write_text("\n".join(comments + [path.name for path in patches]) + "\n")
                for path in patches:
                    (folder / path.name).symlink_to(path)
            with open(log, "wb") if log else contextlib.nullcontext() as output:  # type: ignore[attr-defined]
                done = subprocess.run([SCRIPTS / "apply", folder, self.stock, self.folder / kernel],
                                      stderr=output, pass_fds=held)
        if done.returncode:
            die(f"{what}: {last_line(log)}") if log else sys.exit(done.returncode)

    def seed(self, kernel: str, obj: str) -> None:
        """Copies the objects of the tree that a new tree was made from, so that make compiles only what differs. make
        compares timestamps, so each file with different content gets a new one."""
        target = self.folder / kernel
        source = self.patched if kernel.startswith(("mutant", "generated")) else self.stock
        if target == source or (target / obj).exists() or read(source / obj / ".making") or \
                not (source / obj / "fragment").is_file():
            return
        part = target / f"{obj}.part"
        shutil.rmtree(part, ignore_errors=True)
        call("cp", "-a", "--reflink=auto", source / obj, part)
        (part / IMAGE).unlink(missing_ok=True)
        # objtool's .cmd files have absolute paths. If objtool were rebuilt, so would be all that it processes.
        for command in (part / "tools").rglob("*.cmd"):
            command.write_text(read(command).replace(f"{source}/", f"{target}/"))
        files = {file for folder in (source, target) for file in read(folder / ".series-files").splitlines()}
        for file in files:
            ours, theirs = target / file, source / file
            if ours.is_file() and theirs.is_file() and filecmp.cmp(ours, theirs, shallow=False):
                if not ours.samefile(theirs):
                    os.utime(ours, ns=(theirs.stat().st_atime_ns, theirs.stat().st_mtime_ns))
            elif ours.is_file():
                # It may be a hard link to the stock tree's file.
                shutil.copy(ours, f"{ours}.part")
                os.rename(f"{ours}.part", ours)
        part.rename(target / obj)

    def build(self, kernel: str, *targets: str, obj: str = OBJ, fragment: typing.Optional[str] = None,
              log: typing.Optional[pathlib.Path] = None, what: typing.Optional[str] = None) -> pathlib.Path:
        """Builds, and returns the image. With a log, the output goes there."""
        self.seed(kernel, obj)
        environment = os.environ | {"OBJ": obj}
        if fragment:
            path = self.folder / f"{kernel}-{obj}.fragment"
            path.write_text(fragment)
            environment["FRAGMENT"] = str(path)
        with open(log, "wb") if log else contextlib.nullcontext() as output:  # type: ignore[attr-defined]
            code = wait_for([SCRIPTS / "build", self.folder / kernel, *targets], env=environment,
                            stdout=subprocess.DEVNULL, stderr=output)
        if code:
            die(f"{what}: does not build; the log is {log}") if log else sys.exit(code)
        return self.image(kernel, obj)

    def shipped(self, whole: bool = True) -> typing.Optional[str]:
        """The name, as printed by uname -r, of Debian's kernel of exactly this source; None if apt has none for this
        machine's release. With @whole, the machine's own compiler must be able to build the PMU for guests for it,
        which the whole suite requires."""
        if os.environ.get("KSRC") or (whole and ARCH.suffix):
            return None
        other: typing.Any = BUILD / "apt" / ARCH.name / "apt.conf"  # scripts/sysroot writes it
        try:
            known = subprocess.run(["apt-cache", *(["-c", other] if ARCH.suffix else []), "dumpavail"],
                                   capture_output=True, text=True, check=True).stdout
        except (OSError, subprocess.CalledProcessError):
            return None
        version, name = re.escape(self.folder.name.removeprefix("linux-")), r"\d+\.\d+\.\d+(?:-\d+|\+deb\d+)"
        found = re.search(rf"^Package: linux-image-({name}-{ARCH.debian})\n(?:.+\n)*?Version: {version}\n", known, re.M)
        return found[1] if found else None

    def boot(self, image: typing.Union[str, pathlib.Path], command: typing.Iterable[object], out: pathlib.Path,
             label: str, *options: object, pattern: str = ktap.TESTS, unit: str = "tests") -> "Ran":
        """Boots an image, or Debian's kernel with that name, and runs a command in it. The caller judges the result."""
        out.mkdir(parents=True, exist_ok=True)
        (out / "boot.json").unlink(missing_ok=True)
        log = out.with_name(out.name + ".log")
        boot = [SCRIPTS / "boot-image", image, out] if isinstance(image, str) else \
            [SCRIPTS / "boot", "--accel", os.environ.get("ACCEL") or "auto", "--out", out]
        code = progress(label, [*boot, *options, *([] if isinstance(image, str) else [image]), "--", *command], log,
                        pattern, unit)
        return Ran(out, log, code)


class Ran:
    """The results of a boot."""

    def __init__(self, out: pathlib.Path, log: pathlib.Path, code: int) -> None:
        self.out, self.log, self.code = out, log, code
        try:
            result = json.loads((out / "boot.json").read_text())
        except (OSError, ValueError):
            die(last_line(log))
        self.outcome, self.exit = result["outcome"], result.get("exit")
        found = result.get("splats", [])
        self.splats = [one["line"] for one in found]
        # The test that was running at the first splat, and the one during which the kernel crashed.
        self.during, self.crashed = next((one["test"] for one in found), None), splat.crashed(found)
        self.seconds = result.get("seconds")
        self.output, self.console = read(out / "output.log"), read(out / "console.log")
        self.results = ktap.Said.of(self.output)

    def said(self) -> typing.List[str]:
        """The messages of scripts/boot itself."""
        return [line for line in read(self.log).splitlines() if line.startswith("boot: ")]

    def why(self) -> str:
        """Why a boot ended without the command's exit code."""
        return f"boot ended with {self.code}: {next(iter(self.said()), '')}".rstrip(": ")

    def cut_short(self) -> str:
        """Why a run of the suite is incomplete; "" if it has all its results, passed or failed."""
        if self.code > 1:
            return self.why()
        try:
            results = ktap.parse("TAP version " + self.output.partition("TAP version ")[2])
        except ktap.Bad as error:
            return str(error)
        return "" if self.exit == ("fail" in results.values()) else f"exit code {self.exit} does not fit the results"
