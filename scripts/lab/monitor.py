# SPDX-License-Identifier: GPL-2.0
"""Asks QEMU what a guest does that says nothing any more."""
import collections
import json
import os
import re
import select
import socket
import time

# What "log int" writes of an int3 instruction in the kernel, before all registers.
INT3 = re.compile(r"^ *\d+: v=03 e=0000 i=1 cpl=0 IP=\w+:(\w+)", re.M)
WINDOW = 0.2   # seconds for which exceptions are logged
ENOUGH = 100   # exceptions in that time; a CPU that takes one forever has thousands
PATIENCE = 5   # seconds for an answer
KEPT = 1 << 20  # bytes of such a log


class Monitor:
    """A QMP monitor (docs/interop/qmp-spec in QEMU) over a socket, and a pipe that QEMU logs to. A file
    would grow by 100 MB a second, and a pipe without a reader would stop the guest."""

    def __init__(self):
        self.socket, self.its_socket = socket.socketpair()
        reads, writes = os.pipe()
        self.log, self.its_log = open(reads, "rb", buffering=0), open(writes, "wb", buffering=0)
        # In QEMU they have the same numbers.
        self.inherited = self.its_socket.fileno(), writes
        self.buffer = b""

    def options(self):
        return ["-chardev", f"socket,id=monitor,fd={self.inherited[0]}", "-mon", "chardev=monitor,mode=control"]

    def started(self):
        """QEMU has them now."""
        self.its_socket.close()
        self.its_log.close()

    def close(self):
        for each in (self.socket, self.its_socket, self.log, self.its_log):
            each.close()

    def drain(self, seconds, until_reply=False):
        """Reads what is logged; with @until_reply to the answer, which it returns: (log, answer)."""
        end, text = time.monotonic() + seconds, b""
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self.log] + [self.socket] * until_reply, [], [], left)
            if self.log in ready:
                piece = self.log.read(1 << 16)
                text += piece if len(text) < KEPT else b""
            if self.socket in ready:
                piece = self.socket.recv(1 << 16)
                if not piece:
                    raise OSError("QEMU has closed its monitor")
                *lines, self.buffer = (self.buffer + piece).split(b"\n")
                for answer in map(json.loads, lines):
                    if "return" in answer or "error" in answer:
                        return text, answer.get("return")
        if until_reply:
            raise OSError("QEMU's monitor does not answer")
        return text, None

    def execute(self, command, **arguments):
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        return self.drain(PATIENCE, until_reply=True)

    def tell(self, line):
        """A command of the human monitor: (what was logged meanwhile, what it prints)."""
        return self.execute("human-monitor-command", **{"command-line": line})

    def int3s(self):
        """How often which address had an int3, for a moment."""
        self.tell(f"logfile /proc/self/fd/{self.inherited[1]}")
        text, _ = self.tell("log int")
        text += self.drain(WINDOW)[0]
        text += self.tell("log none")[0]
        return collections.Counter(INT3.findall(text.decode(errors="replace")))

    def stale_int3(self):
        """The address at which a CPU takes an int3 again and again that is not in its memory, or None. Up to 6.1
        kprobe_int3_handler() of x86 takes such a one for removed, and tries what is there again."""
        try:
            self.execute("qmp_capabilities")
            for address, times in self.int3s().most_common(1):
                byte = re.search(r": 0x(\w\w)\s*$", self.tell(f"x /1xb 0x{address}")[1] or "")
                if times >= ENOUGH and byte and byte[1] != "cc" and self.int3s()[address] >= ENOUGH:
                    return address
        except (OSError, ValueError):
            # The log is not read from here on, so QEMU must not wait for a reader.
            self.close()
        return None
