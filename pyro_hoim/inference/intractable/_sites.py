"""Observed sites of a program as exponential families: natural parameters, sums of statistics, numbers of rows."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import torch
from pyro.distributions import Independent, MaskedDistribution

from ...errors import out_of_range, refused

Node = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class SiteData:
    """What is observed at a site, by the G vectors of parameters that its rows have.

    Attributes:
        statistics: sums of the statistics over the rows, (G, num_terms), float64.
        total: numbers of rows, (G,), float64.
        rows: rows where they are known, (G, most rows, d).
        is_row: which of them count, (G, most rows).
        counts: marginal counts where rows are not known, (G, num_cells).
    """

    statistics: torch.Tensor
    total: torch.Tensor
    rows: torch.Tensor | None = None
    is_row: torch.Tensor | None = None
    counts: torch.Tensor | None = None


@dataclass(frozen=True, eq=False)
class _Layout:
    """How the batch of a site is laid out: its sizes without chains, and the dimensions that share parameters."""

    sizes: tuple[int, ...]
    shared: tuple[int, ...]

    def grouped(self, values: torch.Tensor) -> torch.Tensor:
        """Values (*sizes, *event) as (G, rows of a group, *event)."""
        width = len(self.sizes)
        kept = [i for i in range(width) if i not in self.shared]
        groups = math.prod(self.sizes[i] for i in kept)
        rows = math.prod(self.sizes[i] for i in self.shared)
        order = [*kept, *self.shared, *range(width, values.dim())]
        return values.permute(order).reshape(groups, rows, *values.shape[width:])


class Particles(Protocol):
    """Gibbs chains whose states stand for the law of the parameters that they were last told."""

    def means(self, natural: torch.Tensor, num_sweeps: int) -> torch.Tensor:
        """Means of the statistics (chains, G, num_terms) over so many further sweeps at parameters of that shape."""
        ...


class IntractableSite(ABC):
    r"""An observed site whose log-probability is :math:`\eta \cdot t(x) - \log Z(\eta)` up to what is free of eta."""

    def __init__(self, name: str, law: Any) -> None:
        self.name, self.law = name, law
        self._seen: tuple[Any, ...] = ()
        self._data: SiteData | None = None

    # What a family says

    @abstractmethod
    def parameters(self, law: Any) -> torch.Tensor:
        """Parameters (*batch, size), expanded and not copied where they are shared."""

    @abstractmethod
    def natural(self, parameters: torch.Tensor) -> torch.Tensor:
        """Multipliers of the statistics from parameters."""

    @abstractmethod
    def summed(self, values: torch.Tensor, weights: torch.Tensor, total: torch.Tensor) -> SiteData:
        """Data of values (G, n, event) with weights (G, n), zero or one, that stand for so many rows each."""

    @abstractmethod
    def draws_perfectly(self, natural: torch.Tensor) -> bool:
        """Whether :meth:`draw` is exact and independent, for parameters such as these (groups, num_terms)."""

    @abstractmethod
    def draw(self, natural: torch.Tensor, total: torch.Tensor) -> torch.Tensor:
        """Sums of statistics (groups, num_terms) of fresh rows of the law, given natural and total (groups,)."""

    @abstractmethod
    def surrogate(self, law: Any, value: torch.Tensor) -> torch.Tensor | None:
        """Exact log-probability where it is cheap, else the log pseudo-likelihood; None where there is neither."""

    @abstractmethod
    def chains(self, natural: torch.Tensor, data: SiteData, copies: int, seed: int) -> Any:
        """Gibbs chains of ``copies`` data sets for each of (chains, G, num_terms), which start at the data."""

    @abstractmethod
    def backend_means(self, natural: torch.Tensor) -> torch.Tensor | None:
        """Means of the statistics (groups, num_terms) by the backend of the law; None where that is out of reach."""

    @abstractmethod
    def particles(self, natural: torch.Tensor, data: SiteData, num_particles: int, seed: int) -> Particles:
        """Gibbs chains for each of (chains, G, num_terms) that start at rows of the data and are kept."""

    def is_lawful(self, natural: torch.Tensor) -> torch.Tensor:
        """Which vectors (groups, num_terms) are those of a law, (groups,)."""
        return torch.isfinite(natural).all(-1)

    # What is read from a run

    def read(self, node: Node, num_chains: int | None, num_dims: int) -> tuple[torch.Tensor, SiteData]:
        """Natural parameters (chains, G, num_terms), float64, and the data, from one run of the program.

        The program has ``num_dims`` batch dimensions, behind one of ``num_chains`` if there is one.
        """
        law, masks, lacking = unwrapped(node["fn"])
        masks.append((node["mask"], 0))
        width = num_dims + lacking
        parameters = self.parameters(law)
        while parameters.dim() < width + 2:
            parameters = parameters.unsqueeze(0)
        lead, *sizes = parameters.shape[:-1]
        if lead not in (1, num_chains) or len(sizes) != width:
            raise refused(f"site {self.name!r}", f"parameters of the shape {tuple(parameters.shape)} were not expected")
        shared = tuple(i for i in range(width) if sizes[i] == 1 or parameters.stride(i + 1) == 0)
        for i in shared:
            parameters = parameters.narrow(i + 1, 0, min(1, sizes[i]))
        natural = self.natural(parameters.double()).reshape(lead, -1, self.num_terms)
        natural = natural.expand(num_chains or 1, *natural.shape[1:])
        return natural, self._data_of(law, node["value"], masks, _Layout(tuple(sizes), shared), lacking)

    @property
    @abstractmethod
    def num_terms(self) -> int:
        """Length of a vector of statistics."""

    def _data_of(
        self, law: Any, value: torch.Tensor, masks: list[tuple[Any, int]], layout: _Layout, lacking: int
    ) -> SiteData:
        """The data, read anew only where the program gives other tensors."""
        total = self.totals(law, layout.sizes)
        kept = [mask for mask, _ in masks if mask is not None and mask is not True]
        seen = (value, value._version, kept, layout.sizes, layout.shared, total)
        if self._data is not None and _is_same(seen, self._seen):
            return self._data
        sizes, event_dim = layout.sizes, len(law.event_shape)
        try:
            value = value.expand(*sizes, *value.shape[value.dim() - event_dim :])
            weights = torch.ones(sizes, dtype=torch.float64)
            for mask, missing in masks:
                if mask is not None and mask is not True:
                    flag = torch.as_tensor(mask)
                    flag = flag.reshape(*flag.shape, *(1,) * (lacking - missing)) if flag.dim() else flag
                    while flag.dim() > len(sizes) and (len(flag) == 1 or flag.stride(0) == 0):
                        flag = flag[0]  # the law was expanded to chains, and its mask with it
                    weights = weights * flag.double().expand(sizes)
        except RuntimeError:
            expected = f"values and masks that depend on no latent site, of a shape that broadcasts to {sizes}"
            raise out_of_range(f"site {self.name!r}", expected, received=f"shape {tuple(value.shape)}") from None
        if not bool(law.support.check(value).all()):
            raise out_of_range(f"site {self.name!r}", f"observed values in the support of {type(law).__name__}")
        grouped = [layout.grouped(part) for part in (value, weights, total)]
        self._seen, self._data = seen, self.summed(*grouped)
        return self._data

    def totals(self, law: Any, sizes: tuple[int, ...]) -> torch.Tensor:  # noqa: ARG002
        """Rows that every value stands for, (*sizes)."""
        return torch.ones(sizes, dtype=torch.float64)


def unwrapped(fn: Any) -> tuple[Any, list[tuple[Any, int]], int]:
    """The law inside masks and ``to_event``; the masks, each with the event dimensions around it; how many in all."""
    masks: list[tuple[Any, int]] = []
    lacking = 0
    while isinstance(fn, MaskedDistribution | Independent):
        if isinstance(fn, MaskedDistribution):
            masks.append((fn._mask, lacking))
        else:
            lacking += fn.reinterpreted_batch_ndims
        fn = fn.base_dist
    return fn, masks, lacking


def _is_same(left: tuple[Any, ...], right: tuple[Any, ...]) -> bool:
    """Whether a run gave the values of an earlier one."""
    if left[3:5] != right[3:5] or len(left[2]) != len(right[2]) or right[0]._version != right[1]:
        return False
    if left[0] is not right[0] and not torch.equal(left[0], right[0]):
        return False
    return all(a is b for a, b in zip(left[2], right[2], strict=True)) and torch.equal(left[5], right[5])
