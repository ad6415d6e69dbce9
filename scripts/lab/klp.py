# SPDX-License-Identifier: GPL-2.0
"""The kernel's own selftests of live patches, on a Debian kernel without our live patch and while it is loaded, for
make peers."""
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import typing

from lab import SCRIPTS, compare, debian, die, livepatch, tree

# Since 6.9 the tests build their modules against the headers of a kernel. Older kernels run the tests of this base.
FALLBACK = "6.12"
# Tests that cannot pass while another live patch is loaded.
ALONE = {
    "atomic-replace-livepatch": "expects no live patch but the three that it loads",
    "livepatch-interaction-with-ftrace_enabled-sysctl": "turns ftrace off, which is not possible while a live patch "
                                                        "uses it",
}
# Each file stops at its first test that fails, which may leave modules behind. The tests of atomic replace unload our
# live patch, so load it again for the next file. $1 is its module, or empty.
GUEST = r"""
cp -r "$tests" /run/livepatch && cd /run/livepatch || exit 2
for file in test-*.sh; do
	[ -z "$1" ] || [ -e "$ours" ] || "$cycle" load "$1" || exit 2
	bash "./$file" >log 2>&1
	echo "== $file"
	cat log
	for patch in /sys/kernel/livepatch/test_klp_*; do
		[ ! -e "$patch" ] || "$cycle" unload "${patch##*/}"
	done
	[ -z "$1" ] || [ -e "$ours" ] || { echo "# $file replaced the live patch" && rmmod "${ours##*/}"; }
	lsmod | awk '/^test_klp_/ { print $1 }' | xargs -r rmmod
done
"""


def build(kernel: str, source: pathlib.Path, out: pathlib.Path) -> pathlib.Path:
    """Copies the tests, and builds their modules against the kernel's headers; returns the folder."""
    folder = out / "tests"
    other, log = debian.other(kernel), out / "build.log"
    within = [str(SCRIPTS / "debian"), other] if other else []
    commands: typing.List[typing.List[str]]
    commands = [[*within, "make", "-C", f"/lib/modules/{kernel}/build", f"M={folder}/test_modules", "modules"],
                ["gcc", "-O2", "-static", "-o", f"{folder}/test_klp-call_getpid", f"{folder}/test_klp-call_getpid.c"]]
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(source / "tools/testing/selftests/livepatch", folder)
    with open(log, "wb") as output:
        for command in commands:
            if subprocess.call(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output):
                die(f"the kernel's selftests of live patches do not build; the log is {log}")
    return folder


def results_in(output: str) -> typing.Dict[str, str]:
    """Name -> result, from lines such as "TEST: basic function patching ... ok"."""
    found = re.findall(r"^TEST: (.+?) \.\.\. (ok|SKIP)?", output, re.M)
    return {re.sub(r"\W+", "-", name).strip("-"): {"ok": "PASS", "SKIP": "NONE"}.get(result, "FAIL")
            for name, result in found}


def peers(work: livepatch.Work) -> int:
    work.need()
    kernel = work.base.title
    own = tree.fetch(work.base).stock
    source = own if (own / "tools/testing/selftests/livepatch/test_modules").is_dir() else \
        pathlib.Path(tree.say(SCRIPTS / "fetch", FALLBACK))
    out = work.folder / f"peers-{kernel}"
    out.mkdir(exist_ok=True)
    # has_kdir() of the tests looks for the headers.
    named = {"tests": build(kernel, source, out), "cycle": livepatch.PROGRAMS / "cycle", "KDIR": out,
             "ours": f"/sys/kernel/livepatch/{livepatch.NAME}"}
    script = out / "run.sh"
    script.write_text("".join(f"{name}={shlex.quote(str(value))}\n" for name, value in named.items()) +
                      f"export KDIR\n{GUEST}")
    results = []
    for name, module in ("stock", ""), ("patched", work.module):
        ran = work.boot(kernel, ["sh", script, module], out / name, f"{kernel}, {name}: boot", *tree.PREEMPT,
                        "--append", "log_buf_len=8M", "--timeout", os.environ.get("TIMEOUT") or "1800",
                        pattern="^TEST: ")
        if ran.code:
            die(f"{kernel}, {name}: {ran.why()}; the log is {ran.log}")
        results.append(results_in(ran.output))
    stock, patched = ({name: result for name, result in found.items() if name not in ALONE} for found in results)
    if "PASS" not in stock.values():
        die(f"none of the kernel's selftests of live patches passes without ours; see {out}/stock.log")
    for name, reason in ALONE.items():
        print(f"# {name} is left out: it {reason}")
    return compare.judge(kernel, stock, patched, [], [], out, "make peers, live patch")
