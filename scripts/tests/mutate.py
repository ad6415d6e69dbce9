#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Tests the mutants that lab/mutate.py generates from small C functions. Prints TAP."""
import pathlib
import resource
import subprocess
import sys
import tempfile
import typing

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from lab import ktap, mutate  # noqa: E402

# The body of a function whose lines are all added, and "operator: change" of each mutant.
BODIES: typing.Tuple[typing.Tuple[str, typing.List[str]], ...] = (
    ("mutex_lock(&m);", ["call: removed"]),
    ("bpf_prog_put(prog);", ["put: removed"]),
    ("smp_wmb();", ["barrier: removed"]),
    ("x = 1;", ["assignment: removed", "constant: 1 -> (1 + 1)"]),
    ("event->count++;", ["assignment: removed"]),
    ("WRITE_ONCE(event->prog, NULL);", ["assignment: removed"]),
    ("if (a)\n\tb();\nc();", ["negate: negated", "true: true", "false: false", "call: removed"]),
    # Removing the only statement of an if is the same as a false condition, unless there is an else.
    ("if (a) {\n\tb();\n\tc();\n}", ["call: removed"] * 2 + ["negate: negated", "true: true", "false: false"]),
    ("if (a)\n\tb();\nelse\n\tc();", ["call: removed"] * 2 + ["negate: negated", "true: true", "false: false"]),
    ("if (a < b)\n\treturn;\nc();", ["negate: negated", "true: true", "false: false", "relation: < -> <=",
                                     "call: removed"]),
    # If the condition is only this comparison, the mutant of == is the negation.
    ("if (a == b)\n\treturn;\nc();", ["negate: negated", "true: true", "false: false", "call: removed"]),
    ("if (a && b == c)\n\treturn;\nc();", ["negate: negated", "true: true", "false: false", "relation: == -> !=",
                                           "operand: without a &&", "operand: without && b == c", "call: removed"]),
    ("if (unlikely(a || b))\n\treturn;\nc();", ["negate: negated", "true: true", "false: false",
                                                "operand: without a ||", "operand: without || b", "call: removed"]),
    # An endless loop would be noticed, but only by a timeout.
    ("while (a)\n\tb();", ["false: false", "call: removed"]),
    ("do {\n\tb();\n} while (a);", ["false: false", "call: removed"]),
    ("for (i = 0; i < n; i++)\n\tb(i);", ["false: false", "relation: < -> <=", "call: removed"]),
    ("list_for_each_entry(e, &list, node) {\n\tif (e)\n\t\tcontinue;\n\tb(e);\n}",
     ["negate: negated", "true: true", "false: false", "call: removed"]),
    ("switch (a) {\ncase 1:\n\tb();\n\tbreak;\ndefault:\n\tc();\n}", ["call: removed"] * 2 + ["jump: removed"]),
    ("goto out;\nout:\n\tb();", ["jump: removed", "call: removed"]),
    ("return a + b;", ["zero: a + b -> 0"]),
    ("return -EINVAL;", ["zero: -EINVAL -> 0", "constant: EINVAL -> (EINVAL + 1)"]),
    ("return 0;", ["constant: 0 -> 1"]),
    ("return a ? b() : c;", ["zero: a ? b() : c -> 0", "true: a -> 1", "false: a -> 0"]),
    ("int x = f(y), *p = NULL;", ["zero: f(y) -> 0"]),
    ("static int x = 5;", []),
    ("struct a *b = c, d[3];", []),
    ("struct pair p = {\n\t.one = f(x),\n\t.two = { .a = 1 },\n};", ["constant: 1 -> (1 + 1)", "zero: f(x) -> 0"]),
    ("x |= FLAG | OTHER;", ["assignment: removed", "constant: FLAG -> 0", "constant: OTHER -> 0"]),
    ("x = smp_load_acquire(&p);", ["assignment: removed", "barrier: smp_load_acquire( -> READ_ONCE(*"]),
    ("x = atomic_long_read_acquire(&n) + atomic_xchg_release(&m, y);", [
        "assignment: removed", "barrier: atomic_long_read_acquire -> atomic_long_read",
        "barrier: atomic_xchg_release -> atomic_xchg_relaxed"]),
    ("smp_store_release(&e->p, q);", ["barrier: removed", "barrier: smp_store_release(&e->p -> WRITE_ONCE(*(&e->p)"]),
    ("struct a *p = READ_ONCE(e->p);\n\nif (p && p->x)\n\tb(p);",
     ["reread: READ_ONCE(e->p) at each use", "zero: READ_ONCE(e->p) -> 0", "negate: negated", "true: true",
      "false: false", "operand: without p &&", "operand: without && p->x"]),
    ("p = READ_ONCE(e->p);\nb(p);", ["assignment: removed", "call: removed"]),
    ("WARN_ON_ONCE(a < b);\nlockdep_assert_held(&lock);", []),
    ("guard(mutex)(&lock);", []),
    ("scoped_guard(mutex, &lock)\n\tb();", ["call: removed"]),
    ("if (a &&\n#ifdef X\n    b &&\n#endif\n    c)\n\td();", ["call: removed"]),
    ('say("a && b; if (x)"); /* c(); */', ["call: removed"]),
)
# A program whose mutants are compiled all at once and one by one: both must print the same.
PROGRAM = """#include <stdbool.h>
#include <stdio.h>

static int calls;

static int call(int x)
{
	calls += x;
	return x;
}

static int first(int a, int b)
{
	const int most = 3, least = call(a);
	int i, sum = 0;

	for (i = 0; i < most; i++) {
		if (a < b && (a > 0 || b == 2))
			sum += call(i);
		else if (a == b)
			continue;
		else
			sum--;
		call(1);
	}
	do
		sum += least ? 1 : 2;
	while (sum < 0);
	switch (a) {
	case 1:
		sum *= 2;
		break;
	default:
		sum++;
	}
	if (!sum)
		goto out;
	calls = calls + 10;
out:
	return sum >= 2 ? sum : -1;
}

int main(void)
{
	for (int i = 0; i < 4; i++)
		for (int j = 0; j < 4; j++)
			printf("%d %d\\n", first(i, j), calls);
	return 0;
}
"""
ONE = """--- a/f.c
+++ b/f.c
@@ -3,3 +3,4 @@ three
 three
-four
+FOUR
+fourth
 five
--- /dev/null
+++ b/new.c
@@ -0,0 +1 @@
+first
"""
TWO = """--- a/f.c
+++ b/f.c
@@ -2,4 +2,3 @@ one
 two
 three
-FOUR
 fourth
"""


