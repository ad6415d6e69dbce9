# SPDX-License-Identifier: GPL-2.0
"""The architecture that $ARCH names, as kbuild does: x86 if it names none. A file of arch/ has its
Kconfig lines, which add to Kconfig.fragment or set something in another way, and in its comments:

  # Image: PATH          of the kernel, in the folder of its objects
  # Cross: TRIPLET       what the names of the compilers begin with
  # Packages: NAME...    what its builds and boots take that is not installed for every verb, for scripts/deps
  # Sysroot: NAME...     packages of that architecture, for its programs and guests; busybox is one
  # Qemu: NAME           and the Package: that has it
  # User: NAME           of the QEMU that runs a program of it here, if that takes one
  # Machine: NAME        of QEMU
  # Console: NAME        of the kernel
  # Emulated: NAME...    parameters for it where TCG is slow
  # Variant: NAME...     parameters with which soak boots it, too
  # Preempt: NAME...     what preempt= chooses from there, if not from all
  # Clock: OPTION...     of QEMU's CPU, so that a tick of what a program reads is a nanosecond
  # Module: FOLDER [OPTION]...  of the PMU for guests, where it is for this architecture
"""
import os
import re
import subprocess
import sys

from lab import BUILD, SCRIPTS


class Arch:
    def __init__(self, name):
        self.name = {"x86_64": "x86"}.get(name, name)
        path = SCRIPTS / "arch" / self.name
        # series-check compiles objects for others, too, and boots none of them.
        self.known = path.is_file()
        self.text = (path if self.known else SCRIPTS / "arch/x86").read_text()
        said = dict(re.findall(r"^# (\w+): (.*)", self.text, re.M))
        self.image, self.qemu, self.package = said["Image"], said["Qemu"], said["Package"]
        self.machine, self.console = said["Machine"], said["Console"]
        self.variants = [said["Variant"].split()] if "Variant" in said else []
        self.preempt = said.get("Preempt", "none voluntary full").split()
        self.emulated, self.clock = said.get("Emulated", "").split(), said.get("Clock", "")
        self.cross = said.get("Cross")
        self.module, *self.module_options = said.get("Module", "").split() or [None]
        self.user = said.get("User", "").split()
        self.sysroot = said.get("Sysroot", "").split()
        # In the build folder and in patches/expect; x86's have none.
        self.suffix = "" if self.name == "x86" else f"-{self.name}"
        self.debian = "amd64" if self.name == "x86" else self.name
        self.folder = self.suffix[1:]  # of its results

    def root(self):
        """Its sysroot: SYSROOT as scripts/sysroot leaves it."""
        return BUILD / f"sysroot-{self.name}"

    def make(self):
        """What make is told to build programs."""
        if not self.cross:
            return []
        return [f"ARCH={self.name}", f"CROSS_COMPILE={self.cross}-", f"SYSROOT={self.root()}"]

    def environment(self):
        if not self.cross:
            return {}
        return {"PKG_CONFIG_SYSROOT_DIR": str(self.root()),
                "PKG_CONFIG_LIBDIR": f"{self.root()}/usr/lib/{self.cross}/pkgconfig"}

    def prepare(self):
        """What its guests and programs take, and the links by which busybox is all of a shell's commands."""
        if self.sysroot:
            if subprocess.run([SCRIPTS / "sysroot", self.name, *self.sysroot], stdout=subprocess.DEVNULL).returncode:
                sys.exit(1)
            for name in ("sh", "mount", "cat", "insmod", "ls", "grep", "sleep", "uname", "true", "false", "timeout"):
                link = self.root() / "bin" / name
                if not link.is_symlink():
                    link.symlink_to("busybox")


def names():
    return sorted(path.name for path in (SCRIPTS / "arch").iterdir())


# kbuild would take an empty one for a name.
if not os.environ.get("ARCH"):
    os.environ.pop("ARCH", None)
ARCH = Arch(os.environ.get("ARCH", "x86"))
