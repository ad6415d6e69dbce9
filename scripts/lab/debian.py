# SPDX-License-Identifier: GPL-2.0
"""Debian's releases, the names of its kernels, and the archives that apt reads."""
import platform
import re
import subprocess
import typing

from lab import die

RELEASES = {"12": "bookworm", "13": "trixie"}


def machine() -> str:
    """The version of the machine's release, such as 12; empty for testing and sid."""
    return platform.freedesktop_os_release().get("VERSION_ID", "")


def newest() -> str:
    """The kernel that the archive's linux-image-amd64 depends on."""
    done = subprocess.run(["apt-cache", "depends", "linux-image-amd64"], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True, check=False)
    found = re.search(r"^ *Depends: linux-image-(\S+)", done.stdout, re.M)
    return found[1] if found else die("apt lists no kernel; name one, such as 6.1.0-56-amd64")


def line_of(kernel: str) -> str:
    """6.1 for 6.1.0-56-amd64. Rejects anything else: the name becomes part of paths and command lines."""
    found = re.fullmatch(r"(\d+\.\d+)\.[0-9a-z.+~-]+", kernel, re.ASCII)
    return found[1] if found else die(f"not a kernel name as uname -r prints it: {kernel}")


def other(kernel: str) -> str:
    """The release that a kernel is for, such as 13, or "" if that is the machine's own. scripts/debian provides the
    compiler and the packages of another release."""
    found = re.search(r"\+deb(\d+)-", kernel)
    return found[1] if found and found[1] != machine() else ""


def release(version: str) -> str:
    """trixie for 13"""
    return RELEASES.get(version) or die(f"no such Debian: {version} (available: {' '.join(RELEASES)})")


def archive(label: str) -> str:
    """The URL of Debian's archive with this label in apt's configuration; empty if there is none."""
    targets = subprocess.run(["apt-get", "indextargets", "--format", "$(ORIGIN)|$(LABEL)|$(REPO_URI)",
                              "Created-By: Packages"], stdout=subprocess.PIPE, text=True).stdout
    addresses = [line.removeprefix(f"Debian|{label}|") for line in targets.splitlines()
                 if line.startswith(f"Debian|{label}|")]
    return addresses[0] if addresses else ""


def apt_lines(name: str) -> typing.List[str]:
    """Lines of sources.list for a release, its backports and its security updates."""
    debian, security = archive("Debian"), archive("Debian-Security")
    if not debian or not security:
        die("apt has no Debian archive or no Debian security archive configured; add both to sources.list")
    return [f"deb {debian} {name} main", f"deb {debian} {name}-backports main", f"deb {security} {name}-security main"]
