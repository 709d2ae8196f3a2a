"""Words of options: formulas, ``--edges``, ``--given``, ``--bins``, ``--columns``, ``--prior``, levels."""

import json
from itertools import combinations

import numpy as np
from harness import Reader
from hypothesis import strategies as st
from mutations import TEXTS, dumped, hostile, mutate_bytes, mutate_json
from read_models import mixed_file

from pyro_hoim.cli.asking import parse_given
from pyro_hoim.core.command.rows import _read_levels
from pyro_hoim.core.family import Stored
from pyro_hoim.data.bins import Bins, find_bins, parse_bins
from pyro_hoim.data.encoding import select_columns
from pyro_hoim.log_linear import Prior, restricted_interactions
from pyro_hoim.schema import Domain, Variable
from pyro_hoim.structure.formula import parse_formula, split_formula

NAMES = ["a", "b", "c", "d-e", "größe", "first name"]
DOMAIN = Domain.from_cardinalities({"a": 2, "b": 3, "c": 2, "d": 4})
ODD = st.one_of(st.text(max_size=20), st.sampled_from(TEXTS))

# Formulas as trees, whose meaning is worked out beside the parser

ATOMS = st.sampled_from(["a", "b", "c", "d-e", "größe", "first name", ".", "1"])
TREES = st.recursive(
    ATOMS,
    lambda parts: (
        st.tuples(st.sampled_from(["+", "*", ":"]), parts, parts) | st.tuples(st.just("^"), parts, st.integers(1, 4))
    ),
    max_leaves=8,
)


def text_of(tree):
    if isinstance(tree, str):
        return f"`{tree}`" if " " in tree else tree
    sign, first, second = tree
    return f"({text_of(first)}){sign}{second}" if sign == "^" else f"({text_of(first)}) {sign} ({text_of(second)})"


def meaning(tree):
    """The sets that a formula stands for."""
    if isinstance(tree, str):
        return {frozenset([n]) for n in NAMES} if tree == "." else set() if tree == "1" else {frozenset([tree])}
    sign, left, right = tree
    first = meaning(left)
    if sign == "^":
        return {
            frozenset().union(*chosen)
            for k in range(1, right + 1)
            for chosen in combinations(first, min(k, len(first)))
        } - ({frozenset()} if not first else set())
    second = meaning(right)
    products = {a | b for a in first for b in second}
    return {"+": first | second, "*": first | second | products, ":": products}[sign]


def read_tree(tree, folder):
    """A formula by the rules is read as what it stands for."""
    assert parse_formula(text_of(tree), NAMES) == meaning(tree)


def read_formula(text, folder):
    """A formula by no rules: its sets are of known names."""
    split_formula(text)
    sets = parse_formula(text, NAMES, closure=len(text) % 2 == 0)
    assert all(term and term <= set(NAMES) for term in sets)


PIECES = [
    "a", "b", "c", "d-e", "(", ")", "((", "^", "^2", "^99999999999999999999", "*", ":", "+", "-", "~", ".", "1", "0",
    ",", "linear(", "symmetric(", "a:b", "`", "`first name`", " ", "9" * 5000, "1e9", "é", "\n", "%", "-a", "(" * 2500,
    ")" * 2500, "+a" * 1000, "*." * 40,
]  # fmt: skip


def draw_formula(rng):
    if rng.random() < 0.1:
        depth = rng.choice([50, 1000, 2000, 100_000])
        parts = [("", "(", "a", ")"), ("", "(", "", ""), ("a", ":a", "", ""), ("a", "^2", "", "")]
        begin, middle, turn, end = rng.choice([*parts, ("", "(a+b)^2", "", ""), ("", "-", "", "")])
        return begin + middle * depth + turn + end * depth
    if rng.random() < 0.2:
        return mutate_bytes(rng, b"a*b + (c + a)^2 - a:c + linear(a):b").decode("latin-1")
    return "".join(rng.choice(PIECES) for _ in range(rng.randrange(1, 12)))


def read_terms(text, folder):
    """``--edges``, with functions."""
    found = restricted_interactions(DOMAIN, text.replace("d-e", "d"))
    assert found.num_parameters >= 0


# Short options

ENDS = [
    "4", "0", "-1", "1e308", "1e-308", "1e-5", "nan", "inf", "week", "year", "2", "0.1", "1,2,3", "3,2", "1,,2", "1,1",
    "-1e308,1e308", "1e300", "9" * 400,
]  # fmt: skip
RULES = ODD | st.tuples(st.sampled_from(["quantile", "width", "edges", "x"]), ODD | st.sampled_from(ENDS)).map(":".join)


def words(text):
    """One of the words between single blanks."""
    return st.sampled_from(text.split(" "))


def cells(text):
    """Columns of a few of these words."""
    return st.lists(words(text), min_size=1, max_size=8)


GOOD_RULES = words(
    "quantile:2 quantile:4 width:1 width:1000 width:year width:week edges:1,2 edges:2000-01-01,2020-01-01 edges:0"
)

