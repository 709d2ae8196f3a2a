"""Accuracy of conditional pseudo-Gibbs sampling: what a dependency network says about some variables given others."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
import torch

from ...core.law import Law
from ...core.tables import beside_figures
from ...errors import InputError, check_type, other_domain, unexpected
from ...schema import Domain
from ..conditionals import DependencyConditionals
from ..scan import selection_probs
from ..stationary.laws import stationary_law
from .full_conditional import LawLike, Weights, as_law, fc_limit, full_conditional_divergence

__all__ = ["ConditionalInferenceError", "conditional_inference_error"]


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

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.dependency_network import full_conditionals
        >>> law = Law(Domain.from_cardinalities({"a": 2, "b": 2}), [[0.4, 0.1], [0.2, 0.3]])
        >>> found = conditional_inference_error(law, full_conditionals(law), ["a"])
        >>> found.probs.round(decimals=4).tolist(), float(found.kl.abs().max()) < 1e-12  # no error
        ([0.5, 0.5], True)
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
    clamped = law.domain.project(names)
    free = law.domain.project(name for name in law.domain.names if name not in clamped)
    if not len(free):
        raise unexpected("given", "at least one variable to be left", received="all of them", code="empty")
    c = selection_probs(law.domain, free.names, weights, "weights").tolist()
    table = law.probs.movedim(positions, list(range(len(positions))))
    probs = table.sum(list(range(len(positions), len(law.domain))))
    limits = torch.full_like(probs, math.nan)
    node_limits = {name: torch.full_like(probs, math.nan) for name in free.names}
    fc, kl = limits.clone(), limits.clone()
    for state in itertools.product(*(range(n) for n in clamped.cardinalities)):
        if not probs[state] > 0:
            continue
        part = Law(free, table[state] / probs[state])
        network = conditionals.condition(dict(zip(clamped.names, state, strict=True)))
        found = fc_limit(part, network, c)
        limits[state] = found.value
        for name, value in found.nodes.items():
            node_limits[name][state] = value
        try:
            settled = Law(free, stationary_law(network, scan=dict(zip(free.names, c, strict=True))).probs)
        except InputError as error:
            labels = ", ".join(f"{v.name}={v.labels[code]}" for v, code in zip(clamped, state, strict=True))
            raise InputError(f"{error} (given {labels or 'nothing'})", code=error.code) from None
        fc[state] = full_conditional_divergence(part, settled, c)
        kl[state] = part.divergence(settled)
    return ConditionalInferenceError(clamped, probs, limits, node_limits, fc, kl)
