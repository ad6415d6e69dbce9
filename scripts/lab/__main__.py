# SPDX-License-Identifier: GPL-2.0
"""What shell asks of the readers, see lib.sh:  python3 scripts/lab VERB QUESTION [ARGUMENT...]"""
import json
import pathlib
import sys

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)
from lab import BUILD, base, run, tree


def series(folder):
    return base.Series(pathlib.Path(folder))


def result(name, key):
    """A word of what make verify found: "verdict", "of", "stock.logs"."""
    found = json.loads((BUILD / f"results-{name}.json").read_text())
    for part in key.split("."):
        found = found[part]
    return [found]


QUESTIONS = {
    "bases": base.names,
    "series": lambda name: [base.find(name).folder],
    "patches": lambda folder: series(folder).patches(),
    # Of all bases, or of one series.
    "kernels": lambda *folders: [" ".join(kernel) for one in list(map(series, folders)) or map(base.find, base.names())
                                 for kernel in one.kernels()],
    "files": lambda folder: series(folder).files(),
    "digest": lambda folder: [series(folder).digest()],
    "version": lambda folder: [base.kernel_version(pathlib.Path(folder)) or sys.exit(1)],
    "subject": lambda name: [base.find(name).subject()],
    "result": result,
    "lock": lambda lock, owner: tree.lock(int(lock), owner) or [],
}


def answer():
    sys.argv[0], question, *arguments = sys.argv[1:]
    for line in QUESTIONS[question](*arguments):
        print(line)


run(answer)
