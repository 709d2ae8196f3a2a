"""The program that the inner kernel of the continuous sites sees: all discrete values given."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, ClassVar

import torch
from pyro import poutine
from pyro.distributions import TorchDistribution
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger

from ...log_linear.laws.law import HierarchicalLogLinear
from ._dependence import Dependence
from ._discrete_sites import split_law


class GivenDiscrete:
    """A program with its discrete sites observed at values that may change between runs."""

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self.values: dict[str, torch.Tensor] = {}
        self.constant_laws: frozenset[str] = frozenset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program given the present discrete values."""
        with _WithoutConstants(self.constant_laws):
            return poutine.condition(self.model, data=self.values)(*args, **kwargs)


def constant_laws(dependence: Dependence | str, continuous: Collection[str]) -> frozenset[str]:
    """Log-linear sites whose theta, masks and scale depend on no continuous site; a derivative could not tell steps."""
    if isinstance(dependence, str):
        return frozenset()
    return frozenset(name for name, upstream in dependence.log_z.items() if upstream.isdisjoint(continuous))


class _WithoutConstants(Messenger):
    """Leaves out the log Z of the named log-linear sites."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self._names and msg["is_observed"]:
            law, mask = split_law(msg["fn"])
            if law is not None:
                msg["fn"] = _Unnormalised(law, mask)


class _Unnormalised(TorchDistribution):
    """A log-linear law at an observed site with minus its energy for a log-probability."""

    arg_constraints: ClassVar[dict[str, Any]] = {}  # type: ignore[override]

    def __init__(self, law: HierarchicalLogLinear, mask: torch.Tensor | bool) -> None:
        super().__init__(law.batch_shape, law.event_shape, validate_args=False)
        self._law, self._mask = law, mask

    @property
    def support(self) -> Any:  # type: ignore[override]
        return self._law.support

    def expand(self, batch_shape: Sequence[int], _instance: Any = None) -> _Unnormalised:
        return _Unnormalised(self._law.expand(batch_shape), self._mask)

    def log_prob(self, value: torch.Tensor) -> torch.Tensor:
        return scale_and_mask(-self._law.energy(value), mask=self._mask)
