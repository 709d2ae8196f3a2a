"""The formula language: removal against a brute-force definition, names with hyphens, and what is said of others."""

import itertools

import pytest

from pyro_hoim import Domain, InputError, InteractionHypergraph
from pyro_hoim.errors import IntractableError, UnknownNameError
from pyro_hoim.structure import formula as formula_module
from pyro_hoim.structure.formula import parse_formula, parse_terms, split_formula

NAMES = ("a", "b", "c", "d")


def _sets(text):
    return {frozenset(term) for term in text.split()}


@pytest.mark.parametrize(
    ("formula", "sets"),
    [
        (".^2 - a:b", "a b c d ac ad bc bd cd"),
        (".^3 - a:b", "a b c d ac ad bc bd cd acd bcd"),
        ("a*b*c - a:b:c", "a b c ab ac bc"),
        ("a*b*c*d - a", "b c d bc bd cd bcd"),
        (". - d", "a b c"),
        (".^2 - (a + b):d", "a b c d ab ac bc cd"),
        (".^2 - a:b + a:b", "a b c d ab ac ad bc bd cd"),
        ("a*b - a:b - b + c", "a c"),
        ("a*b-a:b", "a b"),
        ("a*b*c - a*b", "c"),
        ("~ a*b + c", "a b c ab"),
        ("a*b - 1", "a b ab"),
    ],
)
def test_formulas(formula, sets):
    assert parse_formula(formula, NAMES) == _sets(sets)


@pytest.mark.parametrize("text", ["a*b*c*d", "a:b:c:d", "(a + b):c:d + a:b", "a:b + c:d", ".^3", "a*b + b*c*d"])
@pytest.mark.parametrize("gone", ["b", "ab", "bd", "abc", "acd"])
def test_removal_of_closed_collections_is_that_of_their_closures(text, gone):
    """Oracle: all subsets of the terms, less those that contain the removed set."""
    terms = parse_formula(text, NAMES)
    closed = {frozenset(s) for t in terms for k in range(1, len(t) + 1) for s in itertools.combinations(t, k)}
    formula = f"{text} - {':'.join(gone)}"
    if frozenset(gone) not in closed:
        with pytest.raises(InputError, match=rf"there is no {':'.join(gone)} to remove"):
            parse_formula(formula, NAMES, closure=True)
        return
    domain = Domain.from_cardinalities(dict.fromkeys(NAMES, 2))
    found = InteractionHypergraph.from_formula(domain, formula, closure=True)
    assert {frozenset(edge) for edge in found.edges} == {s for s in closed if not frozenset(gone) <= s}
    plain = InteractionHypergraph(domain, terms, closure=True).remove_edges([tuple(gone)])
    assert found == plain


def test_control_removal_without_closure_adds_no_set():
    assert parse_formula("a:b:c - a:b", NAMES) == frozenset()
    assert parse_formula("a:b:c - a:b", NAMES, closure=True) == _sets("ac bc")


def test_hyphens_in_names_and_between_them():
    names = ("native-country", "a", "a-b", "b")
    assert parse_formula("native-country*a - native-country:a", names) == {
        frozenset(["native-country"]),
        frozenset("a"),
    }
    assert parse_formula("a-b", names) == {frozenset(["a-b"])}
    assert parse_formula("a*b-a:b", names) == {frozenset("a"), frozenset("b")}
    assert parse_formula("(a + `a-b`)-`a-b`", names) == {frozenset("a")}


def test_left_sides():
    assert split_formula("Freq ~ .^2") == ("Freq", ".^2")
    assert split_formula("`n of rows`~a") == ("n of rows", "a")
    assert split_formula("a*b") == (None, "a*b") and split_formula(" ~a ") == (None, "a")


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        ("count ~ a*b", "unknown variable 'count'"),
        ("a ~ b", "a log-linear model has no response, so nothing stands on the left of ~; write the right side alone"),
        ("a*b - a:d", "there is no a:d to remove"),
        ("- a", "expected a variable name, received '-'"),
        ("a -", "expected a variable name, received the end"),
        ("a + b - ", "expected a variable name, received the end"),
    ],
)
def test_what_is_said_of_other_formulas(formula, message):
    with pytest.raises(InputError, match=message.replace("*", r"\*")):
        parse_formula(formula, NAMES)


def test_an_unknown_name_suggests_the_nearest():
    with pytest.raises(UnknownNameError, match=r"formula 'smke\*b': unknown variable 'smke'; did you mean 'smoke'"):
        parse_formula("smke*b", ("smoke", "b"))


@pytest.mark.parametrize(
    ("formula", "message"),
    [
        (
            "(" * 2000 + "a" + ")" * 2000,
            "inside one another are 65 parentheses, more than the budget of 64; write fewer",
        ),
        ("a" + " + a" * 2**18, "it has 1048577 characters, the limit is 1048576"),
        ("a^0", "expected a positive whole number after"),
        ("a^00", "expected a positive whole number after"),
    ],
)
def test_formulas_without_bounds_end_in_one_line(formula, message):
    with pytest.raises((InputError, IntractableError), match=message) as told:
        parse_formula(formula, NAMES)
    assert len(str(told.value)) < 400


def test_comparisons_behind_minus_signs_are_counted(monkeypatch):
    assert len(parse_formula(".^2 - a:b - c:d", NAMES)) == 8
    monkeypatch.setattr(formula_module, "_MAX_COMPARED", 7)
    told = "its minus signs compare 8 sets, more than the budget of 7; list what stays"
    with pytest.raises(IntractableError, match=told):
        parse_formula(".^2 - a:b - c:d", NAMES)


def test_what_is_removed_is_compared_with_the_sets_of_its_rarest_variable(monkeypatch):
    names = [f"v{i}" for i in range(60)]
    monkeypatch.setattr(formula_module, "_MAX_COMPARED", 2**22)  # less than a tenth of all pairs of sets
    assert parse_formula(".^3 - .^2 + v1:v2:v3", names) == {frozenset(names[1:4])}
    assert len(parse_formula(".^3 - v0:v1 - v0", names)) == 59 + 1711 + 32509
    assert len(parse_formula(".^3 - v0:v1 - v0:v2", names, closure=True)) == 36050 - 2 - 58 - 57
    with pytest.raises(InputError, match="there is no v0:v1 to remove"):
        parse_formula(".^3 - v0 - v1:v2 + v0:v2 - v0:v1", names)


def test_formulas_that_are_long_are_read():
    assert parse_formula("(" * 64 + "a" + ")" * 64, NAMES) == {frozenset("a")}
    assert parse_formula("+".join(["(a)"] * 1000), NAMES) == {frozenset("a")}
    assert parse_formula(".^" + "9" * 5000, NAMES) == parse_formula(".^4", NAMES)
    assert parse_formula("a" + ":a" * 10_000, NAMES) == {frozenset("a")}
    names = [f"v{i}" for i in range(3_000)]
    assert len(parse_formula(" + ".join(names), names)) == 3_000
    with pytest.raises(InputError, match="expected finite numbers"):
        parse_terms(f"linear(a, {'9' * 400})", NAMES, {"linear": 1})
