# SPDX-License-Identifier: GPL-2.0
"""Series of boots that differ in one respect. Each boot is a test: build a variant of the tree, boot it, judge the
result, and print a line of TAP. While one variant boots, the next one is built."""
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
    # builds the kernel; returns its image, the name of one of Debian's, or None if it need not be booted
    image: typing.Callable[[], typing.Union[pathlib.Path, str, None]]
    out: pathlib.Path                # the folder for the results of the boot
    command: typing.Iterable[object]
    # takes a Ran or None, returns whether the test passed, and its text
    judge: typing.Callable[[typing.Any], typing.Union[typing.Tuple[bool, str], typing.Tuple[bool, str, str]]]
    options: typing.List[str] = dataclasses.field(default_factory=lambda: [*tree.PREEMPT, "--timeout", "600"])
    pattern: str = ktap.TESTS        # the lines that the progress line counts
    unit: str = "tests"
    replaced: bool = True            # the next variant's build overwrites the image

    def make(self, folder: pathlib.Path) -> typing.Union[pathlib.Path, str, None]:
        """Builds and returns the image. If the next build would replace it, returns a copy in @folder, with the
        PMU module."""
        self.out.mkdir(parents=True, exist_ok=True)
        image = self.image()
        if not image or isinstance(image, str) or not self.replaced:
            return image
        copy, module = folder / tree.IMAGE, "perf_bpf_pmu/perf_bpf_pmu.ko"
        shutil.rmtree(folder, ignore_errors=True)
        copy.parent.mkdir(parents=True)
        shutil.copy2(image, copy)
        if (image.parents[tree.IMAGE.count("/")] / module).is_file():
            (folder / module).parent.mkdir()
            shutil.copy2(image.parents[tree.IMAGE.count("/")] / module, folder / module)
        return copy


def run(what: str, work: tree.Work, variants: typing.Sequence[Variant], command: typing.Optional[str] = None,
        counts: typing.Optional[str] = None) -> int:
    """Returns the exit code. If all tests pass, records the number of variants for make results, under @command."""
    work.base.subject()  # hash the series now: it may be edited while the boots run
    tap = ktap.Printer(what, len(variants))
    # One variant boots while the next is built, so two folders suffice.
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
        results.note(command, counts, work.base.title, len(variants))
    return code
