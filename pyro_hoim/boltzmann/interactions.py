"""Interactions of every order that hidden units bring among the visible variables, in corner coding."""

from __future__ import annotations

import itertools
import math

import torch

from ..errors import check_type, check_whole, out_of_reach, size_text, unexpected
from .law import BoltzmannMachine

__all__ = ["MAX_INTERACTIONS", "effective_interactions", "strongest"]

MAX_INTERACTIONS = 2**18
"""Most sets of variables that are looked at."""


@torch.no_grad()
def effective_interactions(law: BoltzmannMachine, order: int = 2) -> dict[tuple[str, ...], float]:
    r"""Corner interactions of the visible variables up to an order, by Moebius inversion of the free energy.

    .. math:: \theta_S = -\sum_{T \subseteq S} (-1)^{|S| - |T|} F(1_T), \qquad
        \log p(v) = -\log Z - F(0) + \sum_{S \ne \emptyset} \theta_S \prod_{i \in S} v_i

    where :math:`1_T` has ones in T alone. The number of S fixes the cost: n^K free energies, no log Z. They are exact
    and, unlike the weights, do not depend on the order of the hidden units. A value is about the level 0 of the other
    variables, as every corner interaction is.

    Args:
        law: one machine.
        order: largest number of variables K.

    Returns:
        The value of every set, in nats, by size, then by position.

    Raises:
        InputError: a batch of machines, or an order outside 1 to n.
        IntractableError: more than 2^18 sets.

    References:
        Paper 4, equations (4) and (5).

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, structure.theta_of({("a", "h1"): 2.0, ("b", "h1"): 2.0}))
        >>> {names: round(value, 3) for names, value in effective_interactions(law, 2).items()}
        {('a',): 1.434, ('b',): 1.434, ('a', 'b'): 0.457}
    """
    check_type(law, BoltzmannMachine, "law")
    if law.batch_shape:
        received = f"a batch of shape {tuple(law.batch_shape)}"
        raise unexpected("law", "one machine", received=received, code="wrong-shape")
    names, n = law.domain.names, len(law.domain)
    check_whole(order, "order", 1, n)
    total = sum(math.comb(n, k) for k in range(1, order + 1))
    if total > MAX_INTERACTIONS:
        sets = size_text(total, "sets of variables")
        raise out_of_reach("order", f"{sets}, the limit is {MAX_INTERACTIONS}", "ask for a smaller order")
    model = law.energy_model.to(dtype=torch.float64)
    interactions: dict[tuple[int, ...], float] = {(): -float(model.energy(torch.zeros(n, device=model.device)))}
    for size in range(1, order + 1):
        sets = list(itertools.combinations(range(n), size))
        states = torch.zeros(len(sets), n, device=model.device)
        states.scatter_(1, torch.tensor(sets, device=model.device), 1.0)
        scores = [value for part in states.split(4096) for value in (-model.energy(part, validate=False)).tolist()]
        for chosen, score in zip(sets, scores, strict=True):
            below = (interactions[part] for k in range(size) for part in itertools.combinations(chosen, k))
            interactions[chosen] = score - math.fsum(below)
    return {tuple(names[i] for i in chosen): value for chosen, value in interactions.items() if chosen}


_SETS = 2**16  # of which interactions are shown
_LARGEST = 3  # variables of an interaction where not all sets are looked at


def strongest(law: BoltzmannMachine) -> tuple[int, list[tuple[tuple[str, ...], float]]]:
    """The largest order within reach, and interactions of two and more columns up to it, strongest first."""
    n, order, total = len(law.domain), 0, 0
    while order < n and (total := total + math.comb(n, order + 1)) <= _SETS and (order < _LARGEST or 2**n <= _SETS):
        order += 1
    if order < 2:
        return order, []
    found = effective_interactions(law, order)
    return order, sorted(((e, v) for e, v in found.items() if len(e) > 1), key=lambda pair: -abs(pair[1]))
