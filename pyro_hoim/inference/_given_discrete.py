"""The program that the inner kernel of the continuous sites sees: all discrete values given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from pyro import poutine
from pyro.distributions import TorchDistribution
from pyro.distributions.util import scale_and_mask
from pyro.poutine.messenger import Messenger

from ..distributions.log_linear import HierarchicalLogLinear
from ._discrete_sites import sample_nodes, split_law
from ._full_conditional import Program

__all__ = ["GivenDiscrete", "constant_laws"]


class GivenDiscrete:
    """A program with its discrete sites observed at values that may change between runs.

    Args:
        model: the program.
    """

    def __init__(self, model: Callable[..., Any]) -> None:
        self.model = model
        self.values: dict[str, torch.Tensor] = {}
        self.constant_laws: frozenset[str] = frozenset()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the program given the present discrete values."""
        with _WithoutConstants(self.constant_laws):
            return poutine.condition(self.model, data=self.values)(*args, **kwargs)


def constant_laws(program: Program, latent: Mapping[str, torch.Tensor], continuous: Sequence[str]) -> frozenset[str]:
    """Log-linear sites whose theta does not depend on the continuous ones: for these log Z is a constant.

    Args:
        program: the program.
        latent: a value of every latent site, in the constrained space.
        continuous: names of the continuous ones.
    """
    with torch.enable_grad():
        values = {name: value.detach().clone().requires_grad_(name in continuous) for name, value in latent.items()}
        nodes = sample_nodes(program.run(values))
    laws = {name: split_law(node["fn"])[0] for name, node in nodes.items()}
    return frozenset(name for name, law in laws.items() if law is not None and not law.theta.requires_grad)


class _WithoutConstants(Messenger):
    """Leaves out the log Z of the named log-linear sites while they do not depend on what is differentiated."""

    def __init__(self, names: frozenset[str]) -> None:
        super().__init__()
        self._names = names

    def _pyro_sample(self, msg: Any) -> None:
        if msg["name"] in self._names and msg["is_observed"]:
            law, mask = split_law(msg["fn"])
            if law is not None and not law.theta.requires_grad:
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
