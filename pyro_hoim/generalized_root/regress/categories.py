r"""Categories in root regressions: contrasts of their levels in place of indicators.

The indicators of a category with shares p of the rows are replaced by the functions of its level that have mean 0,
variance 1 and no correlation in the rows. They span all functions of the level but the constants, so that one
redundant parameter of every group is gone; and the Euclidean norm of the coefficients of a group is the standard
deviation of what it adds to a natural parameter, whatever basis of contrasts is taken and whatever level is a
reference. Coefficients c of indicators and :math:`\gamma` of contrasts U (K, q) are

.. math:: c = U \gamma, \quad \gamma = U^\top \operatorname{diag}(p)\, c, \quad U^\top \operatorname{diag}(p)\, U = I,
    \quad p^\top U = 0, \quad \lVert\gamma\rVert^2 = \sum_k p_k c_k^2.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Category:
    """One category in some rows.

    Attributes:
        name: of the category.
        places: of its indicators among the variables (K,).
        shares: of its levels in the rows learned from (K,); a level that was not seen there has none.
        codes: level of every row (n,).
    """

    name: str
    places: Integers
    shares: Floats
    codes: Integers

    @cached_property
    def contrasts(self) -> Floats:
        """Values of the contrasts (K, q), one fewer than levels that were seen; 0 for a level that was not seen."""
        seen = np.flatnonzero(self.shares > 0)
        table = np.zeros((len(self.shares), max(0, len(seen) - 1)))
        if len(seen) < 2:
            return table
        # The reflection that takes the last unit vector to the roots of the shares: its other columns are orthogonal.
        root = np.sqrt(self.shares[seen] / self.shares[seen].sum())
        normal = root.copy()
        normal[-1] += 1.0
        reflection = np.eye(len(seen)) - np.outer(normal, normal) * (2.0 / (normal @ normal))
        table[seen] = reflection[:, :-1] / root[:, None]
        return table

    @cached_property
    def weighted(self) -> Floats:
        """What takes coefficients of indicators to those of contrasts, (q, K)."""
        return self.contrasts.T * self.shares

    @property
    def num_contrasts(self) -> int:
        """How many contrasts there are."""
        return self.contrasts.shape[1]

    @property
    def columns(self) -> Integers:
        """The places of the variables that hold its contrasts in the rows (q,)."""
        return self.places[: self.num_contrasts]

    @cached_property
    def values(self) -> Floats:
        """Contrasts of all rows (n, q)."""
        return self.contrasts[self.codes]
