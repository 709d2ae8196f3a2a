"""Which sampler is recommended where, and whether predicted costs stand in the order that was measured."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pyro.distributions as dist
import pytest
import torch

from pyro_hoim.datasets import load_table
from pyro_hoim.errors import InputTypeError, IntractableError
from pyro_hoim.inference import recommend_sampler
from pyro_hoim.inference.recommend import _costs, _Task
from pyro_hoim.log_linear import AnnealedImportance, Auto, DiaconisYlvisaker
from pyro_hoim.schema import Domain
from pyro_hoim.structure import InteractionHypergraph
from pyro_hoim.testing import raises

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "benchmarks.md").read_text(encoding="utf-8")
TITLE = "## Posteriors of theta without log Z, with Langevin dynamics, pseudo-posteriors and a grid"
CZECH = {
    "exchange, autoregressive": "exchange",
    "exchange, 3 bridges": "bridged",
    "noisy, 4 data sets": "noisy",
    "Langevin, exact gradients": "langevin",
    "NUTS, exact log Z": "nuts",
    "pseudo, calibrated": "pseudo",
}
ISING = {
    "exchange, autoregressive": "exchange",
    "noisy, 2 data sets": "noisy",
    "Langevin, 64 kept chains": "langevin",
    "pseudo, calibrated": "pseudo",
}


def pairs(num_variables: int, levels: int = 2) -> InteractionHypergraph:
    return InteractionHypergraph.from_order(Domain.from_cardinalities([levels] * num_variables), 2)


def chain(num_variables: int) -> InteractionHypergraph:
    names = [f"v{i}" for i in range(num_variables)]
    return InteractionHypergraph(
        Domain.from_cardinalities(dict.fromkeys(names, 2)), list(pairwise(names)), closure=True
    )


def grid(size: int) -> InteractionHypergraph:
    names = {(i, j): f"v{i}_{j}" for i in range(size) for j in range(size)}
    edges = [(name, names[i, j + 1]) for (i, j), name in names.items() if j + 1 < size]
    edges += [(name, names[i + 1, j]) for (i, j), name in names.items() if i + 1 < size]
    return InteractionHypergraph(Domain.from_cardinalities(dict.fromkeys(names.values(), 2)), edges, closure=True)


def czech_pairs() -> InteractionHypergraph:
    return InteractionHypergraph.from_order(load_table("czech_autoworkers").domain, 2)


def measured(title: str, names: Mapping[str, str]) -> dict[str, float]:
    """Effective draws per second by method, of one table of the benchmark page."""
    table = PAGE.split(TITLE)[1].split("\n## ")[0].split(title)[1].split("\n\n")[1]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    return {names[row[0]]: float(row[4]) for row in rows if row[0] in names}


def is_in_order(costs: Mapping[str, float], speeds: Mapping[str, float]) -> bool:
    """Whether of any two methods of clearly different speed the faster one has the lower cost."""
    return all(costs[a] < costs[b] for a in speeds for b in speeds if speeds[a] > 1.5 * speeds[b])


def task(hypergraph: InteractionHypergraph, num_rows: int) -> _Task:
    lookups = AnnealedImportance(num_chains=1, num_temperatures=1).plan(hypergraph).flops
    states, exact = hypergraph.domain.num_states, Auto().plan(hypergraph)
    return _Task(hypergraph.num_parameters, num_rows, states, int(lookups), exact, is_normal=True)


@pytest.mark.parametrize(
    ("title", "names", "sizes"),
    [
        ("Czech pairs", CZECH, lambda: task(czech_pairs(), 1841)),
        ("Ising, 32 x 32", ISING, lambda: replace(task(grid(32), 20), num_parameters=2)),  # one field, one coupling
    ],
    ids=["czech", "ising"],
)
def test_costs_are_ordered_as_measured(title: str, names: Mapping[str, str], sizes: Callable[[], _Task]) -> None:
    """The control has two methods in each other's place."""
    speeds, (costs, _) = measured(title, names), _costs(sizes())
    assert set(speeds) == set(names.values())
    assert is_in_order(costs, speeds)
    fastest, slowest = max(speeds, key=speeds.__getitem__), min(speeds, key=speeds.__getitem__)
    assert not is_in_order({**costs, fastest: costs[slowest], slowest: costs[fastest]}, speeds)
    if title == "Czech pairs":  # on the grid auxiliary data and kept chains were fewer than the defaults
        for name, speed in speeds.items():
            assert 1 / 3 < costs[name] * speed / 1000 < 3, name


