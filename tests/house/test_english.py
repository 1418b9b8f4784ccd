"""Plain grammar: no "so many" for "this many", no "is none", no clause as a subject, no "hears" for a callback.

Prose is what people read: comments, docstrings and other strings of the code, texts of pages, and the documents.
"""

from __future__ import annotations

import ast
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

SO_MANY = re.compile(r"\bso (?:many|few|much)\b(?! (?:as|that)\b)(?![^.;:,]*?\b(?:as|that)\b)", re.IGNORECASE)
IS_NONE = re.compile(r"\b(?:[Ii]s|are|was|were|be) none\b")
HEARS = re.compile(r"\bhears?\b", re.IGNORECASE)

OPENER = re.compile(
    r"(?:(?:and|but|so|then|only|also|for|here|because) )?"
    r"(?:who|what|whether|which|how|((?:who|what|which)ever|when|where|why))\b",
    re.IGNORECASE,
)


def words_of(text: str) -> frozenset[str]:
    """A set of words, written as a text."""
    return frozenset(text.split())


# The main verb behind a clause is singular. "Costs" and its like are also nouns, so they may not follow an article.
AUXILIARIES = words_of("came is was has had does did may might can cannot could must will would should")
VERBS = words_of(
    """adds asks becomes begins belongs buys calls changes comes costs counts decides declares depends earns ends enters
    errs fails falls finds fits follows gets gives goes grows guesses helps holds keeps knows learns leaves lies loses
    makes matters means moves needs orders owns pays reads remains rests returns rises runs says sees sells shows stands
    stays takes tells tries uses wants wins works"""
)
PLURAL_VERBS = words_of(
    """are ask call come cost count declare do find get give have hold keep know learn leave lose make mean need pay
    read say see sell show take tell use want were write"""
)
BEFORE_NOUNS = words_of(
    """a all an any both by each every for from in its many more no of on other our own per some the their these this
    those to two was which with without your"""
)
# Behind one of these a verb belongs to another clause; behind the second kind, once the first clause has its verb.
JOINERS = words_of(
    """after although as because before beyond but how if nor once since so than that though unless until what whatever
    when where wherever whether which while who whoever whom whose why"""
)
LATER_JOINERS = words_of("and he it one or she there they we you")
TIMES = words_of("after before beyond since until")


def clause_as_subject(sentence: str) -> bool:
    """Whether a clause is the subject of a verb, at the beginning of a sentence or behind ", and"."""
    _, *others = re.split(r", (?:and |but |so |because )?(?=(?:what|whatever|whoever|whether|how)\b)", sentence)
    return "?" not in sentence and any(_goes_on(part) for part in (sentence, *(part.split(",")[0] for part in others)))


def _goes_on(sentence: str) -> bool:
    """Whether a sentence begins with a clause that has a verb, and goes on with another verb of no other subject."""
    opener = OPENER.match(sentence)
    if not opener:
        return False
    # "Whatever it is, the rest goes on" is plain, as is "Where": behind the comma begins another clause.
    end = r"[,;:(—]" if opener[1] else r"[;:(—]|, so\b"
    words = re.findall(r"[\w'’%-]+", re.split(end, sentence[opener.end() :])[0].lower())
    has_verb, joined = False, False
    for before, word, after in zip(["", *words], words, [*words[1:], ""], strict=False):
        # "What came before counts", "in one round": no clause begins there.
        begins = not (word in TIMES and after in VERBS) and (word != "one" or after in AUXILIARIES | VERBS)
        if begins and (word in JOINERS or (has_verb and word in LATER_JOINERS and after != "not")):
            joined = True
        elif word in AUXILIARIES or (
            word in VERBS | PLURAL_VERBS and before not in BEFORE_NOUNS and not before.endswith("'s")
        ):
            if has_verb and not joined and word not in PLURAL_VERBS:
                return True
            has_verb, joined = has_verb or not joined, False
    return False


