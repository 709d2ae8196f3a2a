"""Posterior of the leaf probabilities of a dependency network whose decision graphs are fixed: Dirichlet, exact."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch

from ..budgets import check_cells
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..dependency_network.conditionals import DependencyConditionals, checked_conditionals
from ..dependency_network.learn.network import LearnedNetwork
from ..dependency_network.node_conditionals import LeafConditional
from ..errors import check_positive, check_type, check_whole, other_domain, out_of_range, refused
from ..runs.arguments import checked_seed

_DEFAULT_ALPHA = 1.0  # that of learn_network
_ALPHAS = 1e-300, 1e300  # totals of priors whose draws are numbers


@dataclass(frozen=True, eq=False)
class NetworkPosterior:
    r"""Independent draws of the leaf probabilities of every variable; :func:`pyro_hoim.interop.to_arviz` takes it.

    Attributes:
        conditionals: the network at the posterior means, with the decision graphs that were given.
        concentrations: parameters of the Dirichlet laws, by variable, (num_leaves, cardinality), float64.
        draws: draws by variable, (num_chains, num_draws, num_leaves, cardinality), float64.
        alpha: total of the prior of a leaf.
        seed: of the draws.
    """

    conditionals: DependencyConditionals
    concentrations: Mapping[str, torch.Tensor] = field(repr=False)
    draws: Mapping[str, torch.Tensor] = field(repr=False)
    alpha: float
    seed: int

    is_exact = True
    """Draws are independent and from the posterior itself."""

    @property
    def means(self) -> dict[str, torch.Tensor]:
        """Posterior means by variable, (num_leaves, cardinality); the tables of ``learn_network``."""
        return {name: _mean(value) for name, value in self.concentrations.items()}

    @property
    def variances(self) -> dict[str, torch.Tensor]:
        """Posterior variances by variable, (num_leaves, cardinality)."""
        totals = {name: value.sum(-1, keepdim=True) for name, value in self.concentrations.items()}
        return {name: mean * (1 - mean) / (totals[name] + 1) for name, mean in self.means.items()}

    @cached_property
    def _size(self) -> tuple[int, int]:
        chains, draws = next(iter(self.draws.values())).shape[:2]
        return chains, draws

    def network(self, draw: int) -> DependencyConditionals:
        """The network of one draw, counted over all chains; its stationary law is a draw of that law."""
        check_whole(draw, "draw", 0, self._size[0] * self._size[1] - 1)
        tables = self.get_samples()
        nodes = [node.with_probs(tables[node.variable][draw]) for node in _leaf_nodes(self.conditionals)]
        return DependencyConditionals(nodes)

    def get_samples(self, *, group_by_chain: bool = False) -> dict[str, torch.Tensor]:
        r"""Draws by variable, (num_chains \* num_draws, num_leaves, cardinality), or grouped."""
        return {name: value if group_by_chain else value.flatten(0, 1) for name, value in self.draws.items()}

    def diagnostics(self) -> dict[str, dict[str, Any]]:
        """``is_exact`` of every draw as a statistic, as kernels give it."""
        chains, draws = self._size
        report = {"sample_stats": {"is_exact": [1.0] * draws}, "is_exact": True}
        return {name: {f"chain {i}": value for i in range(chains)} for name, value in report.items()}

    def __repr__(self) -> str:
        chains, draws = self._size
        leaves = sum(len(value) for value in self.concentrations.values())
        return f"NetworkPosterior({chains} x {draws} independent draws, {leaves} leaves, alpha {self.alpha:g})"


def sample_network_posterior(
    network: DependencyConditionals | LearnedNetwork,
    data: DataLike,
    alpha: float | None = None,
    *,
    num_draws: int = 1000,
    num_chains: int = 4,
    seed: int = 0,
) -> NetworkPosterior:
    r"""Draw the leaf probabilities of a network with fixed decision graphs from their posterior; no Markov chain.

    .. math:: \theta_i(\cdot \mid y) \mid x \sim \mathrm{Dirichlet}(\alpha / |X_i| + N_{yx}),
        \qquad i = 1, \dots, d, \quad y \in Y_i

    independently over variables and leaves, with :math:`N_{yx}` the rows of leaf y at level x. The likelihood is that
    of a dependency network, the product of its conditionals (``log_pseudo_prob``): every
    conditional is a regression by itself, and no joint law is claimed. The graphs are taken as known; where they were
    learned from the same rows the draws say nothing of that choice. Rows with weights count by their weight.

    Time and memory grow as draws times leaves times levels.

    Args:
        network: conditionals that are decision graphs with tables, or what
            :func:`~pyro_hoim.dependency_network.learn_network` found; their probabilities are not used.
        data: rows of the same variables. A row without :math:`X_i` is left out for variable i. None is fine: the
            draws are then those of the prior.
        alpha: total of a symmetric Dirichlet prior per leaf, from 1e-300 to 1e300; None is that of a learned
            network where it is positive, else 1, the default of ``learn_network``.
        num_draws: draws per chain.
        num_chains: how many equal parts the draws are divided into.
        seed: seed of the draws; the global generators are left alone.

    Raises:
        InputError: a conditional that is no decision graph, a batch of networks, other variables, numbers out of range,
            or a missing cell of a variable that a graph asks: the posterior is then a mixture over what it may hold.
        InputTypeError: arguments of another type.

    References:
        David Heckerman, Dan Geiger and David Chickering, Learning Bayesian networks: the combination of knowledge and
        statistical data, Machine Learning 20, 1995, for leaves in the place of parent states.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import learn_network
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[40, 10], [10, 40]])
        >>> posterior = sample_network_posterior(learn_network(rows), rows, seed=1)
        >>> posterior.draws["a"].shape, posterior.concentrations["a"].tolist()
        (torch.Size([4, 1000, 2, 2]), [[40.5, 10.5], [10.5, 40.5]])
    """
    check_type(network, DependencyConditionals | LearnedNetwork, "network", "DependencyConditionals or LearnedNetwork")
    conditionals = checked_conditionals(network)
    data = as_observations(data, domain=conditionals.domain)
    # Only decision graphs with tables have Dirichlet posteriors.
    nodes = _leaf_nodes(conditionals)
    if data.domain != conditionals.domain:
        raise other_domain("data", "rows of the variables of the network")
    if not nodes:
        raise refused("network", "it has no variables", code="empty")
    if alpha is None:
        alpha = network.alpha if isinstance(network, LearnedNetwork) and network.alpha > 0 else _DEFAULT_ALPHA
    check_positive(alpha, "alpha")
    if not _ALPHAS[0] <= alpha <= _ALPHAS[1]:
        raise out_of_range("alpha", "a number from 1e-300 to 1e300", alpha)
    # Prior and counts add up; every leaf is drawn by itself.
    shape = check_whole(num_chains, "num_chains"), check_whole(num_draws, "num_draws")
    rng = np.random.default_rng(checked_seed(seed))
    concentrations = {node.variable: _counts(node, data) + alpha / node.probs.shape[-1] for node in nodes}
    width = sum(value.numel() for value in concentrations.values())
    check_cells(shape[0] * shape[1], width, "num_draws", "keep fewer draws")
    draws = {name: torch.from_numpy(_dirichlet(rng, value.numpy(), shape)) for name, value in concentrations.items()}
    means = DependencyConditionals(node.with_probs(_mean(concentrations[node.variable])) for node in nodes)
    return NetworkPosterior(means, concentrations, draws, float(alpha), seed)


def _leaf_nodes(conditionals: DependencyConditionals) -> list[LeafConditional]:
    """The conditionals, all of which are decision graphs with tables."""
    for node in conditionals.nodes:
        if not isinstance(node, LeafConditional):
            problem = (
                f"the conditional of {node.variable!r} is a {type(node).__name__}, whose posterior is not Dirichlet"
            )
            hint = "possible are decision graphs with leaf tables: LeafConditional, or what learn_network finds"
            raise refused("network", problem, hint, code="no-method")
    return [node for node in conditionals.nodes if isinstance(node, LeafConditional)]


def _mean(concentrations: torch.Tensor) -> torch.Tensor:
    return concentrations / concentrations.sum(-1, keepdim=True)


def _counts(node: LeafConditional, data: Observations) -> torch.Tensor:
    """Counts of levels at every leaf (num_leaves, cardinality), float64, of the rows in which the variable is known."""
    column = data.domain.index(node.variable)
    # Rows in which the variable is known, each in the leaf that its parents choose.
    is_kept = (data.codes[:, column] >= 0) & (data.counts > 0)
    codes, weights = data.codes[is_kept], data.counts[is_kept]
    for name in node.reads:
        if bool((codes[:, data.domain.index(name)] < 0).any()):
            problem = f"variable {name!r}, which the graph of {node.variable!r} asks, is missing in some rows"
            raise refused("data", problem, "complete these rows (impute) or leave them out", code="missing-cells")
    size = data.domain.cardinalities[column]
    cell = node.graph.compiled.leaves(codes) * size + codes[:, column]
    totals = torch.zeros(node.graph.num_leaves * size, dtype=torch.float64)
    return totals.index_add_(0, cell.long(), weights.double()).reshape(-1, size)


def _dirichlet(rng: np.random.Generator, concentrations: np.ndarray, shape: tuple[int, int]) -> np.ndarray:
    """Draws (*shape, num_leaves, cardinality), in logs, since gammas of a small shape are below the least double."""
    size = (*shape, *concentrations.shape)
    # A gamma of shape a is one of shape a + 1 times a uniform number to the power of 1 / a.
    log_gamma = np.log(rng.standard_gamma(concentrations + 1, size)) + np.log1p(-rng.random(size)) / concentrations
    log_gamma -= log_gamma.max(-1, keepdims=True)
    weights = np.exp(log_gamma)
    return weights / weights.sum(-1, keepdims=True)
