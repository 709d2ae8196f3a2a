"""Synthetic rows drawn from a fitted model, and how they compare with real ones."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pandas as pd
import torch

from ..core.rows import check_count, check_rows
from ..data.observations import Observations
from ..errors import IntractableError, check_whole, other_domain, unexpected
from ..runs.arguments import checked_seed
from .annealed.importance import AnnealedImportance
from .auto import Auto
from .energy import LogLinearEnergy
from .given import check_energy

__all__ = ["SyntheticQuality", "expected_variation", "synthesise", "synthetic_quality"]


def synthesise(
    model: LogLinearEnergy,
    num_rows: int,
    seed: int = 0,
    *,
    method: Literal["auto", "exact", "gibbs"] = "auto",
    burn_in: int = AnnealedImportance.burn_in,
) -> Observations:
    """Independent rows of a model.

    Exact draws where a backend accepts the model; otherwise every row is the last state of a Gibbs chain of its own,
    led to the model through 100 temperatures and then burnt in. Use ``to_pandas(count=None)`` for a data frame.

    Args:
        model: one model.
        num_rows: how many rows.
        seed: seed of the draws.
        method: ``exact`` (or refused), ``gibbs`` (approximate), or ``auto``: exact where possible.
        burn_in: sweeps of a chain after annealing.

    Raises:
        InputError: a batch of models, a number of rows below 1, a seed out of range, or an unknown method.
        InputTypeError: arguments of the wrong type.
        IntractableError: ``exact`` beyond the reach of the backends.
    """
    check_energy(model)
    check_count(num_rows, "num_rows")
    check_count(burn_in, "burn_in", 0)
    seed = checked_seed(seed)
    if model.batch_shape:
        found = f"a batch of shape {tuple(model.batch_shape)}"
        raise unexpected("model", "one model", received=found, code="wrong-shape")
    if method not in ("auto", "exact", "gibbs"):
        raise unexpected("method", "one of auto, exact, gibbs", method, code="unknown-choice")
    generator = torch.Generator().manual_seed(seed)
    cost = Auto().plan(model.hypergraph)
    if method == "exact" and not cost.feasible:
        raise IntractableError(f"{cost.reason}. method='gibbs' draws approximately, at any size")
    backend = Auto() if cost.feasible and method != "gibbs" else AnnealedImportance(burn_in=burn_in)
    return Observations.from_tensor(backend.sample(model, (num_rows,), generator), model.domain)


def expected_variation(first: np.ndarray, second: np.ndarray) -> float:
    r"""Total variation that two samples of one law are expected to show, given their pooled counts.

    .. math:: \frac{1}{2} \sum_k \frac{N}{n_1 n_2} \, \mathbb E \left| C_k - \mu_k \right|, \qquad
        \mathbb E |C - \mu| = \frac{2}{N} \, \nu (N - K - n_1 + \nu) \, \Pr(C = \nu), \quad
        \nu = \lfloor \mu \rfloor + 1

    where the pooled rows are dealt out again at random, so that a cell of K pooled rows gives a hypergeometric C with
    mean :math:`\mu = n_1 K / N`; exact, however rare the cells.

    Shape:
        Both of one shape.
    """
    from scipy.stats import hypergeom

    pooled = (first + second).ravel()
    pooled = np.rint(pooled[pooled > 0]).astype(np.int64)
    n1, n2 = round(float(first.sum())), round(float(second.sum()))
    total = n1 + n2
    above = np.floor(n1 * pooled / total) + 1
    weight = hypergeom.pmf(above, total, pooled, n1)
    deviation = 2 * above * (total - pooled - n1 + above) * weight / total
    return float(0.5 * total / (n1 * n2) * deviation.sum())


@dataclass(frozen=True, eq=False)
class SyntheticQuality:
    """Margins of synthetic rows against those of real rows that the model has not seen.

    Attributes:
        margins: one line per margin: ``variables`` (tuple), ``order``, ``tv`` (total variation between the two
            samples), ``expected`` (what two samples of one law of these sizes are expected to show) and ``excess``,
            their difference; the largest excess first.
        num_synthetic: synthetic rows.
        num_real: real rows.
        copies: synthetic rows that equal a training row; None without training rows.
        real_copies: the same of the real rows: what chance and common combinations give.
    """

    margins: pd.DataFrame
    num_synthetic: float
    num_real: float
    copies: float | None
    real_copies: float | None

    @property
    def summary(self) -> pd.DataFrame:
        """Mean and largest total variation by order, with the expected level and their ratio."""
        groups = self.margins.groupby("order")
        table = pd.DataFrame(
            {
                "margins": groups.size(),
                "mean_tv": groups["tv"].mean(),
                "expected": groups["expected"].mean(),
                "largest_tv": groups["tv"].max(),
            }
        )
        table["ratio"] = table["mean_tv"] / table["expected"]
        return table

    @property
    def text(self) -> str:
        """What a reader should know, in a few lines."""
        lines = [f"{self.num_synthetic:g} synthetic rows against {self.num_real:g} real rows"]
        words = {1: "one-variable margins", 2: "two-variable margins"}
        for order, row in self.summary.iterrows():
            name = words.get(int(str(order)), f"margins of order {order}")
            lines.append(
                f"{name}: mean total variation {row['mean_tv']:.4f}, "
                f"expected of two samples of one law {row['expected']:.4f} (ratio {row['ratio']:.2f}), "
                f"largest {row['largest_tv']:.4f}"
            )
        if self.copies is not None and self.real_copies is not None:
            lines.append(
                f"exact copies of training rows: {self.copies:g} ({self.copies / self.num_synthetic:.1%}); of the real "
                f"rows {self.real_copies:g} ({self.real_copies / self.num_real:.1%}). A share well above that of the "
                "real rows would mean that the model repeats what it was trained on; a share like it is no proof of "
                "privacy"
            )
        return "\n".join(lines)


def synthetic_quality(
    synthetic: Observations, real: Observations, train: Observations | None = None, *, max_order: int = 2
) -> SyntheticQuality:
    """Compare the margins of synthetic rows with those of real rows, best ones that the model has not seen.

    Args:
        synthetic: complete rows.
        real: complete rows with whole counts over the same domain.
        train: the rows the model was fitted to, to count exact copies of.
        max_order: largest number of variables in a margin.

    Raises:
        InputError: different domains, missing cells, fractional weights, no rows, or an order below 1.
        InputTypeError: no observations.
    """
    check_whole(max_order, "max_order")
    check_rows(real, "real")
    if train is not None:
        check_rows(train, "train")
    for name, rows in (("synthetic", synthetic), ("real", real)):
        check_rows(rows, name)
        if rows.domain != real.domain:
            raise other_domain(name, "the domain of the real rows")
        if rows.has_missing:
            raise unexpected(name, "complete rows", hint="drop or impute missing cells first", code="missing-cells")
        if not rows.has_whole_counts or not rows.total_count > 0:
            raise unexpected(name, "at least one row and whole counts", code="empty")
    names = [v.name for v in real.domain if v.cardinality > 1]
    edges = [e for k in range(1, max_order + 1) for e in itertools.combinations(names, k)]
    first, second = (_margins(rows, edges) for rows in (synthetic, real))
    lines = [
        {
            "variables": edge,
            "order": len(edge),
            "tv": 0.5 * float(np.abs(a / synthetic.total_count - b / real.total_count).sum()),
            "expected": expected_variation(a, b),
        }
        for edge, a, b in zip(edges, first, second, strict=True)
    ]
    margins = pd.DataFrame(lines, columns=["variables", "order", "tv", "expected"])
    margins["excess"] = margins["tv"] - margins["expected"]
    return SyntheticQuality(
        margins.sort_values("excess", ascending=False, kind="stable", ignore_index=True),
        synthetic.total_count,
        real.total_count,
        None if train is None else _num_copies(synthetic, train),
        None if train is None else _num_copies(real, train),
    )


def _margins(rows: Observations, edges: Sequence[tuple[str, ...]]) -> list[np.ndarray]:
    """Counts of the cells of every margin, flat."""
    sizes = [int(np.prod([rows.domain[n].cardinality for n in e])) for e in edges]
    return np.split(rows.marginal_counts(edges).numpy(), np.cumsum(sizes)[:-1]) if edges else []


def _num_copies(rows: Observations, train: Observations) -> float:
    """Number of rows (with their counts) that equal a complete row of ``train`` of positive count."""
    if train.domain != rows.domain:
        raise other_domain("train", "the domain of the real rows")
    known = (train.codes >= 0).all(1) & (train.counts > 0)
    seen = {row.tobytes() for row in train.codes[known].numpy()}
    hits = np.array([row.tobytes() in seen for row in rows.codes.numpy()], dtype=bool)
    return float(rows.counts.numpy()[hits].sum())
