"""Argument checks: what they accept, what they refuse, and what they say."""

import copy
import math
import pickle
import re
from functools import partial
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
import torch
from joblib.externals.loky import ProcessPoolExecutor

from pyro_hoim import Domain, InteractionHypergraph, Observations, errors
from pyro_hoim.checks import check_exact_shape, check_finite, check_shape
from pyro_hoim.errors import InputError, IntractableError, UnknownNameError, check_names, check_unique, size_text
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy, fit
from pyro_hoim.testing import raises


def test_every_exception_is_a_value_or_type_error():
    exceptions = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.HoimError)]
    assert len(exceptions) >= 7
    for exception in exceptions:
        assert exception is errors.HoimError or issubclass(exception, (ValueError, TypeError))


def test_all_lists_the_public_names():
    own = {n for n, v in vars(errors).items() if getattr(v, "__module__", None) == errors.__name__}
    public = own | {n for n, v in vars(errors).items() if isinstance(v, partial)}
    assert set(errors.__all__) == {n for n in public if not n.startswith("_")} | {"ErrorCode"}


def test_the_page_defines_every_code_once():
    page = (Path(__file__).resolve().parents[1] / "docs" / "api" / "errors.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `([a-z-]+)` \| \w", page.split("| code |")[1], flags=re.MULTILINE)
    assert tuple(rows) == get_args(errors.ErrorCode)
    assert set(re.findall(r"^\| `(\w+)`", page.split("| code |")[0], flags=re.MULTILINE)) == set(vars(InputError("x")))


@pytest.mark.parametrize(
    ("error", "text", "parts"),  # code, argument, expected, received, hint; the text is made of the last four
    [
        (errors.InputError("no rows"), "no rows", "invalid-value | | | |"),
        (errors.unexpected("rule", "a or b", "xor", "use a"), None, "invalid-value | rule | a or b | 'xor' | use a"),
        (errors.unexpected("rows", "one", received="none", code="empty"), None, "empty | rows | one | none |"),
        (errors.unexpected("labels", "the labels", None), None, "invalid-value | labels | the labels | None |"),
        (errors.out_of_range("share", "a share", hint="use 1/2"), None, "out-of-range | share | a share | | use 1/2"),
        (errors.none_received("rows", "one", "add one"), None, "empty | rows | one | none | add one"),
        (errors.other_domain("rows", "those", received="a, b"), None, "other-domain | rows | those | a, b |"),
        (errors.conflict("order", "is a scan's", "go"), "order: is a scan's; go", "conflict | order | | | go"),
        (errors.wrong_type("order", "a list", 3, "write (3,)"), None, "wrong-type | order | a list | int | write (3,)"),
        (errors.wrong_shape("x", (2,), torch.zeros(3, 1)), None, "wrong-shape | x | shape (2,) | (3, 1) |"),
        (errors.wrong_type("x", "a list", received="the text"), None, "wrong-type | x | a list | the text |"),
        (errors.refused("x", "is no file", "go", code="no-file"), "x: is no file; go", "no-file | x | | | go"),
        (errors.out_of_reach(None, "8, the limit is 4"), "8, the limit is 4", "over-budget | | | |"),
        (errors.ModelFileError("no file", argument="a.model"), "a.model: no file", "damaged-file | a.model | | |"),
    ],
)
def test_parts_of_an_exception_make_its_text_and_stay_with_it(error, text, parts):
    code, argument, expected, received, hint = (part.strip() or None for part in parts.split("|"))
    if text is None:
        text = f"{argument}: expected {expected}" + (f", received {received}" if received else "")
        text += f"; {hint}" if hint else ""
    for same in (error, copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error)), error.replace()):
        assert type(same) is type(error) and str(same) == text
        assert (same.code, same.argument) == (code, argument)
        assert (same.expected, same.received, same.hint) == (expected, received, hint)
    assert str(error.replace(argument="other")).startswith("other: ")


