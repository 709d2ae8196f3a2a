"""Draws from node conditionals, and the log partition function of the independent member."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ...errors import check_type, out_of_reach, refused
from ...runs.arguments import seed_from
from ..energy import GeneralizedRootEnergy
from ..nodes.columns import NodeFamilies
from ..nodes.families import IndicatorFamily, NodeFamily
from ..nodes.log_partition import checked_natural
from ..nodes.user_family import UserFamily

# A generalized root model as arrays for the compiled sampler.

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RootProgram:
    """Terms of a model, from the view of every variable and as a list.

    Attributes:
        codes: number of the family of every variable, (d,).
        maxima: largest values, infinite if there is none, (d,).
        blocks: of categories, by their first indicator: first entry (d + 1,), and the positions of all indicators.
        linear: coefficients of the terms of single variables, (d, k).
        visits: for the terms of several variables, by variable: first entry (d + 1,); per entry the place j - 1 of its
            root, its coefficient, and its first other variable (entries + 1,); the other variables.
        terms: the same terms as a list: places of roots, coefficients, first member (terms + 1,), members.
    """

    codes: Integers
    maxima: Floats
    blocks: tuple[Integers, Integers]
    linear: Floats
    visits: tuple[Integers, Integers, Floats, Integers, Integers]
    terms: tuple[Integers, Floats, Integers, Integers]

    @classmethod
    def of(cls, energy: GeneralizedRootEnergy) -> RootProgram:
        """The program of an energy without a batch."""
        # Terms of single variables are added as they are.
        structure, families = energy.structure, energy.families
        coefficients = energy.coefficients.detach().to("cpu").double().numpy()
        linear = structure.single_natural(energy.psi.detach().to("cpu").double()).numpy()
        # Those of several, key after key, with their members one behind the other.
        keys = [key for key in structure.keys if key[1] > 1]
        members = [structure.rows(key) for key in keys]
        sizes = [len(rows) for rows in members]
        root = np.repeat(np.array([j - 1 for j, _ in keys], dtype=np.int64), sizes)
        length = np.repeat(np.array([num_members for _, num_members in keys], dtype=np.int64), sizes)
        weight = np.concatenate([np.zeros(0), *(coefficients[structure.slices[key]] for key in keys)])
        member = np.concatenate([np.zeros(0, dtype=np.int64), *(rows.reshape(-1) for rows in members)])
        first = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        # Entries: every term once for each of its members, with the other members, sorted by variable.
        length = np.diff(first)
        term = np.repeat(np.arange(len(root)), length)
        order = np.argsort(member, kind="stable")
        start = np.searchsorted(member[order], np.arange(len(structure.domain) + 1)).astype(np.int64)
        entry = term[order]
        widths = length[entry]  # members of the term of every entry
        first_other = np.concatenate([[0], np.cumsum(widths - 1)]).astype(np.int64)
        # All members of the entries' terms in a row; the entry's own variable is left out.
        ends = np.concatenate([[0], np.cumsum(widths)])
        spread = np.repeat(first[entry] - ends[:-1], widths) + np.arange(ends[-1])
        variable = np.repeat(member[order], widths)
        other = member[spread]
        visits = start, root[entry], weight[entry], first_other, other[other != variable]
        codes = np.array([family.code for family in families], dtype=np.int64)
        maxima = np.array(families.largest_values, dtype=np.float64)
        sizes = np.zeros(len(families) + 1, dtype=np.int64)
        for places in families.blocks:
            sizes[places[0] + 1] = len(places)
        leaders = sorted(families.blocks, key=lambda places: int(places[0]))
        blocks = np.cumsum(sizes), np.concatenate([np.zeros(0, dtype=np.int64), *leaders])
        return cls(codes, maxima, blocks, linear, visits, (root, weight, first, member))

    @property
    def laws(self) -> tuple[Any, ...]:
        """What compiled sweeps ask about the families."""
        return self.codes, self.maxima, *self.blocks


def draw_from_nodes(
    family: NodeFamily, natural: torch.Tensor, *, generator: torch.Generator | None = None
) -> torch.Tensor:
    r"""Independent exact draws of single variables, one per vector of natural parameters.

    .. math:: x \sim \exp\Bigl(\sum_j \eta_j T_j(x) + B(x)\Bigr) / Z(\eta)

    Args:
        family: the base family.
        natural: :math:`\eta_1, \dots, \eta_k` (\*batch, k); the result is (\*batch), of its type and device.
        generator: what the seed is drawn from; PyTorch's global generator when None.

    Raises:
        InputError: natural parameters whose law cannot be normalised, or has its mode beyond 2^53.
        InputTypeError: an argument of another type.

    Example:
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> natural = torch.full((10_000, 1), 3.0).log()  # Poisson with mean 3
        >>> draws = draw_from_nodes(PoissonFamily(), natural, generator=torch.Generator().manual_seed(0))
        >>> round(float(draws.mean()), 1), round(float(draws.var()), 1)
        (3.0, 3.0)
    """
    check_type(family, NodeFamily, "family")
    natural = checked_natural(natural)
    from ._draw_kernels import chain_words, small_counts
    from ._kernels import draw_nodes, user_node_draws, workspace

    if isinstance(family, IndicatorFamily):
        problem = f"an indicator of the category {family.category!r} has no law of its own"
        raise out_of_reach("family", problem, "draw from the model", code="no-method")
    # One stream per row.
    order = natural.shape[-1]
    rows = np.ascontiguousarray(natural.detach().cpu().double().reshape(-1, order).numpy())
    words = chain_words(seed_from(generator), len(rows))
    if isinstance(family, UserFamily):
        drawn = user_node_draws(family, rows, words)
    else:
        drawn = np.empty(len(rows))
        draw_nodes(family.code, family.largest_value, rows, small_counts(order), workspace(order, 1), words, drawn)
    # What has no law is named.
    if np.isnan(drawn).any():
        wrong = int(np.isnan(drawn).argmax())
        problem = f"the law of {rows[wrong].tolist()} cannot be normalised, or has its mode beyond 2^53"
        raise refused("natural", problem, code="not-normalizable")
    return torch.from_numpy(drawn).reshape(natural.shape[:-1]).to(natural)


def draw_independent(
    families: NodeFamilies, natural: torch.Tensor, generator: torch.Generator | None = None
) -> torch.Tensor:
    """As :func:`draw_from_nodes`, of all variables: (*batch, d) at natural parameters (*batch, d, k)."""
    drawn = natural.new_empty(natural.shape[:-1])
    for family, places in families.groups:
        where = torch.from_numpy(places)
        if isinstance(family, IndicatorFamily):
            probs = natural[..., where, :].sum(-1).softmax(-1)
            level = torch.multinomial(probs.reshape(-1, len(places)), 1, generator=generator).reshape(probs.shape[:-1])
            drawn[..., where] = torch.nn.functional.one_hot(level, len(places)).to(drawn)
            continue
        drawn[..., where] = draw_from_nodes(family, natural[..., where, :], generator=generator)
    return drawn


def independent_log_partition(energy: GeneralizedRootEnergy) -> torch.Tensor:
    r"""Log partition function of the independent member, :math:`\sum_s A(\eta_s)` over the terms of single variables.

    Exact up to the error of :func:`~pyro_hoim.generalized_root.node_log_partition`; nats (*batch), differentiable.

    Raises:
        InputError: the independent member cannot be normalised.

    Example:
        >>> from pyro_hoim import Domain, RootStructure, Variable
        >>> from pyro_hoim.generalized_root import PoissonFamily
        >>> structure = RootStructure.independent(Domain([Variable(name, kind="count") for name in "ab"]))
        >>> energy = GeneralizedRootEnergy(structure, torch.tensor([2.0, 3.0]).log(), PoissonFamily())
        >>> independent_log_partition(energy)  # the sum of the rates
        tensor(5.)
    """
    check_type(energy, GeneralizedRootEnergy, "energy")
    return energy.families.log_partition(energy.structure.single_natural(energy.psi)).sum(-1)
