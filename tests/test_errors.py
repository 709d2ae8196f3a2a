"""Argument checks: what they accept, what they refuse, and what they say."""

from __future__ import annotations

import math

import pytest
import torch

from pyro_hoim import errors
from pyro_hoim.errors import (
    InputError,
    UnknownNameError,
    check_finite,
    check_names,
    check_shape,
    check_unique,
    size_text,
)


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