def test_parts_reach_other_processes():
    def fail():
        raise errors.out_of_range("jobs", "a whole number from 1", 0)

    # A pool of its own: the one that loky keeps for reuse is none that joblib could go on with.
    with ProcessPoolExecutor(max_workers=1) as pool, raises("out-of-range", "jobs"):
        pool.submit(fail).result()


def test_check_of_codes_fails_for_another_code_argument_or_no_exception():
    checks = (("empty", "jobs"), ("out-of-range", "chains"))
    for code, argument in checks:
        with pytest.raises(AssertionError, match="jobs: expected from 1"), raises(code, argument):
            raise errors.out_of_range("jobs", "from 1")
    with pytest.raises(AssertionError, match="nothing was raised"), raises("empty"):
        pass


@pytest.mark.parametrize(
    ("check", "good", "bad", "text"),
    [
        (errors.check_whole, (1, np.int64(7)), (0, 1.0, True, "3", None), "a whole number from 1"),
        (
            errors.check_positive,
            (1, 0.5, np.float32(2)),
            (0, -1, math.inf, math.nan, "1", True),
            "a positive finite number",
        ),
        (errors.check_not_negative, (0, 0.5), (-1e-9, math.inf, math.nan, None), "a finite number from 0"),
        (errors.check_fraction, (0.5, 1e-9), (0, 1, 1.5, math.nan, "x", True), "a number between 0 and 1"),
    ],
)
def test_checks_of_numbers(check, good, bad, text):
    for value in good:
        check(value, "x")
    for value in bad:
        with pytest.raises(InputError) as caught:
            check(value, "x")
        assert (str(caught.value), caught.value.code) == (f"x: expected {text}, received {value!r}", "out-of-range")


def test_checks_of_whole_numbers_take_bounds():
    errors.check_whole(0, "x", 0)
    errors.check_whole(9, "x", 2, 9)
    with pytest.raises(InputError, match=r"^x: expected a whole number from 2 to 9, received 10$"):
        errors.check_whole(10, "x", 2, 9)


def test_checks_of_types_name_them():
    errors.check_type(None, Domain | None, "x")
    errors.check_type(1.5, (int, float), "x")
    for kind, name in (
        (Domain, "a Domain"),
        (InteractionHypergraph, "an InteractionHypergraph"),
        (Observations, "Observations"),
        (type("L1Rule", (), {}), "an L1Rule"),
        (type("Unit", (), {}), "a Unit"),
        (Domain | None, "a Domain or None"),
        ((int, float), "an int or a float"),
    ):
        with pytest.raises(errors.InputTypeError, match=rf"^x: expected {name}, received str$"):
            errors.check_type("1", kind, "x")
    with raises("wrong-type", "x"):
        errors.check_type(1, str, "x", "a word")


def test_checks_of_choices_list_them():
    errors.check_choice("b", ("a", "b"), "x")
    with pytest.raises(InputError, match=r"^x: expected 'a', 'b' or None, received 'c'$"):
        errors.check_choice("c", ("a", "b", None), "x")


def test_sizes_of_any_magnitude_can_be_written():
    with pytest.raises(OverflowError):
        f"{2**1100:.3g}"  # control: what a plain format does
    assert (size_text(999_999, "cells"), size_text(10**17)) == ("999999 cells", "100000000000000000 (about 1e+17)")
    assert size_text(10**18, "states") == "about 1.00e+18 states"
    assert size_text(2**20_000) == "about 3.98e+6020"  # more digits than an int prints
    assert size_text(9_999 * 10**16) == "about 1.00e+20"  # rounded up to the next power


