# SPDX-License-Identifier: GPL-2.0
"""Code that the verbs share. Each module is the only reader of its subject:

  base      patches/: the series, what stock fails, the mutants
  config    Kconfig.fragment, and the files of configs/ that add to it
  suite     the rules and the tests, as the suite lists them
  ktap      the output of the suite
  splat     kernel splats on a console
  tree      trees, builds and boots in the build folder
  livepatch the sources of a live patch
  klp       the kernel's own selftests of live patches
  debian    Debian's releases and archives, and the names of its kernels
  verdict   judges the results of the stock and the patched guest
  lava      the log of a LAVA job
  prices    what make bench measured
  apt       packages of the machine's release and of other releases
  mail      a series as emails: git am and checkpatch
  kabi      what two kernel builds promise to modules
  kcidb     results in KCIDB's format
  mutate    generates mutants of C code
  variants  series of boots that differ in one respect: soak, prefixes, mutants, debug
"""
import argparse
import os
import pathlib
import re
import signal
import subprocess
import sys
import typing

SCRIPTS = pathlib.Path(__file__).resolve().parent.parent
TOP = SCRIPTS.parent
BUILD = pathlib.Path(os.environ.get("BUILD") or TOP / "build").resolve()


def die(message: object, code: int = 1) -> typing.NoReturn:
    """Prints one line on stderr: what is wrong, where, what to do. Exit code 1; 2 for bad usage. The message may end
    with the last line of a log, so control characters are replaced."""
    message = re.sub(r"[\x00-\x1f\x7f-\x9f]", " ", str(message))
    print(f"{pathlib.Path(sys.argv[0]).name}: {message}", file=sys.stderr)
    sys.exit(code)


def from_dkms() -> bool:
    """Whether dkms/make runs this program. apt may then be in the middle of an installation, so nothing is installed,
    and apt's lists are not updated."""
    return bool(os.environ.get("FROM_DKMS"))


def later(message: object) -> typing.NoReturn:
    """Like die(), for a temporary error, such as a network that is down. The exit code for dkms/make is 75, which makes
    it repeat the build at the next boot."""
    die(message, 75 if from_dkms() else 1)


class Version(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_: typing.Any) -> typing.NoReturn:
        sys.exit(subprocess.run([SCRIPTS / "ship/version"]).returncode)


class Arguments(argparse.ArgumentParser):
    """The docstring of a verb is its help text. Bad usage prints one line."""

    def __init__(self, text: typing.Optional[str]) -> None:
        super().__init__(description=text, allow_abbrev=False,
                         formatter_class=argparse.RawDescriptionHelpFormatter)
        self.add_argument("--version", action=Version, nargs=0, help="print the version and exit")

    def error(self, message: str) -> typing.NoReturn:
        usage = " ".join(self.format_usage().split())
        sys.exit(print(f"{usage} ({message})", file=sys.stderr) or 2)

    def base(self, many: bool = False) -> None:
        self.add_argument("base", nargs="*" if many else "?", metavar="BASE",
                          help="default: " + ("all" if many else "6.1"))


def prepare() -> None:
    """Prepares the process and the environment of its children. Importing the library changes neither."""
    # These paths are used on make's command line and in shell scripts for guests.
    if re.search(r"""[\s:$`"'\\;&|<>()\x00-\x1f\x7f]""", f"{TOP}{BUILD}"):
        die(f"{TOP} or {BUILD}: a path with spaces, colons, quotes, backslashes, parentheses or any of $ ` ; & | < > "
            "cannot be passed to make; move it, or set BUILD=/path")
    os.environ["BUILD"] = str(BUILD)
    # kbuild would take an empty ARCH for the name of an architecture.
    if not os.environ.get("ARCH"):
        os.environ.pop("ARCH", None)
    # The reader of a pipe gets each line immediately.
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[attr-defined]


def run(verb: typing.Callable[[], typing.Optional[int]]) -> typing.NoReturn:
    """Runs a verb's main function. An I/O error prints one line, not a traceback. SIGTERM is like Ctrl-C, so that the
    verb ends its children and removes what is half done."""
    prepare()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        sys.exit(verb())
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        sys.exit(1)
    except OSError as error:
        die(f"{error.filename2 or error.filename or 'a write'}: {error.strerror or error}")


def number(text: typing.Union[str, int], what: str, least: int = 1, digits: int = 9) -> int:
    """Returns an argument that must be a number of at least @least."""
    if not re.fullmatch(f"[0-9]{{1,{digits}}}", str(text)) or int(text) < least:
        die(f"{what} not '{text}'")
    return int(text)


def replace(path: pathlib.Path, text: str) -> None:
    """Writes a file atomically."""
    part = path.with_name(path.name + ".part")
    part.write_text(text)
    part.rename(path)


def printable(text: str) -> str:
    """The text with all but printable ASCII replaced: a guest may print anything."""
    return re.sub(r"[^\x20-\x7e]", "?", text)


def table(rows: typing.Sequence[typing.Sequence[object]]) -> str:
    """A Markdown table; the first row is its header."""
    width = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    lines = ["| " + " | ".join(str(cell).ljust(w) for cell, w in zip(row, width)) + " |" for row in rows]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
    return "\n".join(lines)


def columns(rows: typing.Sequence[typing.Sequence[object]], gap: int = 2) -> typing.List[str]:
    """The lines of a table: the first column is left-aligned, the others are right-aligned."""
    width = [max(len(str(row[i])) for row in rows) for i in range(len(rows[0]))]
    return [(" " * gap).join([str(row[0]).ljust(width[0])] +
                      [str(cell).rjust(w) for cell, w in zip(row[1:], width[1:])]).rstrip() for row in rows]
