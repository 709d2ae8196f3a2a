"""Which engine moves the chains."""

from __future__ import annotations

import math
from typing import Literal, cast, get_args

import torch

from ...compute.engine import Engine
from ...errors import check_choice, conflict, out_of_reach
from ...structure.hypergraph import InteractionHypergraph

EngineName = Literal["auto", "products", "tables", "torch"]
_MAX_CELLS = 2**31 - 1


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
