# SPDX-License-Identifier: GPL-2.0
"""Generates first-order mutants of C code. All mutants of a file are compiled at once: each has a number, and
PERF_MUTANT(number) is true in a kernel that is booted with perf_mutant=number. A condition becomes

    if ((PERF_MUTANT(7) ? !!(!(cond)) : !!(cond)))

and a statement { if (PERF_MUTANT(8)) { } else { statement } }.

The parser understands function bodies in the kernel's C before preprocessing: it does not expand macros, and sees the
code of all configurations and architectures. If it mistakes something for a statement, the mutant does not compile, and
is dropped.
"""
import bisect
import collections
import dataclasses
import re
import typing

TOKEN = re.compile(r"""
    (?P<macro>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
  | (?P<space>\n|[ \t\r\f]+|\\\n|/\*.*?\*/|//[^\n]*)
  | (?P<string>"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*')
  | (?P<number>\d[\w.]*)
  | (?P<name>[A-Za-z_]\w*)
  | (?P<sign><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|<=|>=|==|!=|&&|\|\||[-+*/%&|^]=|.)
""", re.X | re.S | re.M)
TYPES = set("""const static struct union enum unsigned signed int long short char void bool volatile register extern
    typeof __typeof__ auto __auto_type u8 u16 u32 u64 s8 s16 s32 s64 guard CLASS""".split())
ASSIGN = {"=", "+=", "-=", "|=", "&=", "^=", "*=", "/=", "%=", "<<=", ">>="}
RELATIONS = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
# Annotations that may have parentheses, before the name of a function or after its parameters.
NOTES = re.compile("__(must_hold|releases|acquires|printf|attribute__|cond_lock|free|aligned|section)|notrace")
# Calls that only check or only inform lockdep: without them the kernel behaves the same.
ASSERTIONS = re.compile(r"(VM_|BUILD_)?(WARN|BUG)_ON\w*|WARN\w*|lockdep_\w+|rcu_lock_(acquire|release)|might_\w+|"
                        r"cant_\w+|pr_\w+|printk\w*|k[ac]san_\w+|instrumentation_\w+|ASSERT_\w+|static_assert")
BARRIERS = re.compile(r"(smp_|dma_)?(mb|rmb|wmb|barrier)(__\w+)?|smp_store_\w+|smp_load_acquire|barrier_data")
PUTS = re.compile(r"(\w*_)?(put|free|release|unlock|drop|dec|destroy|unref)(_\w*)?")
READS = re.compile(r"READ_ONCE|smp_load_acquire|rcu_dereference\w*|data_race")
CONSTANT = re.compile(r"(?!NULL$|CONFIG_)[A-Z][A-Z0-9_]{2,}")

Range = typing.Tuple[int, int]

OPERATORS = {
    "call": "a call whose result is unused is removed",
    "put": "a put, free or unlock is removed",
    "barrier": "a barrier is removed, or an acquire or release weakened",
    "assignment": "an assignment is removed",
    "jump": "a return, goto, break or continue is removed",
    "negate": "a condition is negated",
    "true": "a condition is always true",
    "false": "a condition is always false",
    "operand": "an operand of && or || is dropped",
    "relation": "< becomes <=, == becomes !=",
    "constant": "a constant is changed",
    "zero": "an initialiser or a returned value becomes 0",
    "reread": "a value that was read once is read again at each use",
}


class Token(typing.NamedTuple):
    kind: str
    text: str
    start: int
    end: int


@dataclasses.dataclass
class Site:
    """A piece of code that mutants replace: tokens first to last - 1."""
    kind: str       # condition, loop, value (an initialiser) or statement
    function: str
    first: int
    last: int
    head: int       # the first token of its statement
    guard: typing.Optional["Site"] = None   # the condition, if this statement is all that it guards
    ends: bool = False                      # the last statement of its function


@dataclasses.dataclass
class Mutant:
    file: str
    line: int       # from 0, in the unmutated file
    patch: str
    function: str
    operator: str
    change: str     # the change, on one line
    text: str       # the source line
    edits: typing.Dict[int, str]            # number of a site in the file -> its new text
    number: int = 0
    again: int = 0  # the number of earlier mutants with the same description

    def key(self) -> str:
        """Its name, which is valid as long as the patch has that line."""
        same = f" ({self.again + 1})" if self.again else ""
        return f"{self.patch.split('-')[0]} {self.function}: {self.operator}: {self.change}{same}: {self.text}"


