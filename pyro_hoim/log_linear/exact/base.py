"""What exact backends share."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from typing_extensions import override

from ...core.model import LogLinearModel
from ...core.partition import PartitionBackend

__all__ = ["ExactBackend"]


class ExactBackend(PartitionBackend):
    """A backend all of whose results are exact to rounding."""

    @property
    @override
    def is_exact(self) -> bool:
        return True

    @override
    def marginal(self, model: LogLinearModel, names: Sequence[str]) -> torch.Tensor:
        return self.log_marginal(model, names).exp()
