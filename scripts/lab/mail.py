# SPDX-License-Identifier: GPL-2.0
"""Patches as mails: what git am and checkpatch say of them, and git trees in which a series is applied."""
import os
import pathlib
import re
import shutil
import subprocess
import typing

from lab import TOP, base, tree

# The same result for each user.
NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def copy_files(stock: pathlib.Path, folder: pathlib.Path, files: typing.Iterable[str]) -> pathlib.Path:
    """Copies those of the files that a kernel tree has; returns the folder."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if (stock / file).exists():
            shutil.copy(stock / file, folder / file)
    return folder


def checkpatch(stock: pathlib.Path, patch: pathlib.Path, ignored: str = "") -> None:
    """checkpatch --strict. The integrator adds the sign-off. The tree does not have the commits that "Fixes:" names,
    and their subjects may have spelling errors."""
    command = [stock / "scripts/checkpatch.pl", "--strict", "--no-tree", "--no-summary", "--terse"]
    tree.output(*command, "--ignore", f"MISSING_SIGN_OFF,UNKNOWN_COMMIT_ID,TYPO_SPELLING{ignored and ',' + ignored}",
                patch)
    text = re.sub("(?m)^Fixes: .*\n", "", patch.read_text(errors="replace"))
    tree.output(*command, "--types", "TYPO_SPELLING", input=text)


class Tree:
    """A git tree whose branch "base" has those of the files that a kernel has: git am looks at no others. Its commits
    are by the author of the series, at the time when the series or one of the paths was last changed, so that the
    mails are the same until what is in them changes."""

    def __init__(self, folder: pathlib.Path, stock: pathlib.Path, files: typing.Iterable[str], series: base.Series,
                 *paths: str) -> None:
        self.folder = folder
        name, _, address = series.header(series.patches()[0], "From").rpartition(" ")
        self.date = tree.say("git", "-C", TOP, "log", "-1", "--format=%aI", "--", series.folder, *paths)
        self.environment = os.environ | NO_CONFIGURATION | {
            f"GIT_{role}_{what}": value for role in ("AUTHOR", "COMMITTER")
            for what, value in (("NAME", name), ("EMAIL", address.strip("<>")), ("DATE", self.date))}
        folder.mkdir()
        self.git("init", "-q", "-b", "base")
        copy_files(stock, folder, files)
        self.git("add", "-A")
        self.git("commit", "-q", "-m", f"Linux {base.kernel_version(stock)}")

    def git(self, *command: typing.Union[str, pathlib.Path], **keywords: typing.Any) -> str:
        """What it prints. Ends this program if it fails."""
        return tree.say("git", *command, cwd=self.folder, env=self.environment, **keywords)

    def runs(self, *command: typing.Union[str, pathlib.Path], **keywords: typing.Any) -> bool:
        """Whether it succeeds, as "git diff --quiet" if nothing differs."""
        return subprocess.call(["git", *command], cwd=self.folder, env=self.environment, **keywords) == 0

    def dated(self, patch: bytes) -> bytes:
        """A patch as a mail of that time."""
        first, rest = patch.split(b"\n", 1)
        return b"%s\nDate: %s\n%s" % (first, self.date.encode(), rest)
