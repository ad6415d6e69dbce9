# SPDX-License-Identifier: GPL-2.0
"""The architecture in $ARCH, with kbuild's names; the default is x86. Each architecture has a file in arch/ with
Kconfig lines that add to Kconfig.fragment or override it, and with these fields in its comments:

  # Image: PATH          of the kernel image, in the object folder
  # Cross: TRIPLET       the prefix of the cross compilers
  # Packages: NAME...    packages for builds and boots that not every verb installs, for scripts/deps
  # Sysroot: NAME...     packages of that architecture for its programs and guests, busybox among them
  # Qemu: NAME           of the emulator
  # Package: NAME        the package of that emulator
  # User: NAME           of the user-mode QEMU that runs its programs here, if they need one
  # Machine: NAME        QEMU's machine type
  # Console: NAME        the kernel's console device
  # Emulated: NAME...    kernel parameters under TCG, which is slow
  # Variant: NAME...     kernel parameters of additional boots of soak
  # Preempt: NAME...     the preemption modes that preempt= can select, if not all
  # Clock: OPTION...     options of QEMU's CPU that make one tick of the clock that programs read one nanosecond
  # Module: FOLDER [OPTION]...  the PMU for guests, if it supports this architecture
"""
import os
import pathlib
import re
import subprocess
import sys
import typing

from lab import BUILD, SCRIPTS


class Arch:
    module: typing.Optional[str]
    module_options: typing.List[str]

    def __init__(self, name: str) -> None:
        self.name = {"x86_64": "x86"}.get(name, name)
        path = SCRIPTS / "arch" / self.name
        # series-check also compiles objects for architectures without a file, but never boots them.
        self.known = path.is_file()
        self.text = (path if self.known else SCRIPTS / "arch/x86").read_text()
        fields = dict(re.findall(r"^# (\w+): (.*)", self.text, re.M))
        self.image, self.qemu, self.package = fields["Image"], fields["Qemu"], fields["Package"]
        self.machine, self.console = fields["Machine"], fields["Console"]
        self.variants = [fields["Variant"].split()] if "Variant" in fields else []
        self.preempt = fields.get("Preempt", "none voluntary full").split()
        self.emulated, self.clock = fields.get("Emulated", "").split(), fields.get("Clock", "")
        self.cross: typing.Optional[str] = fields.get("Cross")
        self.module, *self.module_options = fields.get("Module", "").split() or [None]
        self.user = fields.get("User", "").split()
        self.sysroot = fields.get("Sysroot", "").split()
        # The suffix of its files in the build folder and in patches/expect; those of x86 have none.
        self.suffix = "" if self.name == "x86" else f"-{self.name}"
        self.debian = "amd64" if self.name == "x86" else self.name
        self.folder = self.suffix[1:]  # of its results in the build folder

    def root(self) -> pathlib.Path:
        """The sysroot that scripts/sysroot writes."""
        return BUILD / f"sysroot-{self.name}"

    def make(self) -> typing.List[str]:
        """make's variables for building userspace programs."""
        if not self.cross:
            return []
        return [f"ARCH={self.name}", f"CROSS_COMPILE={self.cross}-", f"SYSROOT={self.root()}"]

    def environment(self) -> typing.Dict[str, str]:
        if not self.cross:
            return {}
        return {"PKG_CONFIG_SYSROOT_DIR": str(self.root()),
                "PKG_CONFIG_LIBDIR": f"{self.root()}/usr/lib/{self.cross}/pkgconfig"}

    def prepare(self) -> None:
        """Installs the sysroot, and links the shell's commands to busybox there."""
        if self.sysroot:
            if subprocess.run([SCRIPTS / "sysroot", self.name, *self.sysroot], stdout=subprocess.DEVNULL).returncode:
                sys.exit(1)
            for name in ("sh", "mount", "cat", "insmod", "ls", "grep", "sleep", "uname", "true", "false", "timeout"):
                link = self.root() / "bin" / name
                if not link.is_symlink():
                    link.symlink_to("busybox")


def names() -> typing.List[str]:
    return sorted(path.name for path in (SCRIPTS / "arch").iterdir())


ARCH = Arch(os.environ.get("ARCH") or "x86")
