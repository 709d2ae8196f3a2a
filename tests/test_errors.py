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
from joblib.externals.loky import get_reusable_executor

from pyro_hoim import errors
from pyro_hoim.checks import check_exact_shape, check_finite, check_shape
from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, IntractableError, UnknownNameError, check_names, check_unique, size_text
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy, fit
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
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
    ("error", "text", "parts"),
    [
        (errors.InputError("no rows"), "no rows", ("invalid-value", None, None, None, None)),
        (
            errors.unexpected("rule", "'and' or 'or'", "xor", "use 'or'"),
            "rule: expected 'and' or 'or', received 'xor'; use 'or'",
            ("invalid-value", "rule", "'and' or 'or'", "'xor'", "use 'or'"),
        ),
        (
            errors.unexpected("rows", "at least one row", received="none", code="empty"),
            "rows: expected at least one row, received none",
            ("empty", "rows", "at least one row", "none", None),
        ),
        (
            errors.unexpected("labels", "the labels of train", None),
            "labels: expected the labels of train, received None",
            ("invalid-value", "labels", "the labels of train", "None", None),
        ),
        (
            errors.out_of_range("share", "a share", hint="use 1/2"),
            "share: expected a share; use 1/2",
            ("out-of-range", "share", "a share", None, "use 1/2"),
        ),
        (
            errors.none_received("rows", "at least one row", "add one"),
            "rows: expected at least one row, received none; add one",
            ("empty", "rows", "at least one row", "none", "add one"),
        ),
        (
            errors.other_domain("rows", "the columns of the fit", received="a, b"),
            "rows: expected the columns of the fit, received a, b",
            ("other-domain", "rows", "the columns of the fit", "a, b", None),
        ),
        (
            errors.conflict("order", "belongs to the sequential scan", "leave it out"),
            "order: belongs to the sequential scan; leave it out",
            ("conflict", "order", None, None, "leave it out"),
        ),
        (
            errors.wrong_type("order", "a sequence", 3, "write (3,)"),
            "order: expected a sequence, received int; write (3,)",
            ("wrong-type", "order", "a sequence", "int", "write (3,)"),
        ),
        (
            errors.wrong_shape("theta", (2,), torch.zeros(3, 1)),
            "theta: expected shape (2,), received (3, 1)",
            ("wrong-shape", "theta", "shape (2,)", "(3, 1)", None),
        ),
        (
            errors.wrong_type("order", "a sequence", received="the string 'ab'"),
            "order: expected a sequence, received the string 'ab'",
            ("wrong-type", "order", "a sequence", "the string 'ab'", None),
        ),
        (
            errors.refused("resume", "no checkpoint", "leave it out", code="no-file"),
            "resume: no checkpoint; leave it out",
            ("no-file", "resume", None, None, "leave it out"),
        ),
        (
            errors.out_of_reach(None, "8 cells, the limit is 4"),
            "8 cells, the limit is 4",
            ("over-budget", None, None, None, None),
        ),
        (
            errors.ModelFileError("no such file", argument="a.model"),
            "a.model: no such file",
            ("damaged-file", "a.model", None, None, None),
        ),
    ],
)
def test_parts_of_an_exception_make_its_text_and_stay_with_it(error, text, parts):
    for same in (error, copy.copy(error), copy.deepcopy(error), pickle.loads(pickle.dumps(error)), error.replace()):
        assert type(same) is type(error)
        assert str(same) == text
        assert (same.code, same.argument, same.expected, same.received, same.hint) == parts
    assert str(error.replace(argument="other")).startswith("other: ")


def test_parts_reach_other_processes():
    def fail():
        raise errors.out_of_range("jobs", "a whole number from 1", 0)

    with raises("out-of-range", "jobs"):
        get_reusable_executor(max_workers=1).submit(fail).result()


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
        assert str(caught.value) == f"x: expected {text}, received {value!r}"
        assert caught.value.code == "out-of-range"


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
    assert size_text(999_999, "cells") == "999999 cells"
    assert size_text(10**17) == "100000000000000000 (about 1e+17)"
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
        (lambda: GibbsSchedule([domain.names]).resolve(graph), f"has {cells} joint states, more than"),
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
