# SPDX-License-Identifier: GPL-2.0
"""Converts the results of make verify to KCIDB 5.3, the format in which labs report."""
import re
import typing

ORIGIN = "perf_bpf_filter"
STATUS = {"pass": "PASS", "fail": "FAIL", "skip": "SKIP"}


def run(name: str, kernel: str, guest: typing.Dict[str, typing.Any], deadly: typing.Collection[str], about: str,
        rules: typing.Mapping[str, str]
        ) -> typing.Tuple[typing.Dict[str, typing.Any], typing.Dict[str, typing.Any],
                          typing.List[typing.Dict[str, typing.Any]]]:
    """KCIDB's (checkout, build, tests) for the results of a guest."""
    version = guest.get("kernel") or name
    one = f"{ORIGIN}:{version}-{kernel}-{about}"
    comment = f"Linux {version}" + (f" with patches/linux-{name}" if kernel != "stock" else "")
    checkout = {"id": one, "origin": ORIGIN, "valid": True, "comment": comment}
    build = {"id": one, "origin": ORIGIN, "checkout_id": one, "architecture": "x86_64", "status": "PASS",
             "config_name": "Kconfig.fragment"}

    def test(path: str, status: str, message: typing.Optional[str] = None, **misc: str) -> typing.Dict[str, typing.Any]:
        found = {"id": f"{one}-{path}", "origin": ORIGIN, "build_id": one, "path": path, "status": status,
                 "environment": {"comment": f"QEMU, {guest.get('accel', 'tcg')}"}, "misc": misc}
        return {**found, "log_excerpt": message} if message else found

    results = guest["tests"].values()
    whole = "ERROR" if guest["error"] else "FAIL" if "fail" in results or deadly else "PASS"
    tests = [test(ORIGIN, whole, guest["error"])]
    tests += [test(f"{ORIGIN}.{name}", STATUS[result], guest["reasons"].get(name), rule=rules.get(name, "?"))
              for name, result in guest["tests"].items()]
    tests += [test(f"{ORIGIN}.{name}", "FAIL", "the kernel does not survive it", rule=rules.get(name, "?"))
              for name in deadly]
    return checkout, build, tests


def document(name: str, found: typing.Dict[str, typing.Any],
             rules: typing.Mapping[str, str]) -> typing.Dict[str, typing.Any]:
    about = re.sub(r"\W", "_", found["of"] or "unknown")
    runs = [run(name, kernel, found[kernel], found["deadly"] if kernel == "stock" else [], about, rules)
            for kernel in ("stock", "patched")]
    return {"version": {"major": 5, "minor": 3}, "checkouts": [checkout for checkout, _, _ in runs],
            "builds": [build for _, build, _ in runs], "tests": [test for _, _, tests in runs for test in tests]}