def broken_rules(sentence: str) -> list[str]:
    """The rules that a sentence breaks."""
    patterns = {"so many": SO_MANY, "is none": IS_NONE, "hears": HEARS}
    broken = [name for name, pattern in patterns.items() if pattern.search(sentence)]
    return broken + ["a clause as the subject"] * clause_as_subject(sentence)


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text. Paragraphs, items of lists and cells of tables end one."""
    for paragraph in re.split(r"\n\s*\n|\n\s*(?=[-*>#|] |\d+\. )| \| |^\|", text, flags=re.MULTILINE):
        plain = " ".join(re.sub(r"[*_#>|]+", " ", paragraph).split())
        yield from (part.strip(" -\"'“(`") for part in re.split(r"(?<=[.!?;:])[\"'”)]*\s+", plain))


def prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each block of comments and of each string; a computed part of a string is an X."""
    block: list[str] = []
    begun = last = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT and not token.string.startswith(("# noqa", "# type", "# fmt", "#!")):
            if block and (token.start[0] != last + 1 or token.line.strip()[0] != "#"):
                yield begun, "\n".join(block)
                block = []
            begun = begun if block else token.start[0]
            block.append(token.string.lstrip("# "))
            last = token.start[0]
    if block:
        yield begun, "\n".join(block)
    inside: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in node.values)
            yield (
                node.lineno,
                "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values),
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.lineno, textwrap.dedent(node.value)


def prose_of_document(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of each paragraph outside of code."""
    text = re.sub(r"^ *```.*?^ *```", lambda code: "\n" * code[0].count("\n"), text, flags=re.MULTILINE | re.DOTALL)
    line = 1
    for paragraph in re.split(r"(\n[ \t]*\n)", text):
        yield line, paragraph
        line += paragraph.count("\n")


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """(line, text) of what stands between tags, or in a script; parts that a template fills in are an X."""
    text = re.sub(r"\{%.*?%\}|\{#.*?#\}", lambda part: "\n" * part[0].count("\n"), text, flags=re.DOTALL)
    text = re.sub(r"\{\{.*?\}\}|\$\{.*?\}", "X", text, flags=re.DOTALL)
    text = re.sub(r"</?(?:b|i|em|strong|code|span|a)\b[^>]*>", "", text)
    for number, line in enumerate(text.splitlines(), start=1):
        for part in re.split(r"<[^>]*>|//|[\"'`]", line):
            yield number, part


READERS = {".py": prose_of_python, ".md": prose_of_document, ".html": prose_of_page, ".js": prose_of_page}
PLACES = (
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted((ROOT / "docs").glob("*.md")),
    *(ROOT / name for name in ("attacks", "benchmarks")),
    *sorted(
        path for path in (ROOT / "src/poolrl").iterdir() if path.suffix in READERS or (path / "__init__.py").exists()
    ),
)


def faults_of(place: Path) -> list[str]:
    """What to rewrite in a file or in all files of a folder, with file and line."""
    files = sorted(path for path in place.rglob("*") if path.suffix in READERS) if place.is_dir() else [place]
    return [
        f"{path.relative_to(ROOT)}:{line}: {rule}: {sentence}"
        for path in files
        for line, text in READERS[path.suffix](path.read_text())
        for sentence in sentences(text)
        for rule in broken_rules(sentence)
    ]


@pytest.mark.parametrize(
    "place",
    PLACES,
    ids=lambda place: place.relative_to(ROOT).as_posix(),
)
def test_prose_is_plain(place: Path) -> None:
    assert not faults_of(place), "\n" + "\n".join(faults_of(place))


@pytest.mark.parametrize(
    ("sentence", "rule"),
    [
        ("Orders beyond so many steps are not tried.", "so many"),
        ("No test may take so much longer.", "so many"),
        ("A date outside four centuries is none.", "is none"),
        ("There are none.", "is none"),
        ("`progress` hears how many parts are planned.", "hears"),
        ("Who errs about today may err about another policy too.", "a clause as the subject"),
        ("What a plan costs is not kept.", "a clause as the subject"),
        ("What is left costs `holding`.", "a clause as the subject"),
        ("What is reserved and not void counts as spent.", "a clause as the subject"),
        ("What a shelf that ran empty would have sold is estimated.", "a clause as the subject"),
        ("Whoever can read the file sees names.", "a clause as the subject"),
        ("What came before counts twice.", "a clause as the subject"),
        ("What was tried in one round tells of all.", "a clause as the subject"),
        ("Whether a row can be read, and whether it fits, must follow from public facts.", "a clause as the subject"),
        ("How many trajectories each period has is public.", "a clause as the subject"),
        ("So when a trajectory begins is not protected.", "a clause as the subject"),
        ("There is no ledger, so what was spent is not known.", "a clause as the subject"),
    ],
)
def test_a_planted_sentence_is_found(sentence: str, rule: str) -> None:
    assert broken_rules(sentence) == [rule]


@pytest.mark.parametrize(
    "sentence",
    [
        "What a row shows.",
        "What is released, and what it costs.",
        "Who is protected, how strongly, and from whom.",
        "What remains of a law when its size is taken away.",
        "What does each budget buy, and how large a log does it take?",
        "What an attacker who knows all but one unit gets right.",
        "How much of what data could save is lost to noise.",
        "Whether rewards are earnings, so that costs below zero can be compared.",
        "Where labels stay, a release is not converted.",
        "Whatever the edges are, a trajectory adds three whole numbers.",
        "There are so many rows that a sample is enough, and twice so much as before.",
        "A trajectory without an id belongs to none of them.",
    ],
)
def test_a_plain_sentence_passes(sentence: str) -> None:
    assert not broken_rules(sentence)


def test_prose_is_found_wherever_it_stands(tmp_path: Path) -> None:
    code = (
        '# What is left\n# counts.\ndef f(x):\n    """There is\n    none."""\n    raise ValueError(f"{x} is " "none")\n'
    )
    found = [rule for _, text in prose_of_python(code) for part in sentences(text) for rule in broken_rules(part)]
    assert sorted(found) == ["a clause as the subject", "is none", "is none"]
    guide = "# Title\n\n| a | there are none |\n\n```\nThere are none.\n```\n\n- What is **left** counts.\n"
    lines = [line for line, text in prose_of_document(guide) for part in sentences(text) if broken_rules(part)]
    assert lines == [3, 9]
    page = (
        "<p>There {% if x is none %}are{% endif %} <b>none</b>.</p>\n<script>say('What is left ' + 'counts')</script>"
    )
    assert [line for line, text in prose_of_page(page) for part in sentences(text) if broken_rules(part)] == [1]