def of(path: str, text: str) -> mutate.File:
    return mutate.File(path, text, ["0101-p.patch"] * (text.count("\n") + 1))


def body(text: str, wanted: typing.List[str]) -> typing.Optional[str]:
    file = of("f.c", "static int f(void)\n{\n" + "".join(f"\t{line}\n" for line in text.split("\n")) + "}\n")
    got = [f"{mutant.operator}: {mutant.change}" for mutant in file.mutants]
    if file.not_parsed or sorted(got) != sorted(wanted):
        return f"{file.not_parsed or sorted(got)}, not {sorted(wanted)}"
    wrong = [mutant.key() for mutant in file.mutants if not mutant.key().startswith("0101 f: ")]
    return str(wrong) if wrong else None


def printed(folder: pathlib.Path, text: str, number: int) -> str:
    (folder / "f.c").write_text(text)
    subprocess.run(["gcc", "-w", "-DPERF_MUTANT(n)=(perf_mutant == (n))", "-include", folder / "m.h",
                    "-o", folder / "f", folder / "f.c"], check=True)
    return run(folder, number)


def run(folder: pathlib.Path, number: int) -> str:
    """A mutant may well loop forever."""
    done = subprocess.run([folder / "f", str(number)], capture_output=True, text=True,
                          preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_CPU, (1, 1)))
    return f"{done.stdout}{done.returncode}"


def program() -> typing.Optional[str]:
    file = of("f.c", PROGRAM)
    mutants = [mutant for mutant in file.mutants if mutant.function == "first"]
    for number, mutant in enumerate(mutants, 1):
        mutant.number = number
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "m.h").write_text("static int perf_mutant __attribute__((unused));\n")
        plain = {mutant.number: printed(folder, file.schemata([mutant])[0].replace(
            f"PERF_MUTANT({mutant.number})", "1"), 0) for mutant in mutants}
        original = printed(folder, PROGRAM, 0)
        text, lines = file.schemata(mutants)
        text = text.replace("int main(void)\n{", "#include <stdlib.h>\nint main(int argc, char **argv)\n{\n"
                            "\tperf_mutant = atoi(argv[1]);")
        if printed(folder, text, 0) != original:
            return "without a mutant the program is another one"
        for number, mutant in enumerate(mutants, 1):
            if run(folder, number) != plain[number]:
                return f"{mutant.key()}: behaves differently if built together with the others"
            if number not in lines.values() or f"PERF_MUTANT({number})" not in text:
                return f"{mutant.key()}: on no line"
        same = sum(one == original for one in plain.values())
        return None if len(mutants) > 30 and same < len(mutants) / 3 else f"{same} of {len(mutants)} change nothing"


def patches() -> typing.Optional[str]:
    stock = "zero\none\ntwo\nthree\nfour\nfive\n"
    got = mutate.added([("1.patch", ONE), ("2.patch", TWO)], lambda path: stock if path == "f.c" else "")
    wanted = {"f.c": ("zero\none\ntwo\nthree\nfourth\nfive\n", [None] * 4 + ["1.patch"] + [None] * 2),
              "new.c": ("first\n", ["1.patch", None])}
    if got != wanted:
        return f"{got}"
    try:
        mutate.added([("2.patch", TWO)], lambda path: stock)
        return "a patch that does not apply was applied"
    except ValueError:
        return None


def macro_names() -> typing.Optional[str]:
    text = "BPF_CALL_2(bpf_f, int, a,\n\t   int, b)\n{\n\tb();\n}\n\n" \
        "static void __printf(1, 2) g(int a) __must_hold(x)\n{\n\tb();\n\tb();\n}\n\n" \
        "int table[] = { 1, 2 };\nstruct s {\n\tint a;\n};\n"
    got = [mutant.key() for mutant in of("f.c", text).mutants]
    wanted = ["0101 bpf_f: call: removed: b();", "0101 g: call: removed: b();", "0101 g: call: removed (2): b();"]
    return None if got == wanted else f"{got}, not {wanted}"


def main() -> int:
    tap = ktap.Printer("mutate: ")
    for text, wanted in BODIES:
        wrong = body(text, wanted)
        tap.test(not wrong, " ".join(text.split()) + (f": {wrong}" if wrong else ""))
    for what, check in (("all mutants in one program are what they are one by one", program),
                        ("lines and the patches that add them", patches), ("names of functions", macro_names)):
        wrong = check()
        tap.test(not wrong, what + (f": {wrong}" if wrong else ""))
    return tap.end()


if __name__ == "__main__":
    sys.exit(main())
