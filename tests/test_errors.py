"""Argument checks: what they accept, what they refuse, and what they say."""

from __future__ import annotations

import math

import pytest
import torch

from pyro_hoim import errors
from pyro_hoim.checks import check_finite, check_shape
from pyro_hoim.data import Observations
from pyro_hoim.errors import InputError, IntractableError, UnknownNameError, check_names, check_unique, size_text
from pyro_hoim.log_linear import AnnealedImportance, LogLinearEnergy, fit
from pyro_hoim.runs import GibbsSchedule
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph


def test_every_exception_is_a_value_or_type_error() -> None:
    exceptions = [e for e in vars(errors).values() if isinstance(e, type) and issubclass(e, errors.HoimError)]
    assert len(exceptions) >= 7
    for exception in exceptions:
        assert exception is errors.HoimError or issubclass(exception, (ValueError, TypeError))


def test_all_lists_the_public_names() -> None:
    public = {n for n, v in vars(errors).items() if getattr(v, "__module__", None) == errors.__name__}
    assert set(errors.__all__) == {n for n in public if not n.startswith("_")}


def test_sizes_of_any_magnitude_can_be_written() -> None:
    with pytest.raises(OverflowError):
        f"{2**1100:.3g}"  # control: what a plain format does
    assert size_text(999_999, "cells") == "999999 cells"
    assert size_text(10**17) == "100000000000000000 (about 1e+17)"
    assert size_text(10**18, "states") == "about 1.00e+18 states"
    assert size_text(2**20_000) == "about 3.98e+6020"  # more digits than an int prints
    assert size_text(9_999 * 10**16) == "about 1.00e+20"  # rounded up to the next power


def test_messages_about_twenty_thousand_binary_variables() -> None:
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


def test_check_unique() -> None:
    check_unique(["a", "b"], "x")
    with pytest.raises(InputError, match=r"x: names must be unique, but 'a', 'b' is repeated"):
        check_unique(["b", "a", "c", "a", "b", "a"], "x")


def test_check_names_lists_the_closest() -> None:
    check_names(["smoke"], ["smoke", "mental"], "x")
    with pytest.raises(UnknownNameError, match=r"x: unknown variable 'smoek'; did you mean 'smoke'"):
        check_names(["smoke", "smoek"], ["smoke", "mental"], "x")
    with pytest.raises(UnknownNameError, match=r"unknown label 'zzz'; known: '0', '1', '2', '3', '4', '5', \.\.\."):
        check_names(["zzz"], [str(i) for i in range(9)], "x", noun="label")


@pytest.mark.parametrize("shape", [(3, 2), (5, 3, 2)])
def test_check_shape_accepts_batches(shape: tuple[int, ...]) -> None:
    check_shape(torch.zeros(shape), (3, 2), "x")


@pytest.mark.parametrize("shape", [(), (2,), (2, 3), (3, 2, 1)])
def test_check_shape_states_expected_and_received(shape: tuple[int, ...]) -> None:
    with pytest.raises(InputError) as caught:
        check_shape(torch.zeros(shape), (3, 2), "theta")
    assert str(caught.value) == f"theta: expected shape (..., 3, 2), received {shape}"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_check_finite(value: float) -> None:
    check_finite(torch.tensor([1, 2]), "x")
    check_finite(torch.ones(3), "x")
    with pytest.raises(InputError, match=r"theta: expected finite numbers, received .* at index \(1, 0\) \(1 such"):
        check_finite(torch.tensor([[0.0, 1.0], [value, 2.0]]), "theta")