@pytest.mark.parametrize(
    ("hypergraph", "num_rows", "method", "is_exact"),
    [
        (pairs(6), 1841, "exchange", True),  # few cells and parameters: tables are drawn in microseconds
        (chain(60), 5000, "nuts", True),  # log Z is cheap and tables are not
        (pairs(16), 5000, "nuts", True),
        (grid(8), 1000, "nuts", True),
        (pairs(40), 5000, "pseudo", False),  # beyond elimination, more rows than parameters
        (pairs(40), 300, "langevin", False),  # and fewer
        (grid(32), 20000, "langevin", False),  # more parameters than dense methods take
        (pairs(12, 4), 2000, "pseudo", False),  # within the budget of cells, but hours of processor time
    ],
)
def test_each_regime_has_its_method(
    hypergraph: InteractionHypergraph, num_rows: int, method: str, is_exact: bool
) -> None:
    found = recommend_sampler(hypergraph, num_rows)
    assert (found.method, found.is_exact) == (method, is_exact), found
    assert found.cost == found.costs[found.method]
    assert list(found.costs.values()) == sorted(found.costs.values())
    assert not set(found.costs) & set(found.refused)
    if is_exact:
        exact = [cost for name, cost in found.costs.items() if name in ("nuts", "exchange", "bridged")]
        assert found.cost == min(exact)
    else:
        assert found.cost == min(found.costs.values())
        assert "no exact method is within reach" in found.reason
    assert ("preconditioner='none'" in found.reason) is (hypergraph.num_parameters > 2000)


def test_priors_decide_too() -> None:
    decomposable, cycle = chain(5), pairs(5)
    found = recommend_sampler(decomposable, 100, DiaconisYlvisaker.uniform(decomposable, 1.0))
    assert (found.method, found.is_exact) == ("conjugate", True)
    found = recommend_sampler(cycle, 100, DiaconisYlvisaker.uniform(cycle, 1.0))
    assert (found.method, set(found.costs)) == ("nuts", {"nuts"})
    assert "log Z" in found.refused["exchange"]
    laplace = dist.Laplace(torch.zeros(820, dtype=torch.float64), 1.0).to_event(1)
    found = recommend_sampler(pairs(40), 5000, laplace)
    assert found.method == "langevin" and "normal" in found.refused["pseudo"]


def test_costs_rise_with_what_they_are_paid_for() -> None:
    few, many = (recommend_sampler(pairs(40), n).costs for n in (1000, 100_000))
    assert all(many[name] > few[name] for name in few)
    small, large = (recommend_sampler(pairs(d), 1000).costs["nuts"] for d in (10, 18))
    assert large > small
    assert all(math.isfinite(cost) and cost > 0 for cost in recommend_sampler(pairs(3), 0).costs.values())


def test_bad_input() -> None:
    with raises("out-of-range", "num_rows"):
        recommend_sampler(pairs(3), -1)
    with pytest.raises(InputTypeError):
        recommend_sampler(pairs(3).domain, 10)  # type: ignore[arg-type]
    with pytest.raises(InputTypeError):
        recommend_sampler(pairs(3), 10, "wide")
    with raises("out-of-range", "scale"):
        recommend_sampler(pairs(3), 10, -1.0)
    with raises("empty", "hypergraph"):
        recommend_sampler(InteractionHypergraph.from_order(Domain.from_cardinalities([1]), 1), 10)
    large = pairs(40)
    with pytest.raises(IntractableError, match="take a normal prior"):
        recommend_sampler(large, 10, DiaconisYlvisaker.uniform(large, 1.0))
