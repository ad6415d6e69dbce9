# SPDX-License-Identifier: GPL-2.0
"""Patches as mails, for git am and checkpatch."""
import pathlib
import re
import shutil
import typing

from lab.tree import output

# The same result for each user.
NO_CONFIGURATION = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1"}


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
    output(*command, "--ignore", f"MISSING_SIGN_OFF,UNKNOWN_COMMIT_ID,TYPO_SPELLING{ignored and ',' + ignored}", patch)
    text = re.sub("(?m)^Fixes: .*\n", "", patch.read_text(errors="replace"))
    output(*command, "--types", "TYPO_SPELLING", input=text)
