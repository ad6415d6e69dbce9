# SPDX-License-Identifier: GPL-2.0
"""Many boots that differ in one thing. Each is a test: take a variant of the tree, build it, boot
it, judge what came of it, print a line of TAP."""
import dataclasses
import pathlib
import typing

from lab import ktap, tree


@dataclasses.dataclass
class Variant:
    name: str
    image: typing.Callable           # makes the kernel, returns its image, or None if it need not boot
    out: pathlib.Path                # where the boot leaves what it has to say
    command: list
    judge: typing.Callable           # takes a Ran or None, returns whether it is right, and in words
    options: list = dataclasses.field(default_factory=lambda: [*tree.PREEMPT, "--timeout", "600"])
    pattern: str = ktap.TESTS        # what a waiting terminal counts
    unit: str = "tests"


def run(what, work, variants):
    """Returns the exit code."""
    tap = ktap.Printer(what, len(variants))
    for variant in variants:
        variant.out.mkdir(parents=True, exist_ok=True)
        image = variant.image()
        ran = image and work.boot(image, variant.command, variant.out, f"{variant.name}: boot",
                                  *variant.options, pattern=variant.pattern, unit=variant.unit)
        tap.test(*variant.judge(ran))
    return tap.end()