VALUES = cells("1 2 3.5 -4  1e308 -1e308 5e-324 nan inf x 2020-01-01 1.2.2021 31.12.9999 0001-01-01 1_0 0x10 ١")
GOOD = cells("1 2 3.5 -4  1000000 1e300")
DATES = cells("2020-01-01 1999-12-31 2020-02-29 1700-01-01 2261-01-01  9999-12-31")


def read_bins(case, folder):
    """Every value is in the level of its own cut points."""
    rule, values = case
    ((name, rule),) = parse_bins([f"x={rule}"]).items() if "=" not in rule else parse_bins([rule]).items()
    bins = find_bins(values, rule, name=name)
    labels = bins.apply(values)
    again = Bins.from_json(json.loads(json.dumps(bins.to_json())))
    assert again == bins and again.apply(values) == labels and set(labels) <= {*bins.labels, ""}
    if bins.kind == "numbers":
        assert labels == [bins.label(float(v)) if v and np.isfinite(float(v)) else "" for v in values]


def read_prior(text, folder):
    prior = Prior.parse(text)
    assert Prior.parse(str(prior)).kind == prior.kind and len(prior.describe()) < 300


def read_columns(case, folder):
    text, as_number = case
    found = select_columns(
        ["a", "b", "c"],
        int(text) if as_number and text.lstrip("-").isdecimal() else text.split(","),
        exclude=("c",),
        source="t",
    )
    assert found and len(set(found)) == len(found) and set(found) <= {"a", "b"}


MIXED = Domain([Variable("a", ["x", "y"]), Variable("n=m", ["1", "2"])])
NUMBERS = Domain([Variable("a", kind="count"), Variable("n=m", kind="count")])
FRAMED = mixed_file()


def read_given(words, folder):
    assert set(parse_given(words, Stored("", None, NUMBERS, {}), "numbers")) <= set(NUMBERS.names)
    for name, code in parse_given(words, Stored("", None, MIXED, {}), "labels").items():
        assert f"{name}={MIXED[name].labels[code]}" in words


def read_given_of_a_frame(words, folder):
    """Labels of a category fix all its indicators."""
    values = parse_given(words, Stored("", FRAMED, FRAMED.domain, FRAMED.info), "numbers")
    assert sum(value for name, value in values.items() if name.startswith("region=")) == any(
        word.startswith("region=") for word in words
    )


GIVEN = st.one_of(
    ODD,
    st.tuples(
        st.sampled_from(["a", "n=m", "b", ""]), ODD | st.sampled_from(["x", "1", "0", "1e999", "-3", "1.5", "9" * 400])
    ).map("=".join),
)
GIVEN_LABELS = st.tuples(
    st.sampled_from(["region", "ill", "age", "visits", "batch", "region=north"]),
    ODD | st.sampled_from(["north", "yes", "no", "31.5", "1e999", "nan", "-3", "1.5", "one", "9" * 400]),
).map("=".join)
LEVELS = {"a": ["x", "y"], "b": ["1", "2", "3"]}


def draw_levels(rng):
    if rng.random() < 0.5:
        return ".json", dumped(mutate_json(rng, LEVELS) if rng.random() < 0.8 else hostile(rng)).encode()
    if rng.random() < 0.5:
        return ".json", mutate_bytes(rng, json.dumps(LEVELS).encode())
    return ".csv", mutate_bytes(rng, b"column,level\na,x\na,y\nb,1\n")


def read_levels(case, folder):
    kind, data = case
    path = folder / f"levels{kind}"
    path.write_bytes(data)
    found = _read_levels(path)
    assert all(isinstance(label, str) for labels in found.values() for label in labels)


KINDS = st.sampled_from(["none", "unit", "normal", "ridge", "conjugate", " unit "])
PRIORS = ODD | st.tuples(KINDS, ODD | st.floats().map(str) | st.integers().map(str)).map(":".join)
CUTS = st.tuples(RULES, VALUES | GOOD | DATES) | st.tuples(GOOD_RULES, GOOD | DATES)
COLUMNS = ODD | st.sampled_from(["a", "a,b", "c", "2", "0", "-1", "9" * 30, "a,,b", "a,a"])
READERS = [
    Reader("formulas by the grammar", read_tree, TREES),
    Reader("formulas, other text", read_formula, draw_formula),
    Reader("--edges with functions", read_terms, draw_formula),
    Reader("--bins", read_bins, CUTS),
    Reader("--prior", read_prior, PRIORS),
    Reader("--columns", read_columns, st.tuples(COLUMNS, st.booleans()), 0.5),
    Reader("--given", read_given, st.lists(GIVEN, max_size=3)),
    Reader("--given of labels and numbers", read_given_of_a_frame, st.lists(GIVEN_LABELS, max_size=3)),
    Reader("--levels", read_levels, draw_levels),
]