class NotParsed(Exception):
    pass


class Source:
    """A C file: its tokens, and the sites in its functions."""

    def __init__(self, text: str) -> None:
        self.text = text
        every = [Token(str(found.lastgroup), found[0], found.start(), found.end()) for found in TOKEN.finditer(text)]
        self.tokens = [token for token in every if token.kind not in ("space", "macro")]
        self.newlines = [found.start() for found in re.finditer("\n", text)]
        self.macros = {line for token in every if token.kind == "macro"
                       for line in range(self.line_at(token.start), self.line_at(token.end) + 1)}
        self.pair = self.match()
        self.sites: typing.List[Site] = []
        self.bodies: typing.List[typing.Tuple[str, int, int]] = []
        self.not_parsed: typing.List[typing.Tuple[str, int, int]] = []
        self.function = ""
        self.find_functions()

    def line_at(self, position: int) -> int:
        return bisect.bisect_left(self.newlines, position)

    def line(self, token: int) -> int:
        return self.line_at(self.tokens[token].start)

    def match(self) -> typing.Dict[int, int]:
        """Opening bracket -> closing bracket. Some have no partner, because of code on both sides of an #else."""
        pairs, stack, closes = {}, [], {")": "(", "]": "[", "}": "{"}
        for i, token in enumerate(self.tokens):
            if token.text in ("(", "[", "{"):
                stack.append(i)
            elif token.text in closes:
                while stack and self.tokens[stack[-1]].text != closes[token.text]:
                    stack.pop()
                if stack:
                    pairs[stack.pop()] = i
        return pairs

    def is_(self, i: int, *texts: str) -> bool:
        return i < len(self.tokens) and self.tokens[i].text in texts

    def partner(self, i: int) -> int:
        if i not in self.pair:
            raise NotParsed(f"line {self.line(min(i, len(self.tokens) - 1)) + 1}")
        return self.pair[i]

    def at_depth_0(self, first: int, last: int) -> typing.Iterator[int]:
        """The tokens of a range that are not within brackets; of a bracketed part only the opening bracket."""
        i = first
        while i < last:
            yield i
            i = (self.partner(i) if self.is_(i, "(", "[", "{") else i) + 1

    def find(self, text: str, first: int) -> int:
        for i in self.at_depth_0(first, len(self.tokens)):
            if self.is_(i, text):
                return i
            if self.is_(i, "}", ")"):
                break
        raise NotParsed(f"line {self.line(first) + 1}")

    def source(self, first: int, last: int) -> str:
        return self.text[self.tokens[first].start:self.tokens[last - 1].end]

    def find_functions(self) -> None:
        head = i = 0
        while i < len(self.tokens):
            if self.is_(i, "{"):
                end = self.pair.get(i, len(self.tokens) - 1)
                if name := self.name(head, i):
                    self.function, count = name, len(self.sites)
                    try:
                        self.block(i, True)
                        self.bodies.append((name, i, end))
                    except NotParsed as error:
                        self.not_parsed.append((f"{name}: {error}", self.line(i), self.line(end)))
                        del self.sites[count:]
                i = end
                if name:
                    head = i + 1
            elif self.is_(i, ";", "}"):
                head = i + 1
            elif self.is_(i, "(", "["):
                i = self.pair.get(i, i)
            i += 1

    def name(self, head: int, brace: int) -> str:
        """The name of the function whose body begins at @brace; "" for a struct, an array and the like."""
        texts = [self.tokens[i].text for i in range(head, brace)]
        if "=" in texts or "(" not in texts or (texts[-1] != ")" and not NOTES.match(texts[-1])):
            return ""
        for i in range(head, brace - 1):
            name = self.tokens[i]
            if name.kind == "name" and self.is_(i + 1, "(") and not NOTES.match(name.text):
                # BPF_CALL_3(name, ...), SYSCALL_DEFINE5(name, ...)
                return self.tokens[i + 2].text if re.fullmatch("[A-Z_0-9]+", name.text) else name.text
        return ""

    def site(self, kind: str, first: int, last: int, head: int) -> Site:
        site = Site(kind, self.function, first, last, head)
        lines = range(self.line(first), self.line(last - 1) + 1)
        # Skip code with preprocessor directives in it: an #if may remove a part of it.
        if not any(line in self.macros for line in lines):
            self.sites.append(site)
        return site

    def block(self, i: int, whole: bool = False) -> int:
        end, count = self.partner(i), len(self.sites)
        i += 1
        while i < end:
            count = len(self.sites)
            i = self.statement(i)
        if whole and len(self.sites) == count + 1 and self.sites[-1].kind == "statement":
            self.sites[-1].ends = True
        return end + 1

    def body_of_if(self, i: int, condition: Site) -> int:
        count = len(self.sites)
        end = self.statement(i)
        new = self.sites[count:]
        has_mutants = count > 0 and self.sites[count - 1] is condition
        if has_mutants and len(new) == 1 and new[0].kind == "statement" and not self.is_(end, "else"):
            new[0].guard = condition
        return end

    def statement(self, i: int) -> int:
        """Finds the sites in the statement that begins at token @i; returns the first token of the next statement."""
        token = self.tokens[i]
        if token.text == "{":
            return self.block(i)
        if token.text == "if":
            close = self.partner(i + 1)
            end = self.body_of_if(close + 1, self.site("condition", i + 2, close, i))
            return self.statement(end + 1) if self.is_(end, "else") else end
        if token.text == "while":
            self.site("loop", i + 2, self.partner(i + 1), i)
            return self.statement(self.partner(i + 1) + 1)
        if token.text == "do":
            end = self.statement(i + 1)
            self.site("loop", end + 2, self.partner(end + 1), end)
            return self.partner(end + 1) + 2
        if token.text == "for":
            one = self.find(";", i + 2)
            two = self.find(";", one + 1)
            if two > one + 1:
                self.site("loop", one + 1, two, i)
            return self.statement(self.partner(i + 1) + 1)
        if token.text == "switch":
            return self.statement(self.partner(i + 1) + 1)
        if token.text == "case":
            return self.find(":", i) + 1
        if token.kind == "name" and self.is_(i + 1, ":"):   # a label, or default
            return i + 2
        end = self.find(";", i) + 1 if not self.is_loop_macro(i) else self.partner(i + 1) + 1
        if self.is_loop_macro(i):
            return self.statement(end)
        if token.text in (";", "asm") or ASSERTIONS.fullmatch(token.text):
            return end
        if self.is_declaration(i):
            if not any(self.is_(j, "static") for j in range(i, min(i + 3, end))):
                self.initialisers(i, end)
            return end
        self.site("statement", i, end, i)
        return end

    def is_loop_macro(self, i: int) -> bool:
        """list_for_each_entry(...) { or statement"""
        if self.tokens[i].kind != "name" or not self.is_(i + 1, "(") or self.tokens[i].text in TYPES | {"return"}:
            return False
        after = self.partner(i + 1) + 1
        return self.is_(after, "{") or (after < len(self.tokens) and self.tokens[after].kind == "name")

    def is_declaration(self, i: int) -> bool:
        if self.tokens[i].text in TYPES or re.match("DEFINE_|DECLARE_|LIST_HEAD", self.tokens[i].text):
            return True
        if self.tokens[i].kind != "name" or self.tokens[i].text in ("return", "goto", "break", "continue"):
            return False
        star = i + 1
        while self.is_(star, "*"):
            star += 1
        return self.tokens[star].kind == "name" and (star == i + 1 or self.is_(star + 1, "=", ";", ",", "["))

    def initialisers(self, first: int, last: int) -> None:
        """Finds the initialisers of a local declaration, and those of the fields in braces."""
        tops = list(self.at_depth_0(first, last))
        for i in tops:
            if not self.is_(i, "="):
                continue
            if self.is_(i + 1, "{"):
                self.initialisers(i + 2, self.partner(i + 1))
                continue
            end = next((j for j in tops if j > i and self.is_(j, ",", ";")), last)
            if end > i + 1:
                self.site("value", i + 1, end, first)

    # Mutants of a site: operator, the token that it refers to, the range of tokens that it replaces, and their new
    # text.

    def expressions(self, site: Site) -> typing.Iterator[typing.Tuple[str, int, int, int, str]]:
        logic = any(self.is_(i, "&&", "||") for i in range(site.first, site.last))
        for i in range(site.first, site.last):
            token = self.tokens[i]
            if token.text in RELATIONS and token.kind == "sign":
                # If the condition is only this comparison, the mutant is the negation, which exists already.
                if token.text not in ("==", "!=") or logic or site.kind not in ("condition", "loop"):
                    yield "relation", i, i, i + 1, RELATIONS[token.text]
            elif token.kind == "number":
                yield "constant", i, i, i + 1, "1" if token.text == "0" else f"({token.text} + 1)"
            elif token.text in ("true", "false"):
                yield "constant", i, i, i + 1, "false" if token.text == "true" else "true"
            elif token.kind == "name" and CONSTANT.fullmatch(token.text) and not self.is_(i + 1, "(") \
                    and not self.is_(i - 1, "->", ".", "struct", "enum", "union", "goto"):
                bit = self.is_(i - 1, "|", "&", "~", "|=", "&=") or self.is_(i + 1, "|", "&")
                yield "constant", i, i, i + 1, "0" if bit else f"({token.text} + 1)"
            elif token.text in ("smp_store_release", "rcu_assign_pointer") and self.is_(i + 1, "("):
                comma = next((j for j in self.at_depth_0(i + 2, self.partner(i + 1)) if self.is_(j, ",")), 0)
                if comma:
                    star = "*" if token.text == "smp_store_release" else ""
                    yield "barrier", i, i, comma, f"WRITE_ONCE({star}({self.source(i + 2, comma)})"
            elif token.text == "smp_load_acquire" and self.is_(i + 1, "("):
                yield "barrier", i, i, i + 2, "READ_ONCE(*"
            elif re.fullmatch(r"(atomic|cmpxchg|xchg|try_cmpxchg)\w*_(acquire|release)", token.text):
                plain = re.sub("_[a-z]+$", "", token.text)
                yield "barrier", i, i, i + 1, plain if plain.endswith(("_read", "_set")) else f"{plain}_relaxed"
        first = site.first + 1 if self.is_(site.first, "return") else site.first
        yield from self.logic(first, site.last - (site.kind == "statement"))
        for i in range(first, site.last):
            if self.is_(i, "(", "[", "{"):
                yield from self.logic(i + 1, self.partner(i))

    def logic(self, first: int, last: int) -> typing.Iterator[typing.Tuple[str, int, int, int, str]]:
        """Mutants of && and ||, which drop an operand, and of ?:, whose condition becomes constant."""
        marks = [first - 1] + [i for i in self.at_depth_0(first, last)
                               if self.tokens[i].text in ASSIGN | {",", "?", ":", ";"}] + [last]
        for before, after in zip(marks, marks[1:]):
            start = before + 1
            if start >= after:
                continue
            if self.is_(after, "?"):
                yield "true", start, start, after, "1"
                yield "false", start, start, after, "0"
            ors = self.split("||", start, after)
            for part in ors if len(ors) > 1 else []:
                yield "operand", part[0], *self.without(part, ors)
            for one in ors:
                ands = self.split("&&", *one)
                for part in ands if len(ands) > 1 else []:
                    yield "operand", part[0], *self.without(part, ands)

    def split(self, sign: str, first: int, last: int) -> typing.List[Range]:
        marks = [first - 1] + [i for i in self.at_depth_0(first, last) if self.is_(i, sign)] + [last]
        return [(before + 1, after) for before, after in zip(marks, marks[1:]) if after > before + 1]

    def without(self, part: Range, parts: typing.List[Range]) -> typing.Tuple[int, int, str]:
        """The range of an operand and of the sign after or before it."""
        return (part[0], part[1] + 1, "") if part != parts[-1] else (part[0] - 1, part[1], "")

    def removal(self, site: Site) -> typing.Optional[str]:
        """The operator that removes a statement, or None."""
        token = self.tokens[site.first].text
        if token in ("return", "goto", "break", "continue"):
            return None if site.ends else "jump"
        tops = [self.tokens[i].text for i in self.at_depth_0(site.first, site.last)]
        if ASSIGN & set(tops) or {"++", "--"} & set(tops):
            return "assignment"
        name = next((self.tokens[i].text for i in range(site.first, site.last) if self.is_(i + 1, "(")), "")
        if not name:
            return None
        if name == "WRITE_ONCE":
            return "assignment"
        return "barrier" if BARRIERS.fullmatch(name) else "put" if PUTS.fullmatch(name) else "call"