def test_messages_about_twenty_thousand_binary_variables():
    """Their number of states has 6,021 digits; Python prints no integer of more than 4,300."""
    domain = Domain.from_cardinalities([2] * 20_000)
    graph = InteractionHypergraph.from_order(domain, 1)
    rows = Observations.from_tensor(torch.zeros(2, 20_000, dtype=torch.long), domain)
    model = LogLinearEnergy(graph, torch.zeros(graph.num_terms, dtype=torch.float64))
    with pytest.raises(ValueError, match="4300 digits"):
        str(domain.num_states)  # control: what a plain format does
    cells = r"about 3\.98e\+6020"
    for ask, words in (
        (lambda: model.block_conditional(domain.names, rows.codes), f"block: {cells} joint states of 20000 variables"),
        (lambda: AnnealedImportance().marginal(model, domain.names), f"a joint table of {cells} cells is asked for"),
        (lambda: InteractionHypergraph.saturated(domain), f"may have up to {cells} sets"),
        (lambda: fit(graph, rows, method="newton"), rf"{cells} cells by 20000 parameters needs about 7\.96e\+6024 ent"),
    ):
        with pytest.raises(IntractableError, match=words):
            ask()


def test_check_unique():
    check_unique(["a", "b"], "x")
    with pytest.raises(InputError, match=r"x: names must be unique, but 'a', 'b' is repeated"):
        check_unique(["b", "a", "c", "a", "b", "a"], "x")


def test_check_names_lists_the_closest():
    check_names(["smoke"], ["smoke", "mental"], "x")
    with pytest.raises(UnknownNameError, match=r"x: unknown variable 'smoek'; did you mean 'smoke'"):
        check_names(["smoke", "smoek"], ["smoke", "mental"], "x")
    with pytest.raises(UnknownNameError, match=r"unknown label 'zzz'; known: '0', '1', '2', '3', '4', '5', \.\.\."):
        check_names(["zzz"], [str(i) for i in range(9)], "x", noun="label")


@pytest.mark.parametrize(
    ("name", "known"), [("14", ["1", "4", "5"]), ("-1.5", ["1.5", "-1"]), ("nope", ["income", "open_date"])]
)
def test_names_that_are_no_misspellings_are_not_suggested(name, known):
    with pytest.raises(UnknownNameError, match=f"unknown name '{name}'; known: '{known[0]}'"):
        check_names([name], known, "x", noun="name")
    with pytest.raises(UnknownNameError, match=r"unknown name 'icnome'; did you mean 'income'$"):
        check_names(["icnome"], ["nope", "income"], "x", noun="name")


@pytest.mark.parametrize("shape", [(3, 2), (5, 3, 2)])
def test_check_shape_accepts_batches(shape):
    check_shape(torch.zeros(shape), (3, 2), "x")


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (3, 2, 1)])
def test_check_shape_states_expected_and_received(shape):
    with pytest.raises(InputError) as caught:
        check_shape(torch.zeros(shape), (3, 2), "theta")
    assert str(caught.value) == f"theta: expected shape (..., 3, 2), received {shape}"


def test_check_exact_shape():
    check_exact_shape(np.zeros((2, 3)), (2, 3), "x")
    with pytest.raises(InputError, match=r"^theta: expected shape \(3,\), received \(2, 3\)$"):
        check_exact_shape(torch.zeros(2, 3), (3,), "theta")


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_check_finite(value):
    check_finite(torch.tensor([1, 2]), "x")
    check_finite(torch.ones(3), "x")
    with pytest.raises(InputError, match=r"theta: expected finite numbers, received .* at index \(1, 0\) \(1 such"):
        check_finite(torch.tensor([[0.0, 1.0], [value, 2.0]]), "theta")


def test_what_was_received_is_told_in_part_where_it_is_long():
    error = errors.unexpected("formula " + "a*" * 9999, "a name", "b" * 9999, "see the manual")
    assert len(str(error)) == 2 * 785 + len(": ; see the manual") and " ... " in str(error)
    assert str(error).endswith("bbb'; see the manual")
    assert error.argument == "formula " + "a*" * 9999  # programs get all of it
