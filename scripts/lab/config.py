# SPDX-License-Identifier: GPL-2.0
"""Kconfig.fragment, and the files of configs/ that add to it. Fields in the comments of such a file:

  # Console: TEXT      what a kernel with this configuration prints at boot
  # Runs: TEST         a test that is not skipped with it; "make debug" requires Console: or Runs:
  # Bases: X.Y...      the bases that it is for, if not all
  # Boot: OPTION...    options of scripts/boot for such a kernel
  # Packages: NAME...  packages for its build that not every verb installs
  # Apart: PATTERN     tests that make the debug tool turn itself off; they run in a separate boot

"Bases arm64:" replaces "Bases:" on that architecture; "Boot x86:" adds to "Boot:".
"""
import pathlib
import re
import shlex
import typing

from lab import SCRIPTS, TOP, arch, die
from lab.arch import ARCH
from lab.base import order


class Config:
    def __init__(self, name: str) -> None:
        self.name = name
        self.text = (SCRIPTS / "configs" / name).read_text()
        fields = dict(re.findall(r"^# ((?:Console|Runs|Bases|Boot|Packages|Apart)(?: \w+)?): (.*)", self.text, re.M))
        self.console, self.runs = fields.get("Console"), fields.get("Runs")
        self.bases = fields.get(f"Bases {ARCH.name}", fields.get("Bases", "")).split()
        self.packages = fields.get("Packages", "").split()
        self.apart = fields.get("Apart")
        self.boot = shlex.split(fields.get("Boot", "")) + shlex.split(fields.get(f"Boot {ARCH.name}", ""))

    def is_for(self, base: str) -> bool:
        return not self.bases or base in self.bases


def names() -> typing.List[str]:
    return sorted(path.name for path in (SCRIPTS / "configs").iterdir())


def debug() -> typing.List[Config]:
    """The configurations with a debug tool that finds what no test sees."""
    return [config for config in map(Config, names()) if config.console or config.runs]


def symbols(text: str) -> typing.Set[str]:
    return set(re.findall(r"^(CONFIG_\w+)=", text, re.M))


def fragment(config: typing.Optional[Config] = None, without: typing.Optional[str] = None) -> str:
    """Kconfig.fragment with the lines of $ARCH and of @config, which add to it or override it, and without the lines
    that match @without."""
    text = (TOP / "Kconfig.fragment").read_text()
    for more in [one.text for one in (ARCH if ARCH.suffix else None, config) if one]:
        overridden = symbols(more)
        text = "".join(line for line in text.splitlines(keepends=True) if not symbols(line) & overridden) + more
    return "".join(line for line in text.splitlines(keepends=True) if not (without and re.search(without, line)))


def for_version(path: pathlib.Path, version: str, text: typing.Optional[str] = None) -> str:
    """The lines of a fragment for this version and $ARCH. A comment limits a line to some of them:
    "CONFIG_X=y # from 5.12 before 7.0 on arm64"."""
    kept = []
    for line in (path.read_text() if text is None else text).splitlines():
        marked = re.fullmatch(r'(CONFIG_[^"]*?)[ \t]*#(.*)', line)
        if marked:
            words = marked[2].split()
            marks = list(zip(words[::2], words[1::2]))
            if not words or len(words) % 2 or any(
                    limit not in arch.names() if word == "on" else
                    word not in ("from", "before") or not re.fullmatch(r"\d+\.\d+", limit) for word, limit in marks):
                die(f"{path}: the comment after the option must be 'from X.Y', 'before X.Y' or 'on ARCH': {line}")
            if not all(limit == ARCH.name if word == "on" else
                       (order(version)[:2] >= order(limit)) == (word == "from") for word, limit in marks):
                continue
            line = marked[1]
        kept.append(line + "\n")
    return "".join(kept)


def lost(text: str, configuration: str) -> typing.List[str]:
    """The lines of a fragment that did not take effect in a configuration."""
    have = set(configuration.splitlines())
    known = {line.partition("=")[0] + "=" for line in have}
    return [line for line in text.splitlines() if line.startswith("CONFIG_") and
            (line[:-1] in known if line.endswith("=n") else line not in have)]
