# SPDX-License-Identifier: GPL-2.0
"""The sources of a base's live patch. The plan, patches/livepatch/linux-X.Y.plan, selects source files and patches of
the series; linux-X.Y.patch is applied on top of these."""
import os
import pathlib
import re
import typing

from lab import TOP, base, die

FOLDER = TOP / "patches/livepatch"


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
