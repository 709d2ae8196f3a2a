"""Information geometry of dependency networks: full conditional manifolds, divergence and limit (paper 5)."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray

from ..core.law import Law
from ..core.prediction import beside_figures
from ..data.observations import Observations
from ..errors import InputError, MissingDataError, check_type, other_domain, unexpected, wrong_type
from ..schema import Domain
from .conditionals import DependencyConditionals, update_log_probs
from .node_conditionals import LeafConditional, NodeConditional, TableConditional
from .scan import selection_probs
from .stationary import StationaryLaw, stationary_law

LawLike = Law | Observations | StationaryLaw
Weights = Mapping[str, float] | Sequence[float] | None
Floats = NDArray[Any]


def full_conditionals(p: LawLike) -> DependencyConditionals:
    r"""All full conditionals of a law, :math:`p(x_i \mid x_{-i})` (paper 5, equation 16): the lossless network.

    Plain tables over all other variables. Their manifolds meet in the law, so pseudo-Gibbs sampling is Gibbs sampling
    and settles there. Where the others have probability zero the conditional is uniform. Costs O(cells x variables).

    Observations stand for their empirical law here and below.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.4, 0.1], [0.2, 0.3]])
        >>> full_conditionals(law).node("b").log_probs(torch.tensor([[0, 0], [1, 0]])).exp().round(decimals=3).tolist()
        [[0.8, 0.2], [0.4, 0.6]]
    """
    law = as_law(p, "p")
    nodes: list[NodeConditional] = []
    for i, name in enumerate(law.domain.names):
        table = np.moveaxis(law.probs.numpy(), i, -1)
        # Where the others never occur, any law is a conditional; the uniform one is taken.
        mass = table.sum(-1, keepdims=True)
        with np.errstate(invalid="ignore", divide="ignore"):
            probs = np.where(mass > 0, table / mass, 1.0 / table.shape[-1])
        probs = probs / probs.sum(-1, keepdims=True)
        others = [other for other in law.domain.names if other != name]
        nodes.append(TableConditional(law.domain, name, others, torch.from_numpy(probs)))
    return DependencyConditionals(nodes)


def m_projection(p: LawLike, node: NodeConditional) -> Law:
    r"""The law of a full conditional manifold closest to a law (paper 5, theorems 1 and 2): one update of a node.

    .. math:: p \Pi_m(E(\theta_i)) = \operatorname{argmin}_{q \in E(\theta_i)} KL(p \| q)
        = p(x_{-i}) \, \theta_i(x_i \mid x_{-i})

    Linear in p. E(theta_i), the laws with the node's conditional, is flat in both senses: mixtures and normalised
    geometric means of its members are members. Costs O(cells).

    InputError for a node over another domain, InputTypeError for no conditional of one variable.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> law, other = Law(domain, [[0.5, 0.1], [0.1, 0.3]]), Law(domain, [[0.25, 0.25], [0.25, 0.25]])
        >>> m_projection(law, full_conditionals(other).node("b")).probs.tolist()  # the margin of a is kept
        [[0.3, 0.3], [0.2, 0.2]]
    """
    law = as_law(p, "p")
    _check_node(node, law)
    i = law.domain.index(node.variable)
    mass = law.probs.sum(i, keepdim=True)
    where = torch.from_numpy(np.indices(mass.shape).reshape(len(law.domain), -1).T.copy())
    probs = _log_probs(node, where, is_update=True).exp()
    rest = [n for j, n in enumerate(law.domain.cardinalities) if j != i]
    return Law(law.domain, mass * probs.reshape(*rest, probs.shape[-1]).movedim(-1, i))


def node_divergence(p: LawLike, node: NodeConditional) -> float:
    r"""Divergence of a law from a node's full conditional manifold, in nats.

    .. math:: KL(p \| E(\theta_i)) = \sum_x p(x) \log \frac{p(x_i \mid x_{-i})}{\theta_i(x_i \mid x_{-i})}

    Infinite where a state of positive probability has the conditional probability zero. Observations are not put in a
    table: the cost is O(distinct rows), whatever the number of joint states.

    InputError for a node over another domain or no observations, MissingDataError for missing cells.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> law, other = Law(domain, [[0.4, 0.1], [0.2, 0.3]]), Law(domain, [[0.25, 0.25], [0.25, 0.25]])
        >>> round(node_divergence(law, full_conditionals(other).node("b")), 4)
        0.1064
    """
    codes, mass, domain = _cells(p)
    _check_node(node, domain)
    return _node_divergence(codes, mass, node)


def full_conditional_divergence(p: LawLike, q: LawLike, weights: Weights = None) -> float:
    r"""Full conditional divergence of two laws (paper 5, equations 6, 7 and 9): the pseudo-likelihood's kind of KL.

    .. math:: FC(p \| q) = \sum_i c_i \sum_x p(x) \log \frac{p(x_i \mid x_{-i})}{q(x_i \mid x_{-i})} \le KL(p \| q)

    The weighted mean of the divergences of p from the manifolds of q's conditionals. It is the Bregman divergence of
    :math:`f(p) = -\sum_i c_i H(X_i \mid X_{-i})`, and minimising it over q maximises the pseudo-likelihood.
    Infinite, like KL, where q has probability zero and p has not; such cells of q have no conditional that could be
    compared. Zero for laws with the same conditionals, which for positive laws are the same law.
    Costs O(cells x variables).

    Args:
        p: the first law.
        q: the second law, over the same domain.
        weights: c_i by name, or in schema order; positive, summing to 1; default all equal.

    Example:
        >>> from pyro_hoim import Domain
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 2})
        >>> law, other = Law(domain, [[0.4, 0.1], [0.2, 0.3]]), Law(domain, [[0.25, 0.25], [0.25, 0.25]])
        >>> round(full_conditional_divergence(law, other), 4)
        0.0964
    """
    first, second = as_law(p, "p"), as_law(q, "q")
    if second.domain != first.domain:
        raise other_domain("q", "a law over the variables of p", received="one over other variables")
    c = selection_probs(first.domain, first.domain.names, weights, "weights")
    a, b = first.probs.numpy(), second.probs.numpy()
    support = a > 0
    if bool((b[support] == 0).any()):
        return math.inf
    # What every variable contributes at the states that the first law holds.
    terms = [w * (_log_conditional(a, i)[support] - _log_conditional(b, i)[support]) for i, w in enumerate(c)]
    return max(0.0, math.fsum((a[support] * np.sum(terms, 0)).tolist())) if len(c) else 0.0


@dataclass(frozen=True)
class FCLimit:
    r"""Upper bound of the full conditional divergence of a law from where a dependency network settles.

    Attributes:
        value: :math:`\sum_i c_i \, KL(p \| E(\theta_i))` in nats, infinite where a conditional excludes a state of p.
        nodes: :math:`KL(p \| E(\theta_i))` by variable: what each conditional contributes, before its weight.
        weights: c_i by variable.
    """

    value: float
    nodes: Mapping[str, float] = field(repr=False)
    weights: Mapping[str, float] = field(repr=False)

    def to_pandas(self) -> pd.DataFrame:
        """One row per variable: ``divergence`` (nats), ``weight``, and ``share`` of the value."""
        divergence = np.array(list(self.nodes.values()), dtype=np.float64)
        weight = np.array(list(self.weights.values()), dtype=np.float64)
        with np.errstate(invalid="ignore", divide="ignore"):
            share = divergence * weight / self.value
        columns = {"divergence": divergence, "weight": weight, "share": share}
        return pd.DataFrame(columns, index=pd.Index(list(self.nodes), name="variable"))


def fc_limit(p: LawLike, conditionals: DependencyConditionals, weights: Weights = None) -> FCLimit:
    r"""FC-limit (paper 5, theorem 3): how far from a law a dependency network can settle at most, in nats.

    .. math:: FC_c(p \| \pi_c) \le FC_{\lim}(p) = \sum_i c_i \, KL(p \| E(\theta_i))

    Here :math:`\pi_c` is the stationary law of the random scan with the same selection probabilities c. The bound
    needs no stationary law and can be computed for any number of variables. It does not hold for the sequential scan,
    nor with other weights than those of the scan. It needs an ergodic network: where zero probabilities let the chain
    leave a state of p for ever (:func:`~pyro_hoim.dependency_network.check_ergodic` finds them), the divergence is
    infinite and the limit may be finite. With p the empirical law of the training rows it is what learning minimises;
    with p the law of new rows it says how well the network carries over. Observations are not put in a table: the cost
    is O(distinct rows x variables).

    Args:
        p: the law.
        conditionals: the dependency network.
        weights: c_i by name, or in schema order; positive, summing to 1; default all equal.

    Raises:
        InputError: another domain, weights out of range, or no observations; MissingDataError: missing cells.

    Example:
        >>> from pyro_hoim import Domain
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.5, 0.0], [0.0, 0.5]])
        >>> nodes = [TableConditional(law.domain, n, [], torch.tensor([0.5, 0.5]).double()) for n in "ab"]
        >>> round(fc_limit(law, DependencyConditionals(nodes)).value, 6)
        0.693147
    """
    check_type(conditionals, DependencyConditionals, "conditionals")
    codes, mass, law = _cells(p)
    for node in conditionals.nodes:
        _check_node(node, law)
    names = conditionals.domain.names
    c = selection_probs(conditionals.domain, names, weights, "weights").tolist()
    divergences = [_node_divergence(codes, mass, node) for node in conditionals.nodes]
    value = math.fsum(w * d for w, d in zip(c, divergences, strict=True))
    return FCLimit(value, dict(zip(names, divergences, strict=True)), dict(zip(names, c, strict=True)))


def as_law(p: LawLike, argument: str) -> Law:
    """The law itself, the empirical law of observations, or the table of a stationary law."""
    if isinstance(p, Law):
        return p
    if isinstance(p, Observations):
        return Law.from_observations(p)
    if isinstance(p, StationaryLaw):
        return Law(p.domain, p.probs)
    raise wrong_type(argument, "a Law, Observations or a StationaryLaw", p)


def _cells(p: LawLike) -> tuple[torch.Tensor, Floats, Law | Observations]:
    """States (m, d) of positive probability with their probabilities (m,), and where they come from."""
    if isinstance(p, Observations):
        if p.has_missing:
            received = f"{p.num_missing_cells} missing cells"
            hint = "drop_missing or missing_as_level first"
            raise MissingDataError(argument="p", expected="complete observations", received=received, hint=hint)
        if not p.total_count > 0:
            raise unexpected("p", "a positive total count", received="no observations", code="empty")
        rows = p.unique()
        counts = rows.counts.numpy()
        return rows.codes, counts / counts.sum(), p
    law = as_law(p, "p")
    codes = law.probs.nonzero()
    return codes, law.probs[tuple(codes.T)].numpy(), law


def _node_divergence(codes: torch.Tensor, mass: Floats, node: NodeConditional) -> float:
    """KL(p || E(theta_i)) of a law on distinct states (m, d) with probabilities (m,)."""
    i = node.domain.index(node.variable)
    log_probs = _log_probs(node, codes).numpy()[np.arange(len(codes)), codes[:, i].numpy()]
    if log_probs.min() == -math.inf:
        return math.inf
    # States that differ in the variable alone share the probability of the others.
    others = codes.numpy().copy()
    others[:, i] = 0
    if node.domain.num_states < 2**62:
        others = np.ravel_multi_index(tuple(others.T), node.domain.cardinalities)
    else:  # rows as one piece each, which compare much faster than their numbers
        others = np.ascontiguousarray(others).view(np.dtype((np.void, others.itemsize * others.shape[1])))[:, 0]
    _, fibre = np.unique(others, return_inverse=True)
    total = np.bincount(fibre.ravel(), weights=mass)[fibre.ravel()]
    return max(0.0, math.fsum((mass * (np.log(mass) - np.log(total) - log_probs)).tolist()))


def _log_probs(node: NodeConditional, codes: torch.Tensor, *, is_update: bool = False) -> torch.Tensor:
    """Log-probabilities of a node, or of its update, in float64 on the CPU; of other precisions normalised anew."""
    if isinstance(node, (LeafConditional, TableConditional)) and node.probs.dtype != torch.float64:
        node = node.to(device="cpu", dtype=torch.float64)
    found = update_log_probs(node, codes) if is_update else node.log_probs(codes)
    log_probs = found.detach().to(device="cpu", dtype=torch.float64)
    # Where no level is possible, there is nothing to normalise.
    return log_probs - log_probs.logsumexp(-1, keepdim=True).clamp(min=torch.finfo(torch.float64).min)


def _log_conditional(table: Floats, i: int) -> Floats:
    """Log of p(x_i | x_-i) of a joint table; minus infinity or NaN at cells of probability zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(table) - np.log(table.sum(i, keepdims=True))


