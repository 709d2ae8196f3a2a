"""One law used by several threads at once, against the same calls one after the other."""

import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from every_law import MAKERS

from pyro_hoim.core.laws import parameter_cache
from pyro_hoim.testing import assert_close

THREADS, CALLS = 4, 16
SLOW = {"annealed"}  # its chains
LAWS = sorted(set(MAKERS) - {"structures", "fit", "projections"})  # which have no parameters


@pytest.fixture
def often_switched():
    """Threads that change places as often as Python lets them."""
    former = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(former)


def _called(made, start):
    """Values and gradients of all quantities, in an order that depends on the thread."""
    names = sorted(made.quantities)
    found = {}
    for name in [*names[start % len(names) :], *names[: start % len(names)]]:
        value = made.quantities[name](made.law)
        gradients = (None,) * len(made.parameters)
        if value.requires_grad:
            gradients = torch.autograd.grad(value.sum(), made.parameters, allow_unused=True)
        found[name] = (value.detach(), *gradients)
    with torch.no_grad():
        made.quantities[names[0]](made.law)
    if hasattr(made.law, "sample"):
        assert made.law.sample((2,)).shape == (2, *made.law.event_shape)
    return found


def _together(made, calls):
    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(lambda start: _called(made, start), range(calls)))


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.usefixtures("often_switched")
def test_threads_find_what_one_thread_finds(name):
    expected = _called(MAKERS[name]("alone ", True), 0)
    for found in _together(MAKERS[name](f"{name} shared ", True), 4 if name in SLOW else CALLS):
        for quantity, tensors in expected.items():
            for wanted, tensor in zip(tensors, found[quantity], strict=True):
                assert (wanted is None) == (tensor is None), quantity
                if wanted is not None:
                    assert_close(tensor, wanted, relative=1e-12, absolute=1e-12)


@pytest.mark.usefixtures("often_switched")
def test_threads_that_follow_a_change_in_place_all_see_it():
    made = MAKERS["log-linear"]("changed ", True)
    for _ in range(5):
        with torch.no_grad():
            made.parameters[0].add_(0.1)
        other = MAKERS["log-linear"]("unchanged ", True)
        with torch.no_grad():
            other.parameters[0].copy_(made.parameters[0])
        (wanted,) = torch.autograd.grad(other.quantities["log_prob"](other.law).sum(), other.parameters)
        for found in _together(made, THREADS):
            assert_close(found["log_prob"][1], wanted, relative=1e-12)


@pytest.mark.usefixtures("often_switched")
def test_control_threads_that_share_graphs_free_them_for_each_other(monkeypatch):
    shared = type("Shared", (), {"__init__": parameter_cache._OwnValues.__init__})
    monkeypatch.setattr(parameter_cache, "_OwnValues", shared)
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        _together(MAKERS["log-linear"]("control ", True), 400)
