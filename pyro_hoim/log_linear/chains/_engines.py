"""Which engine moves the chains."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, cast, get_args

import torch

from ...compute.engine import Engine
from ...errors import check_choice, conflict, out_of_reach
from ...schema import Domain
from ...structure.hypergraph import InteractionHypergraph

EngineName = Literal["auto", "products", "tables", "torch"]
_MAX_CELLS = 2**31 - 1
_REFERENCE_STREAM = 0x5EED


def make_engine(
    name: EngineName,
    hypergraph: InteractionHypergraph,
    blocks: tuple[tuple[int, ...], ...],
    shape: tuple[int, int],
    seed: int,
    precision: torch.dtype,
    device: torch.device,
) -> Engine:
    """The engine that moves the chains; compiled ones are imported when first needed."""
    check_choice(name, get_args(EngineName), "engine")
    if name == "torch" or (name == "auto" and device.type != "cpu"):
        from .torch_engine import TorchEngine

        return TorchEngine(hypergraph, blocks, *shape, seed, precision, device)
    if device.type != "cpu":
        raise conflict("engine", f"{name!r} runs on the CPU, received tables on {device}", "use 'torch' or 'auto'")
    cells = sum(
        len(edge) * math.prod(shape) for edge, shape in zip(hypergraph.edges, hypergraph.edge_shapes, strict=True)
    )
    if cells > _MAX_CELLS:
        problem = (
            f"the tables and their transposed copies have {cells} cells, the compiled engines address {_MAX_CELLS}"
        )
        raise out_of_reach("model", problem, "use engine='torch' or smaller interactions")
    if name != "tables":
        from .products_engine import ProductsEngine

        if ProductsEngine.supports(hypergraph):
            return cast(Engine, ProductsEngine(hypergraph, blocks, *shape, seed, precision))
        if name == "products":
            problem = "'products' needs variables with at most two levels and interactions of at most eight"
            raise conflict("engine", problem, "use 'tables' or 'auto'")
    from .tables_engine import TablesEngine

    return cast(Engine, TablesEngine(hypergraph, blocks, *shape, seed, precision))


def reference_draws(domain: Domain, reference: torch.Tensor, lead: Sequence[int], seed: int) -> torch.Tensor:
    """States (*batch, chains, d) from product laws with log weights (groups, levels), by a generator of the device."""
    device, num_chains, start = reference.device, lead[-1], 0
    random = torch.Generator(device).manual_seed(seed ^ _REFERENCE_STREAM)
    columns: list[torch.Tensor] = []
    for levels in domain.cardinalities:
        shares = torch.softmax(reference[:, start : start + levels], -1).expand(math.prod(lead[:-1]), -1)
        start += levels
        points = torch.rand(len(shares), num_chains, dtype=shares.dtype, generator=random, device=device)
        columns.append(torch.searchsorted(shares.cumsum(-1)[:, :-1].contiguous(), points, right=True))
    states = torch.stack(columns, -1) if columns else torch.zeros(*lead, 0, dtype=torch.long, device=device)
    return states.reshape(*lead, len(columns))
