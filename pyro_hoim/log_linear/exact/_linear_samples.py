"""Perfect samples from the values of a compiled program, in scaled linear space on the CPU, against its order."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import torch

from ._buckets import BucketPlan
from ._linear_space import values_of
from ._program import Ints, compiled

_LARGE = 2**20  # variables times draws from which on threads share the draws
_UNIFORMS = 2**22  # random numbers held at once
_FEW, _TINY = 8, 2**13  # models, and cells of one for which Python's overhead does not count


@lru_cache(maxsize=128)
def _lists(plan: BucketPlan) -> tuple[Ints, Ints]:
    """The visits and the outer variables that the compiled loop reads (see there)."""
    program = compiled(plan)
    visits: list[list[int]] = []
    outer: list[tuple[int, int]] = []
    for bucket, nodes in zip(reversed(plan.buckets), reversed(program.operands), strict=True):
        variable = bucket.variable
        if plan.cards[variable] == 1:
            continue
        row = [variable, plan.cards[variable]]
        first = [len(outer)]
        for node in nodes:
            own, step = 0, 1
            for v in reversed(program.layouts[node]):
                if v == variable:
                    own = step
                elif plan.cards[v] > 1:
                    outer.append((v, step))
                step *= plan.cards[v]
            row += [int(program.offset[node]), own]
            first.append(len(outer))
        visits.append([*row, *first])
    return np.array(visits, dtype=np.int64).reshape(-1, 9), np.array(outer, dtype=np.int64).reshape(-1, 2)


def is_faster(plan: BucketPlan, num_models: int, max_memory_bytes: int) -> bool:
    """Whether to draw model by model in linear space, within so many bytes; batches of tiny models share log space."""
    fits = 8 * (compiled(plan).buffers[0] + 2 * plan.hypergraph.num_terms) <= max_memory_bytes
    return fits and (num_models <= _FEW or plan.total_cells >= _TINY)


def sample(
    plan: BucketPlan, table: torch.Tensor, num_draws: int, generator: torch.Generator | None
) -> torch.Tensor | None:
    """Independent states (n, d) of one model with flat tables (num_terms,); None where the range does not suffice."""
    if not plan.slices:
        log_z, values = values_of(plan, table)
        return None if math.isnan(log_z) else _draw(plan, values, num_draws, generator)
    slices = [(state, table[terms]) for state, terms in plan.each_slice()]
    logs: list[float] = []
    for _, piece in slices:
        logs.append(values_of(plan, piece)[0])
        if math.isnan(logs[-1]):
            return None
    law = torch.softmax(torch.tensor(logs, dtype=torch.float64), 0).cumsum(0)
    uniform = torch.rand(num_draws, dtype=torch.float64, generator=generator)
    picked = torch.searchsorted(law[:-1].contiguous(), uniform * law[-1], right=True)
    states = torch.zeros(num_draws, len(plan.cards), dtype=torch.long)
    for number, (state, piece) in enumerate(slices):
        mine = (picked == number).nonzero()[:, 0]
        if mine.numel():
            found = _draw(plan, values_of(plan, piece)[1], mine.numel(), generator)
            found[:, list(plan.slices)] = torch.tensor(state)
            states[mine] = found
    return states


def _draw(plan: BucketPlan, values: np.ndarray, num_draws: int, generator: torch.Generator | None) -> torch.Tensor:
    """States (n, d) of one slice."""
    from ._kernels import trace_back

    visits, outer = _lists(plan)
    parts: list[torch.Tensor] = []
    most = max(1, _UNIFORMS // max(1, len(visits)))
    for done in range(0, num_draws, most):
        count = min(most, num_draws - done)
        uniforms = torch.rand(len(visits), count, dtype=torch.float64, generator=generator).numpy()
        states = np.zeros((len(plan.cards), count), dtype=np.int64)
        threads = torch.get_num_threads() if uniforms.size >= _LARGE else 1
        cuts = [count * i // threads for i in range(threads + 1)]

        def draw(low: int, high: int, uniforms: np.ndarray = uniforms, states: np.ndarray = states) -> None:
            trace_back(values, visits, outer, uniforms, states, low, high)

        with ThreadPoolExecutor(threads) as pool:
            list((pool.map if threads > 1 else map)(draw, cuts[:-1], cuts[1:]))
        parts.append(torch.from_numpy(states.T.copy()))
    return torch.cat(parts) if parts else torch.zeros(0, len(plan.cards), dtype=torch.long)
