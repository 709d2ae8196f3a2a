"""A generalized root model as arrays for the compiled sampler. Private to :mod:`pyro_hoim.generalized_root.chains`."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..energy import GeneralizedRootEnergy

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RootProgram:
    """Terms of a model, from the view of every variable and as a list.

    Attributes:
        code: number of the family.
        maximum: largest value, infinite if there is none.
        linear: coefficients of the terms of single variables, (d, k).
        visits: for the terms of several variables, by variable: first entry (d + 1,); per entry the place j - 1 of its
            root, its coefficient, and its first other variable (entries + 1,); the other variables.
        terms: the same terms as a list: places of roots, coefficients, first member (terms + 1,), members.
    """

    code: int
    maximum: float
    linear: Floats
    visits: tuple[Integers, Integers, Floats, Integers, Integers]
    terms: tuple[Integers, Floats, Integers, Integers]

    @classmethod
    def of(cls, energy: GeneralizedRootEnergy) -> RootProgram:
        """The program of an energy without a batch."""
        structure, family = energy.structure, energy.family
        coefficients = energy.coefficients.detach().to("cpu").double().numpy()
        linear = structure.single_natural(energy.psi.detach().to("cpu").double()).numpy()
        keys = [key for key in structure.keys if key[1] > 1]
        members = [structure.positions(key).numpy() for key in keys]
        sizes = [len(rows) for rows in members]
        root = np.repeat(np.array([j - 1 for j, _ in keys], dtype=np.int64), sizes)
        length = np.repeat(np.array([num_members for _, num_members in keys], dtype=np.int64), sizes)
        weight = np.concatenate([np.zeros(0), *(coefficients[structure.slices[key]] for key in keys)])
        member = np.concatenate([np.zeros(0, dtype=np.int64), *(rows.reshape(-1) for rows in members)])
        first = np.concatenate([[0], np.cumsum(length)]).astype(np.int64)
        visits = _by_variable(len(structure.domain), root, weight, first, member)
        return cls(family.code, family.largest_value, linear, visits, (root, weight, first, member))


def _by_variable(
    size: int, root: Integers, weight: Floats, first: Integers, member: Integers
) -> tuple[Integers, Integers, Floats, Integers, Integers]:
    """Every term once for each of its members, with the other members, sorted by variable."""
    length = np.diff(first)
    term = np.repeat(np.arange(len(root)), length)
    order = np.argsort(member, kind="stable")
    start = np.searchsorted(member[order], np.arange(size + 1)).astype(np.int64)
    entry = term[order]
    widths = length[entry]  # members of the term of every entry
    first_other = np.concatenate([[0], np.cumsum(widths - 1)]).astype(np.int64)
    # All members of the entries' terms in a row; the entry's own variable is left out.
    spread = np.repeat(first[entry] - np.concatenate([[0], np.cumsum(widths)[:-1]]), widths) + np.arange(widths.sum())
    own = np.repeat(member[order], widths)
    other = member[spread]
    return start, root[entry], weight[entry], first_other, other[other != own]
