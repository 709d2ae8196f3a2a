"""Completed rows, whatever the model."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd
import torch

from ..data.observations import Observations
from ..errors import out_of_range, refused

__all__ = [
    "Imputation",
]


@dataclass(frozen=True, eq=False)
class Imputation:
    """Completed rows.

    Attributes:
        data: the rows as they were.
        codes: the completions, long (num_imputations, N, d).
        is_exact: rows without an approximation: complete ones, perfect draws, proven modes; (N,).
        how: ``draws`` or ``most probable``.
    """

    data: Observations
    codes: torch.Tensor
    is_exact: torch.Tensor
    how: str

    @property
    def num_imputations(self) -> int:
        """Completions of every row."""
        return len(self.codes)

    def observations(self, number: int = 0) -> Observations:
        """One completed data set, with the counts of the rows."""
        if not 0 <= number < self.num_imputations:
            raise out_of_range("number", f"0 to {self.num_imputations - 1}", received=number)
        return Observations.from_tensor(self.codes[number], self.data.domain, weights=self.data.counts)

    def to_pandas(self) -> pd.DataFrame:
        """All completions below each other; where there are several, the first column ``imputation`` counts from 1."""
        codes = self.codes.flatten(0, 1)
        frame = Observations.from_tensor(codes, self.data.domain).to_pandas(count=None)
        if self.num_imputations == 1:
            return frame
        if "imputation" in frame:
            problem = "the data have a variable 'imputation'"
            raise refused("to_pandas", problem, "use observations(number) instead", code="repeated-name")
        number = torch.arange(1, self.num_imputations + 1).repeat_interleave(self.codes.shape[1])
        frame.insert(0, "imputation", number.numpy())
        return frame