def replaced(source: Source, site: Site, changes: typing.List[typing.Tuple[int, int, str]]) -> str:
    """The site's text with some of its tokens replaced."""
    text, base = source.source(site.first, site.last), source.tokens[site.first].start
    for first, last, new in sorted(changes, reverse=True):
        text = text[:source.tokens[first].start - base] + new + text[source.tokens[last - 1].end - base:]
    return text


def flat(text: str) -> str:
    return " ".join(re.sub(r"/\*.*?\*/|//[^\n]*", " ", text, flags=re.S).split())


class File:
    """A file that a series changes, and the mutants of the lines that the series adds."""

    def __init__(self, path: str, text: str, patches: typing.List[typing.Optional[str]]) -> None:
        """@patches: for each line the patch that added it, or None."""
        self.path, self.source, self.patches = path, Source(text), patches
        self.lines = text.split("\n")
        self.not_parsed = [why for why, first, last in self.source.not_parsed if any(patches[first:last + 1])]
        self.mutants: typing.List[Mutant] = []
        for number, site in enumerate(self.source.sites):
            self.mutate(number, site)
        self.reread()
        seen: typing.Counter[str] = collections.Counter()
        for mutant in self.mutants:
            mutant.again = seen[mutant.key()]
            seen[mutant.key()] += 1

    def patch(self, token: int) -> typing.Optional[str]:
        return self.patches[self.source.line(token)]

    def add(self, number: int, site: Site, operator: str, token: int, change: str, text: str) -> None:
        patch = self.patch(token)
        if patch and flat(text) != flat(self.source.source(site.first, site.last)):
            line = self.source.line(token)
            self.mutants.append(Mutant(self.path, line, patch, site.function, operator, change, flat(self.lines[line]),
                                       {number: text}))

    def mutate(self, number: int, site: Site) -> None:
        source, text = self.source, self.source.source(site.first, site.last)
        operator = source.removal(site) if site.kind == "statement" else None
        # If its condition is mutated to false, the statement is never reached, which is the same as removing it.
        if operator and not (site.guard and self.patch(site.guard.head)):
            self.add(number, site, operator, site.first, "removed", ";")
        if site.kind == "condition":
            self.add(number, site, "negate", site.head, "negated", f"!({text})")
            self.add(number, site, "true", site.head, "true", "1")
        if site.kind in ("condition", "loop"):
            self.add(number, site, "false", site.head, "false", "0")
        value = (site.first, site.last) if site.kind == "value" else \
            (site.first + 1, site.last - 1) if source.is_(site.first, "return") else (0, 0)
        if value[1] > value[0] + 1:
            self.add(number, site, "zero", site.first, f"{flat(source.source(*value))} -> 0",
                     replaced(source, site, [(*value, "0")]))
        for operator, token, first, last, new in source.expressions(site):
            old = flat(source.source(first, last))
            self.add(number, site, operator, token, f"{old} -> {flat(new)}" if new else f"without {old}",
                     replaced(source, site, [(first, last, new)]))

    def reread(self) -> None:
        """If a value is read once into a variable and used more than once: read it again at each use but the first."""
        source = self.source
        for number, site in enumerate(source.sites):
            first, last = (site.first, site.last) if site.kind == "value" else (site.first + 2, site.last - 1)
            name, body = first - 2, next((body for body in source.bodies if body[1] < site.first < body[2]), None)
            if not (body and source.is_(first - 1, "=") and READS.fullmatch(source.tokens[first].text)
                    and source.is_(first + 1, "(") and source.partner(first + 1) == last - 1
                    and source.tokens[name].kind == "name" and (site.kind == "value" or name == site.first)):
                continue
            uses = []
            for i in range(last, body[2]):
                if source.tokens[i].text == source.tokens[name].text and not source.is_(i - 1, "->", "."):
                    if source.is_(i + 1, "="):
                        break
                    uses.append(i)
            edits: typing.Dict[int, typing.List[typing.Tuple[int, int, str]]] = {}
            again = source.source(first, last)
            for i in uses[1:]:
                for other, there in enumerate(source.sites):
                    if there.first <= i < there.last and not source.is_(i - 1, "&"):
                        edits.setdefault(other, []).append((i, i + 1, again))
            patch, line = self.patch(first), source.line(first)
            if edits and patch:
                texts = {other: replaced(source, source.sites[other], changes) for other, changes in edits.items()}
                self.mutants.append(Mutant(self.path, line, patch, site.function, "reread",
                                           f"{flat(again)} at each use", flat(self.lines[line]), texts))

    def code_lines(self) -> typing.Dict[str, typing.Counter[str]]:
        """Patch -> the number of its lines that mutants may change, and of those that they may not, by reason."""
        source = self.source
        def lines(ranges: typing.Iterable[Range]) -> typing.Set[int]:
            return {line for first, last in ranges for line in range(source.line(first), source.line(last) + 1)}

        at_site = lines((site.head, site.last - 1) for site in source.sites)
        inside = lines((first, last) for _, first, last in source.bodies)
        used = {source.line(i) for i, token in enumerate(source.tokens)
                if token.kind != "sign" and token.text != "else"}
        found: typing.Dict[str, typing.Counter[str]] = collections.defaultdict(collections.Counter)
        for line, patch in enumerate(self.patches):
            if patch and (line in used or line in source.macros):
                found[patch]["macro" if line in source.macros else "code" if line in at_site else
                             "in a body" if line in inside else "declaration"] += 1
        return found

    def schemata(self, mutants: typing.Collection[Mutant]) -> typing.Tuple[str, typing.Dict[int, int]]:
        """The text with these mutants, and line (from 1) -> number of the mutant that it belongs to."""
        versions: typing.Dict[int, typing.List[typing.Tuple[int, str]]] = collections.defaultdict(list)
        for mutant in mutants:
            for number, text in mutant.edits.items():
                versions[number].append((mutant.number, text))
        pieces: typing.List[typing.Tuple[str, int]] = []    # text, number of its mutant or 0
        position = 0
        # Sort the sites: they are in the order in which they end.
        for number in sorted(versions, key=lambda number: self.source.sites[number].first):
            site = self.source.sites[number]
            start, end = self.source.tokens[site.first].start, self.source.tokens[site.last - 1].end
            pieces.append((self.source.text[position:start], 0))
            plain, position = self.source.text[start:end], end
            if site.kind == "statement":
                pieces.append(("{\n", 0))
                pieces += [(f"if (PERF_MUTANT({one})) {{ {text} }} else\n", one) for one, text in versions[number]]
                pieces.append((f"{{ {plain} }} }}", 0))
            else:
                # A condition, or what a mutant leaves of it, may be a pointer.
                truth = "" if site.kind == "value" else "!!"
                pieces.append(("(\n", 0))
                pieces += [(f"PERF_MUTANT({one}) ? {truth}({text}) :\n", one) for one, text in versions[number]]
                pieces.append((f"{truth}({plain}))", 0))
        pieces.append((self.source.text[position:], 0))
        lines, line = {}, 1
        for text, one in pieces:
            count = text.count("\n")
            if one:
                lines.update({number: one for number in range(line, line + count)})
            line += count
        return "".join(text for text, _ in pieces), lines


