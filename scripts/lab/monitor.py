# SPDX-License-Identifier: GPL-2.0
"""Asks QEMU what a guest is doing that has stopped printing."""
import collections
import json
import os
import re
import select
import socket
import time
import typing

# The first line that "log int" writes for an int3 in kernel mode; the registers follow it.
INT3 = re.compile(r"^ *\d+: v=03 e=0000 i=1 cpl=0 IP=\w+:(\w+)", re.M)
WINDOW = 0.2   # seconds for which exceptions are logged
ENOUGH = 100   # exceptions in that time; a CPU that is stuck at an int3 takes thousands
PATIENCE = 5   # seconds for an answer
KEPT = 1 << 20  # bytes of the log that are kept


class Monitor:
    """A QMP monitor (docs/interop/qmp-spec in QEMU) over a socket, and a pipe for QEMU's log. A log file would grow by
    100 MB per second. The pipe must be read, or it blocks the guest."""

    def __init__(self) -> None:
        self.socket, self.its_socket = socket.socketpair()
        reads, writes = os.pipe()
        self.log, self.its_log = open(reads, "rb", buffering=0), open(writes, "wb", buffering=0)
        # QEMU inherits these descriptors under the same numbers.
        self.inherited = self.its_socket.fileno(), writes
        self.buffer = b""

    def options(self) -> typing.List[str]:
        return ["-chardev", f"socket,id=monitor,fd={self.inherited[0]}", "-mon", "chardev=monitor,mode=control"]

    def started(self) -> None:
        """Closes QEMU's ends, which it has inherited."""
        self.its_socket.close()
        self.its_log.close()

    def close(self) -> None:
        for each in (self.socket, self.its_socket, self.log, self.its_log):
            each.close()  # type: ignore[attr-defined]

    def drain(self, seconds: float, until_reply: bool = False) -> typing.Tuple[bytes, typing.Any]:
        """Reads the log for @seconds, or with @until_reply until QEMU answers. Returns (log, answer)."""
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

    def execute(self, command: str, **arguments: str) -> typing.Tuple[bytes, typing.Any]:
        self.socket.sendall(json.dumps({"execute": command, "arguments": arguments}).encode() + b"\n")
        return self.drain(PATIENCE, until_reply=True)

    def tell(self, line: str) -> typing.Tuple[bytes, typing.Optional[str]]:
        """Runs a command of the human monitor. Returns (what was logged meanwhile, output)."""
        return self.execute("human-monitor-command", **{"command-line": line})

    def int3s(self) -> typing.Counter[str]:
        """Counts the int3 exceptions at each address during a fraction of a second."""
        self.tell(f"logfile /proc/self/fd/{self.inherited[1]}")
        text, _ = self.tell("log int")
        text += self.drain(WINDOW)[0]
        text += self.tell("log none")[0]
        return collections.Counter(INT3.findall(text.decode(errors="replace")))

    def stale_int3(self) -> typing.Optional[str]:
        """The address at which a CPU repeatedly takes an int3 that is not in memory, or None. In kernels up to 6.1,
        kprobe_int3_handler() of x86 assumes that such an int3 was just removed, and executes the instruction again."""
        try:
            self.execute("qmp_capabilities")
            for address, times in self.int3s().most_common(1):
                byte = re.search(r": 0x(\w\w)\s*$", self.tell(f"x /1xb 0x{address}")[1] or "")
                if times >= ENOUGH and byte and byte[1] != "cc" and self.int3s()[address] >= ENOUGH:
                    return address
        except (OSError, ValueError):
            # The pipe is not read any more, so close it: otherwise QEMU would block when it is full.
            self.close()
        return None