def _check_node(node: NodeConditional, p: Law | Observations) -> None:
    check_type(node, NodeConditional, "node", "the conditional of one variable")
    if batch := tuple(getattr(node, "batch_shape", ())):
        expected = f"one conditional of {node.variable!r}"
        raise unexpected("node", expected, received=f"a batch of shape {batch}", code="wrong-shape")
    if node.domain != p.domain:
        raise other_domain("node", f"a conditional of {node.variable!r} over the variables of the law")


# Accuracy of conditional pseudo-Gibbs sampling: what a dependency network says about some variables given others.


@dataclass(frozen=True)
class ConditionalInferenceError:
    r"""Errors of conditional inference at every state of the given variables.

    Attributes:
        domain: the given variables, in schema order.
        probs: p(x_C), how common a state of the given variables is (\*cardinalities).
        limits: FC-limit of the law p(. | x_C) and the clamped network (\*cardinalities), nats; NaN where p(x_C) = 0.
        node_limits: the same for each of the other variables by name, before its weight.
        fc: full conditional divergence of p(. | x_C) from the law at which the clamped network settles, by random scan
            with the same weights, at most ``limits`` if the clamped network is ergodic.
        kl: Kullback-Leibler divergence of the same laws, at least ``fc``.
    """

    domain: Domain
    probs: torch.Tensor = field(repr=False)
    limits: torch.Tensor = field(repr=False)
    node_limits: Mapping[str, torch.Tensor] = field(repr=False)
    fc: torch.Tensor = field(repr=False)
    kl: torch.Tensor = field(repr=False)

    @property
    def node_means(self) -> dict[str, float]:
        """Mean of ``node_limits`` over p(x_C) by variable: KL(p || E(theta_i)), whatever the given variables."""
        is_positive = self.probs > 0
        mass = self.probs[is_positive]
        return {name: math.fsum((mass * limit[is_positive]).tolist()) for name, limit in self.node_limits.items()}

    def to_pandas(self) -> pd.DataFrame:
        """One row per state of the given variables that is possible, the most common first.

        Columns: the labels of each given variable, ``prob``, ``limit``, ``fc`` and ``kl``. A variable with one of these
        names is called ``name (column)``.
        """
        where = self.probs.nonzero()
        columns: dict[str, Any] = {
            v.name: [v.labels[int(code)] for code in where[:, i]] for i, v in enumerate(self.domain)
        }
        tables = {"prob": self.probs, "limit": self.limits, "fc": self.fc, "kl": self.kl}
        table = beside_figures(columns, {name: values[tuple(where.T)].numpy() for name, values in tables.items()})
        return table.sort_values("prob", ascending=False, kind="stable", ignore_index=True)