HUNK = re.compile(r"^@@ -(\d+)(?:,\d+)? \+\d+(?:,\d+)? @@.*\n((?:[ +\-\\].*\n|\n)*)", re.M)


def added(patches: typing.List[typing.Tuple[str, str]], read: typing.Callable[[str], str]
          ) -> typing.Dict[str, typing.Tuple[str, typing.List[typing.Optional[str]]]]:
    """
    File -> its text with the series, and for each line the patch that added it. @patches: names and texts; @read:
    returns the text of a file without the series.
    """
    files: typing.Dict[str, typing.List[typing.Tuple[str, typing.Optional[str]]]] = {}
    for patch, text in patches:
        for part in re.split(r"^(?=--- \S+\n\+\+\+ \S+\n@@)", text, flags=re.M)[1:]:
            path = part.split("\n")[1].split()[1].partition("/")[2]
            lines = files.setdefault(path, [(line, None) for line in read(path).split("\n")])
            shift = 0
            for start, body in HUNK.findall(part):
                hunk = [line for line in body.split("\n")[:-1] if not line.startswith("\\")]
                hunk = [line or " " for line in hunk]
                old = [line[1:] for line in hunk if line[0] != "+"]
                guess = max(int(start) - 1, 0) + shift
                # Apply the hunk at its line number, or as near to it as possible.
                places = (guess + sign * distance for distance in range(len(lines) + 1) for sign in (1, -1))
                place = next((i for i in places if i >= 0 and [line for line, _ in lines[i:i + len(old)]] == old), None)
                if place is None:
                    raise ValueError(f"{patch}: a hunk for {path} does not apply")
                new: typing.List[typing.Tuple[str, typing.Optional[str]]] = []
                at = place
                for line in hunk:
                    if line[0] == "+":
                        new.append((line[1:], patch))
                    else:
                        if line[0] == " ":
                            new.append(lines[at])
                        at += 1
                lines[place:at] = new
                shift = place - guess + shift + len(new) - len(old)
    return {path: ("\n".join(line for line, _ in lines), [patch for _, patch in lines])
            for path, lines in files.items()}
