# SPDX-License-Identifier: GPL-2.0
"""Many boots that differ in one thing. Each is a test: take a variant of the tree, build it, boot
it, judge what came of it, print a line of TAP. While one boots the next is built."""
import concurrent.futures
import dataclasses
import itertools
import pathlib
import shutil
import typing

from lab import ktap, results, tree


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
    replaced: bool = True            # the image of the next variant is built in the same place

    def make(self, folder):
        """Builds and returns the image. If the next build would replace it, returns a copy in @folder, with the
        PMU module."""
        self.out.mkdir(parents=True, exist_ok=True)
        image = self.image()
        if not image or not self.replaced:
            return image
        copy, module = folder / tree.IMAGE, "perf_bpf_pmu/perf_bpf_pmu.ko"
        shutil.rmtree(folder, ignore_errors=True)
        copy.parent.mkdir(parents=True)
        shutil.copy2(image, copy)
        if (image.parents[tree.IMAGE.count("/")] / module).is_file():
            (folder / module).parent.mkdir()
            shutil.copy2(image.parents[tree.IMAGE.count("/")] / module, folder / module)
        return copy


def run(what, work, variants, command=None, counts=None):
    """Returns the exit code. If all is well, and with a @command, leaves the number of variants for make results."""
    work.base.subject()  # what is measured now, even if the series is edited meanwhile
    tap = ktap.Printer(what, len(variants))
    # One boots while the next is built, so that two folders will do.
    folders = itertools.cycle(work.folder / f"{what.split(':')[0].strip()}-kernel-{i}" for i in range(2))
    with concurrent.futures.ThreadPoolExecutor(1) as builder:
        made = [builder.submit(variants[0].make, next(folders))]
        for number, variant in enumerate(variants):
            image = made.pop().result()
            if number + 1 < len(variants):
                made.append(builder.submit(variants[number + 1].make, next(folders)))
            ran = image and work.boot(image, variant.command, variant.out, f"{variant.name}: boot",
                                      *variant.options, pattern=variant.pattern, unit=variant.unit)
            tap.test(*variant.judge(ran))
    code = tap.end()
    if command and not code:
        results.note(command, counts, work.base.name, len(variants))
    return code
