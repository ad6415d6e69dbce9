# SPDX-License-Identifier: GPL-2.0
"""Packages of the machine's release and of other releases, from the archive that the machine has configured."""
import contextlib
import os
import pathlib
import re
import shutil
import stat
import subprocess
import sys
import typing

from lab import BUILD, debian, die, from_dkms, later, tree

KEYS = "/usr/share/keyrings/debian-archive-keyring.gpg"
CONFIGURATION = """\
#clear APT::Update;
Dir::Etc::sourcelist "{0}/sources.list";
Dir::Etc::sourceparts "/dev/null";
Dir::State::Lists "{0}/lists";
Dir::Cache "{0}/cache";
"""


def may_update() -> bool:
    """Whether to update the machine's own package lists: only root can, and not under dkms, where apt is running."""
    return not from_dkms() and tree.say("id", "-u") == "0"


def private(release: str, wanted: str) -> pathlib.Path:
    """The path of an apt.conf that makes apt read only @release. @wanted names what comes from it, for messages."""
    if not re.fullmatch("[a-z][a-z0-9-]*", release):
        die(f"not the name of a Debian release: {release}")
    label = "Debian-Security" if release.endswith("-security") else "Debian"
    address = debian.archive(label)
    if not address and may_update():
        # Labels come from the package lists, which may not have been downloaded yet.
        if subprocess.call(["apt-get", "update"], stdout=sys.stderr):
            die("apt-get update failed")
        address = debian.archive(label)
    if not address:
        later(f"{wanted} comes from {release}, but apt has no {label} archive configured; add one to sources.list and "
              "run apt-get update")
    folder = BUILD / "apt" / release
    try:
        (folder / "lists/partial").mkdir(parents=True, exist_ok=True)
        (folder / "cache").mkdir(exist_ok=True)
    except OSError:
        die(f"cannot write to {BUILD}")
    (folder / "sources.list").write_text(f"deb [signed-by={KEYS} target=Packages] {address} {release} main\n")
    # The machine's post-update hooks are for its own package lists, so the configuration clears them.
    (folder / "apt.conf").write_text(CONFIGURATION.format(folder))
    return folder / "apt.conf"


def download(folder: pathlib.Path, options: typing.List[str], *packages: str) -> bool:
    """Downloads to FOLDER/debs; apt's output is in FOLDER/apt.log. If root runs apt, its network code runs as the user
    _apt, provided that _apt can write to the folder. apt itself, as root, verifies a download and takes ownership of
    it, so a file that root does not own afterwards was not verified."""
    debs, user = folder / "debs", os.geteuid()
    shutil.rmtree(debs, ignore_errors=True)
    debs.mkdir(parents=True)
    with contextlib.suppress(LookupError, OSError):
        shutil.chown(debs, "_apt")
    with open(folder / "apt.log", "w") as log:
        done = subprocess.run(["apt-get", "-q", *options, "download", *packages], cwd=debs, stdin=subprocess.DEVNULL,
                              stdout=log, stderr=log, pass_fds=tree.held)
        if done.returncode:
            return False
        os.chown(debs, user, -1)
        found = list(debs.iterdir())
        strange = [path.name for path in found if not stat.S_ISREG(path.lstat().st_mode) or path.lstat().st_uid != user]
        log.write("".join(f"E: {name} was not verified by apt\n" for name in strange or ["nothing"] * (not found)))
    return bool(found) and not strange


def error(folder: pathlib.Path) -> str:
    """Why download() failed."""
    found = re.search("^E:.*", tree.read(folder / "apt.log"), re.M)
    return found[0] if found else "apt-get failed"
