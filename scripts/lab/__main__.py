# SPDX-License-Identifier: GPL-2.0
"""The readers' interface to shell scripts, see lib.sh:  python3 scripts/lab VERB QUESTION [ARGUMENT...]"""
import pathlib
import sys
import typing

sys.path[0] = str(pathlib.Path(__file__).resolve().parent.parent)
from lab import base, debian, run


def lock(descriptor: str, owner: str) -> typing.List[str]:
    from lab import tree
    tree.lock(int(descriptor), owner)
    return []


def private_apt(release: str, wanted: str) -> typing.List[pathlib.Path]:
    from lab import apt
    return [apt.private(release, wanted)]


def apt_download(folder: str, *arguments: str) -> typing.NoReturn:
    """FOLDER [-c APT_CONF] PACKAGE..."""
    from lab import apt
    options = [*arguments[:2]] if arguments[0] == "-c" else []
    sys.exit(not apt.download(pathlib.Path(folder), options, *arguments[len(options):]))


def note(*run: str) -> typing.List[str]:
    """COMMAND COUNTS BASE FIGURE: records a run for make results."""
    from lab import results
    command, counts, name, figure = run
    results.note(command, counts, name, float(figure) if "." in figure else int(figure))
    return []


QUESTIONS: typing.Dict[str, typing.Callable[..., typing.Iterable[object]]] = {
    "bases": base.names,
    "at-hand": base.at_hand,
    "subject": lambda name: [base.find(name).subject()],
    "note": note,
    "other-debian": lambda kernel: [debian.other(kernel)],
    "release": lambda version: [debian.release(version)],
    "apt-lines": debian.apt_lines,
    "lock": lock,
    "private-apt": private_apt,
    "apt-download": apt_download,
}


def answer() -> None:
    sys.argv[0], question, *arguments = sys.argv[1:]
    for line in QUESTIONS[question](*arguments):
        print(line)


run(answer)
