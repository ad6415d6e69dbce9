# SPDX-License-Identifier: GPL-2.0
"""Patches as emails: checks with git am and checkpatch, and git trees to which a series is applied."""
import os
import pathlib
import re
import shutil
import subprocess
import typing

from lab import TOP, base, tree

# The user's git configuration must not change the result.
NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def copy_files(stock: pathlib.Path, folder: pathlib.Path, files: typing.Iterable[str]) -> pathlib.Path:
    """Copies files of a kernel tree, except those that it does not have; returns the folder."""
    for file in files:
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        if (stock / file).exists():
            shutil.copy(stock / file, folder / file)
    return folder


def checkpatch(stock: pathlib.Path, patch: pathlib.Path, ignored: str = "") -> None:
    """Runs checkpatch --strict. It ignores the missing sign-off, which the integrator adds, and unknown commits in
    "Fixes:", as the tree has no history. "Fixes:" is not spell-checked: it quotes subjects."""
    command = [stock / "scripts/checkpatch.pl", "--strict", "--no-tree", "--no-summary", "--terse"]
    tree.output(*command, "--ignore", f"MISSING_SIGN_OFF,UNKNOWN_COMMIT_ID,TYPO_SPELLING{ignored and ',' + ignored}",
                patch)
    text = re.sub("(?m)^Fixes: .*\n", "", patch.read_text(errors="replace"))
    tree.output(*command, "--types", "TYPO_SPELLING", input=text)


class Tree:
    """A git tree whose branch "base" has only the given files of a kernel tree: git am reads no others. The author of
    its commits is the author of the series, and their date is that of the last change to the series or to one of the
    paths, so that the mails change only if their content does."""

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
        """Runs git and returns its output. If git fails, the program exits."""
        return tree.say("git", *command, cwd=self.folder, env=self.environment, **keywords)

    def runs(self, *command: typing.Union[str, pathlib.Path], **keywords: typing.Any) -> bool:
        """Runs git and returns whether it succeeded. For commands that may fail, such as "git diff --quiet"."""
        return subprocess.call(["git", *command], cwd=self.folder, env=self.environment, **keywords) == 0

    def dated(self, patch: bytes) -> bytes:
        """The patch as a mail with the date of the commits."""
        first, rest = patch.split(b"\n", 1)
        return b"%s\nDate: %s\n%s" % (first, self.date.encode(), rest)