def conditional_inference_error(
    p: LawLike, conditionals: DependencyConditionals, given: Sequence[str], weights: Weights = None
) -> ConditionalInferenceError:
    r"""How well conditional pseudo-Gibbs sampling answers for a law, at every state of the given variables.

    .. math:: KL(p \| E(\theta_i)) = \sum_{x_C} p(x_C) \,
        KL\bigl(p(X_{\bar C} \mid x_C) \,\|\, E(\theta_i(X_i \mid X_B; x_C))\bigr), \qquad B = \bar C - \{i\}

    So a small FC-limit makes the answers good on the average over x_C, and promises little for a rare x_C. Costs
    O(cells x variables) and one stationary law of the other variables for each state x_C.

    Args:
        p: the law; observations stand for their empirical law.
        conditionals: the dependency network.
        given: names of the clamped variables C; at least one variable is left.
        weights: as of :func:`fc_limit`; those of the given variables are left out and the others divided by their sum.

    Raises:
        InputError: another domain, no variable left, weights out of range, or a clamped network with several closed
            sets of states; the state of the given variables is named.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import full_conditionals
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.4, 0.1], [0.2, 0.3]])
        >>> flat = Law(law.domain, [[0.25, 0.25], [0.25, 0.25]])
        >>> conditional_inference_error(law, full_conditionals(flat), ["a"]).to_pandas().round(4)
           a  prob   limit      fc      kl
        0  0   0.5  0.1927  0.1927  0.1927
        1  1   0.5  0.0201  0.0201  0.0201
    """
    check_type(conditionals, DependencyConditionals, "conditionals")
    law = as_law(p, "p")
    if conditionals.domain != law.domain:
        raise other_domain("conditionals", "a network over the variables of p", received="one over other variables")
    names = (given,) if isinstance(given, str) else tuple(given)
    positions = sorted(law.domain.indices(names))
    # The given variables become the leading axes of the law, the free ones the rest.
    clamped = law.domain.project(names)
    free = law.domain.project(name for name in law.domain.names if name not in clamped)
    if not len(free):
        raise unexpected("given", "at least one variable to be left", received="all of them", code="empty")
    c = selection_probs(law.domain, free.names, weights, "weights").tolist()
    table = law.probs.movedim(positions, list(range(len(positions))))
    probs = table.sum(list(range(len(positions), len(law.domain))))
    # States of the given variables that never occur keep NaN.
    limits = torch.full_like(probs, math.nan)
    node_limits = {name: torch.full_like(probs, math.nan) for name in free.names}
    fc, kl = limits.clone(), limits.clone()
    for state in itertools.product(*(range(n) for n in clamped.cardinalities)):
        if not probs[state] > 0:
            continue
        # What the law and the clamped network say of the free variables at this state.
        part = Law(free, table[state] / probs[state])
        network = conditionals.condition(dict(zip(clamped.names, state, strict=True)))
        limit = fc_limit(part, network, c)
        limits[state] = limit.value
        for name, value in limit.nodes.items():
            node_limits[name][state] = value
        # Where the clamped network settles, and how far that is from the law.
        try:
            settled = Law(free, stationary_law(network, scan=dict(zip(free.names, c, strict=True))).probs)
        except InputError as error:
            labels = ", ".join(f"{v.name}={v.labels[code]}" for v, code in zip(clamped, state, strict=True))
            raise InputError(f"{error} (given {labels or 'nothing'})", code=error.code) from None
        fc[state] = full_conditional_divergence(part, settled, c)
        kl[state] = part.divergence(settled)
    return ConditionalInferenceError(clamped, probs, limits, node_limits, fc, kl)
