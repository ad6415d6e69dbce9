# SPDX-License-Identifier: GPL-2.0
"""Reads the log of a LAVA job that runs scripts/lava/init."""
import datetime
import hashlib
import re
import typing

import yaml

from lab import ktap, splat

OURS = re.compile(r"(?:\[[ \d.]+\](?:\[ *[TC]\d+\])? )?lab: (up|out|exit)(?: (.*))?")


class Log(typing.NamedTuple):
    console: typing.List[str]  # the lines of the guest's console
    cases: typing.List[typing.Tuple[str, str]]  # the suite's results as LAVA lists them: (name, result)
    error: typing.Optional[str]  # why LAVA ended the job, or None
    seconds: float


def read_log(text: str) -> Log:
    """Parses the log of lava-run, or the one that LAVA's web interface serves: one YAML mapping on each line."""
    console, cases, error, times = [], [], None, []
    for line in text.splitlines():
        line = line.removeprefix("- ")
        if not line.startswith("{"):
            continue
        try:
            entry = yaml.load(line, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            # A dispatcher that was killed leaves an incomplete last line.
            continue
        if "lvl" not in entry:
            continue
        if entry["lvl"] == "target":
            # lava_dispatcher/shell.py escapes quotes, and the logger escapes them again.
            console.append(str(entry["msg"]).replace('\\"', '"'))
            times.append(datetime.datetime.fromisoformat(str(entry["dt"])))
        elif entry["lvl"] == "results" and entry["msg"].get("definition") == "perf_bpf_filter":
            cases.append((entry["msg"]["extra"]["test_case_id"].partition(".")[2], entry["msg"]["result"]))
        elif entry["lvl"] == "results" and entry["msg"].get("case") == "job":
            error = entry["msg"].get("error_msg")
    return Log(console, cases, error, round((times[-1] - times[0]).total_seconds(), 1) if times else 0)


def exit_line(code: typing.Optional[int], key: str) -> str:
    return f"{code} {hashlib.sha256(f'{code} {key}'.encode()).hexdigest()}"


def judge(log: Log, key: str) -> typing.Tuple[str, typing.Optional[int], typing.List[str],
                                              typing.List[typing.Dict[str, typing.Any]]]:
    """(outcome, exit code, lines that the suite printed, splats), as scripts/boot would report them. All of this comes
    from one console, to which a test can also write. But no test can forge the end of the run, which requires the key,
    and the results must be those that LAVA lists."""
    ours = [match.groups() for match in map(OURS.fullmatch, log.console) if match]
    output = [text or "" for kind, text in ours if kind == "out"]
    ends = [text or "" for kind, text in ours if kind == "exit"]
    code = int(ends[0].split()[0]) if ends and re.match(r"\d{1,3} ", ends[0]) else None
    found = splat.splats("\n".join(log.console))
    if ("up", None) not in ours:
        outcome = "no-boot"
    elif found:
        outcome = "splat"
    elif not ends:
        outcome = "hang" if "timed out" in (log.error or "") else "lost"
    elif ends != [exit_line(code, key)] or log.cases != ktap.results(output):
        outcome = "forged"
    else:
        outcome = "failed" if code else "passed"
    return outcome, code, output, found
