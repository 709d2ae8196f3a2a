"""A model of joined variables as the law of the columns that these join: of whole rows, and of rows that break groups.

Every row is soft evidence on the joined variables, so that all questions are those of rows with missing cells.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch

from ..core.prediction import Imputation, Prediction, extend_rows
from ..data.frames import DataLike
from ..data.joined import JoinedColumns
from ..data.observations import Observations
from .auto import Auto
from .energy import LogLinearEnergy
from .given import impute, predict, row_log_weights, with_evidence
from .scores import row_log_pseudo_prob


@dataclass(frozen=True, eq=False)
class JoinedLaw:
    r"""The law of columns some of which a model has joined; every group is broken by itself (:class:`BrokenLaw`).

    .. math:: p(x) = \sum_l q(l) \prod_g \bigl[(1 - \epsilon_g)\,[x_g = x_g(l_g)] + \epsilon_g\,u_g(x_g)\bigr]

    A missing cell is summed over in each factor.

    Args:
        energy: q, a model of the joined variables.
        joined: the columns.

    Example:
        >>> from dataclasses import replace
        >>> from pyro_hoim import Domain, InteractionHypergraph
        >>> from pyro_hoim.data import BrokenLaw, ColumnGroup
        >>> columns = Domain.from_cardinalities({"k=a": 2, "k=b": 2})
        >>> group = ColumnGroup.exclusive(columns.names)
        >>> group = replace(group, broken=BrokenLaw(0.1, 8.0, ((0.5, 0.5), (0.5, 0.5))))
        >>> joined = JoinedColumns(columns, (group,))
        >>> graph = InteractionHypergraph.saturated(joined.joined_domain)
        >>> law = JoinedLaw(LogLinearEnergy.from_theta(graph, torch.tensor([3.0]).double().log(), "corner"), joined)
        >>> rows = Observations.from_tensor(torch.tensor([[0, 0], [0, 1], [1, 0], [1, 1], [1, -1]]), columns)
        >>> law.log_prob(rows).exp().round(decimals=4).tolist()
        [0.05, 0.675, 0.225, 0.05, 0.275]
    """

    energy: LogLinearEnergy
    joined: JoinedColumns

    def given(
        self, rows: DataLike, *, most_probable: bool = False
    ) -> tuple[LogLinearEnergy, Observations, torch.Tensor]:
        """What rows say of the joined variables: a model with observed variables, rows over it, and log-factors (N,).

        The log-weight of the known cells of a row is that of its row under the model, plus the factor.
        """
        read = self.joined.read(extend_rows(rows, self.joined.domain), most_probable=most_probable)
        if not read.evidence:
            return self.energy, read.rows, read.log_factors
        model = with_evidence(self.energy, {name: weights for name, (weights, _) in read.evidence.items()})
        seen = torch.stack([of_row for _, of_row in read.evidence.values()], 1)
        codes = torch.cat([read.rows.narrow, seen], 1)
        return model, read.rows.replaced(domain=model.domain, codes=codes), read.log_factors

    def log_weights(self, rows: DataLike) -> torch.Tensor:
        """Log-probability of the known cells of rows, (N,), before log Z of the model is taken off."""
        model, given, log_factors = self.given(rows)
        return row_log_weights(model, given).double() + log_factors

    def log_prob(self, rows: DataLike, log_z: float | None = None) -> torch.Tensor:
        """Log-probability of the known cells of rows, (N,); with the log Z of the model that is given, else exact."""
        return self.log_weights(rows) - (float(Auto().log_partition(self.energy).value) if log_z is None else log_z)

    def log_prob_of_columns(self, rows: DataLike, shares: Mapping[str, Sequence[float]]) -> torch.Tensor:
        """Log-probability of the known cells of rows, (N,), were the variables of the model independent.

        Args:
            rows: over the columns.
            shares: probabilities of the levels of every variable of the model.
        """
        read = self.joined.read(extend_rows(rows, self.joined.domain))
        total = read.log_factors.clone()
        for column, name in enumerate(read.rows.domain.names):
            logs = torch.tensor([*shares[name], 1.0], dtype=torch.float64).log()  # a missing cell, -1, adds nothing
            total += logs[read.rows.narrow[:, column].long()]
            if name in read.evidence:
                weights, of_row = read.evidence[name]
                total += (weights + logs[:-1]).logsumexp(1)[of_row]
        return total

    def log_pseudo_prob(self, rows: DataLike) -> torch.Tensor:
        """Sum over the joined variables of the log-probability of their known cells given all others, (N,)."""
        rows = extend_rows(rows, self.joined.domain)
        read = self.joined.read(rows)
        is_soft = read.is_broken.any(1)
        for _, of_row in read.evidence.values():
            is_soft = is_soft | (of_row > 0)
        values = read.log_factors.clone()
        values[~is_soft] += row_log_pseudo_prob(self.energy, read.rows.rows(~is_soft)).double()
        if not bool(is_soft.any()):
            return values
        # Of other rows every variable is left out in turn.
        some = rows.rows(is_soft)
        total = self.log_weights(some)
        pseudo = torch.zeros_like(total)
        for name in self.joined.joined_domain.names:
            pseudo += total - self.log_weights(self._without(some, name))
        values[is_soft] = torch.where(total.isneginf(), total, pseudo)
        return values

    def _without(self, rows: Observations, name: str) -> Observations:
        """Rows without the cells of a joined variable."""
        codes = rows.codes.clone()
        names = [column for column in self.joined.domain.names if self.joined.variable_of(column) == name]
        codes[:, list(self.joined.domain.indices(names))] = -1
        return rows.replaced(codes=codes)

    def predict(self, rows: DataLike, target: str, **options: Any) -> Prediction:
        r"""Conditional law of a column in every row, as :func:`~pyro_hoim.log_linear.given.predict` of the model.

        Of a column of a group it is a sum over the levels given all other variables,

        .. math:: p(x_c = k \mid \text{rest}) \propto (1 - \epsilon) \sum_{l : x_c(l) = k} q(l \mid \text{others})\,
            [l \text{ agrees}] + \epsilon\,u(x_c = k, \text{rest of the group})
        """
        rows, group = extend_rows(rows, self.joined.domain, (target,)), self.joined.group_of(target)
        model, given, log_factors = self.given(rows if group is None else self._without(rows, group.name))
        prediction = predict(model, given, target if group is None else group.name, **options)
        log_probs = prediction.log_probs.masked_fill(log_factors.isneginf()[:, None], math.nan)
        is_exact = prediction.is_exact
        if group is not None:
            # Log-probabilities of the codes of a column of a group, from those of its levels given the other variables.
            cells = rows.codes[:, list(self.joined.domain.indices(group.columns))].numpy()
            by = group.columns.index(target)
            cells[:, by] = -1
            patterns, of_row = np.unique(cells, axis=0, return_inverse=True)
            of_row = of_row.reshape(-1)
            agrees = torch.from_numpy(group.agrees(patterns)[of_row])
            whole = log_probs.masked_fill(~agrees, -math.inf) + group.log_whole
            code = torch.tensor(group.levels)[:, by]
            sums = [whole[:, code == k].logsumexp(1) for k in range(self.joined.domain[target].cardinality)]
            logs = torch.logaddexp(torch.stack(sums, 1), torch.from_numpy(group.log_broken(patterns, by)[of_row]))
            log_probs = logs - logs.logsumexp(1, keepdim=True)
            is_exact = is_exact | (log_probs.isfinite().sum(1) == 1)
        error = prediction.std_error if group is None else torch.zeros_like(log_probs)
        error = error.masked_fill(~is_exact[:, None] & (group is not None), math.nan)
        return Prediction.of(rows, target, log_probs, error, is_exact & ~log_probs.isnan().any(1))

    def impute(
        self,
        rows: DataLike,
        num_imputations: int = 1,
        *,
        how: Literal["draws", "most probable"] = "draws",
        seed: int = 0,
        **options: Any,
    ) -> Imputation:
        """Fill the missing cells of rows, as :func:`~pyro_hoim.log_linear.given.impute` of the model.

        The most probable cells are those of the most probable state of cells and levels together, where a group that
        is known to be broken has a level, too.
        """
        rows = extend_rows(rows, self.joined.domain)
        model, given, log_factors = self.given(rows, most_probable=how == "most probable")
        imputation = impute(model, given, num_imputations, how=how, seed=seed, **options)
        is_possible = (log_factors > -math.inf) & (imputation.codes >= 0).all(-1).all(0)
        levels = imputation.codes.masked_fill(~is_possible[:, None], -1).flatten(0, 1)
        codes = rows.codes.repeat(num_imputations, 1)
        codes = self.joined.completed(codes, levels, seed if how == "draws" else None)
        codes = codes.reshape(num_imputations, *rows.codes.shape)
        is_complete = (rows.codes >= 0).all(1)  # of which nothing is filled, though levels of broken groups may be
        return Imputation(rows, codes, imputation.is_exact & is_possible | is_complete, how)
