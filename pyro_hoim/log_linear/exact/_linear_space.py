"""Execution of compiled programs in scaled linear space, and their place in autograd."""

import math
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from ...checks import is_transformed
from ...core.partition import is_recorded, log_z_with_gradient, no_state
from . import _log_space as log_space
from ._program import BucketPlan, Ints, Program, compiled

_LIMITS = {torch.float32: 80.0, torch.float64: 680.0}  # logs of stored values stay within plus and minus this
_LARGE_BUFFER = 2**18  # programs with more values are run step by step
_LARGE_STEP = 2**16  # steps with more operations are split between threads
_LARGE_BATCH = 2**20  # batches with more operations are split between threads


def is_supported(tables: torch.Tensor) -> bool:
    """Whether the compiled loops can run: plain CPU tensors of single or double precision."""
    return tables.device.type == "cpu" and tables.dtype in _LIMITS and not is_transformed(tables)


def _run_small(program: Program, tables: np.ndarray, want_eta: bool) -> tuple[np.ndarray, np.ndarray]:
    """Whole batch in compiled code, split between threads if it is large."""
    from . import _kernels as kernels

    values = np.empty(len(tables), dtype=np.float64)
    eta = np.empty(tables.shape if want_eta else (0, 0), dtype=tables.dtype)
    offsets = program.offset if want_eta else program.reused
    sizes = program.buffers[0 if want_eta else 1], program.buffers[2]
    limit = _LIMITS[torch.float32 if tables.dtype == np.float32 else torch.float64]

    # Rows of the batch are shared out where there are many operations.
    def run(low: int, high: int) -> None:
        parts = tables[low:high], values[low:high], eta[low:high]
        kernels.run_batch(*parts, want_eta, program.log_constant, program.arrays, offsets, *sizes, limit)

    threads = min(torch.get_num_threads(), len(tables))
    if threads > 1 and len(tables) * int(program.arrays.work.sum()) > _LARGE_BATCH:
        cuts = [len(tables) * i // threads for i in range(threads + 1)]
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(run, cuts[:-1], cuts[1:]))
    else:
        run(0, len(tables))
    return values, eta


class _LargeRun:
    """One model, step by step: large steps are split between threads, runs of small ones stay compiled."""

    def __init__(self, pool: ThreadPoolExecutor, program: Program, table: torch.Tensor, want_eta: bool) -> None:
        from . import _kernels as kernels

        self.kernels, self.pool, self.program = kernels, pool, program
        self.place = program.offset if want_eta else program.reused
        self.values = torch.empty(program.buffers[0 if want_eta else 1], dtype=table.dtype)
        self.limit = _LIMITS[table.dtype]
        self.bounds = np.empty((len(program.arrays.size), 3))
        self.factor = np.ones(len(program.arrays.size))
        self.sums = np.empty(256)
        self.table = table
        self.threads = torch.get_num_threads()

    def _ranges(self) -> Iterator[tuple[int, int, bool]]:
        """Runs of small steps and single large ones: begin, end, is_large."""
        begin, end = 0, len(self.program.arrays.steps)
        for i in np.flatnonzero(self.program.arrays.work >= _LARGE_STEP).tolist():
            if i > begin:
                yield begin, i, False
            yield i, i + 1, True
            begin = i + 1
        if begin < end:
            yield begin, end, False

    def _contract(self, number: int, x: tuple[Any, int], y: tuple[Any, int], z: tuple[Any, int], size: int) -> None:
        """Contraction ``number``, its rows or its sums divided between the threads."""
        # Rows, or parts of a sum, for every thread.
        program, kernels = self.program.arrays, self.kernels
        first, last = int(program.pointer[number]), int(program.pointer[number + 1])
        swapped, by_rows, num_reduced = (int(v) for v in program.form[number])
        if swapped:
            x, y = y, x
        rows = int(np.prod(program.loops[0, first : last - 1])) // num_reduced
        parts = min(self.threads, rows) if rows * num_reduced > 1 else 1
        cuts = [rows * i // parts * num_reduced for i in range(parts + 1)]
        if by_rows:

            def run(low: int, high: int) -> None:
                kernels.contract_rows(*x, *y, *z, program.loops, first, last, low, high, num_reduced)

            list(self.pool.map(run, cuts[:-1], cuts[1:]))
            return

        def collect(low: int, high: int) -> np.ndarray:
            sums = np.zeros(size)
            kernels.accumulate(*x, *y, sums, program.loops, first, last, low, high)
            return sums

        z[0][z[1] : z[1] + size] = sum(self.pool.map(collect, cuts[:-1], cuts[1:]))

    def upward(self) -> float:
        """Log Z, NaN if the range of the dtype does not suffice."""
        # Exponentials of the tables.
        program, kernels, values = self.program, self.kernels, self.values.numpy()
        arrays, scale = program.arrays, program.log_constant
        is_small = program.num_terms < _LARGE_STEP  # waking PyTorch's threads takes longer than few exponentials
        scale += kernels.load(self.table.numpy(), arrays.table_start, values, self.bounds, is_small)
        if not is_small:
            self.values[1 : 1 + program.num_terms].exp_()
        common = (self.bounds, self.factor, self.limit)
        # Steps in order, each within the range of the numbers.
        for begin, end, is_large in self._ranges():
            if not is_large:
                scale += kernels.upward(values, arrays, self.place, *common, self.sums, begin, end)
            else:
                step = arrays.steps[begin]
                scale += kernels.prepare(values, step, self.place, arrays.size, arrays.work[begin], *common)
                if not math.isnan(scale):
                    x, y, z = ((values, int(self.place[node])) for node in step)
                    self._contract(3 * begin, x, y, z, int(arrays.size[step[2]]))
            if math.isnan(scale):
                return scale
        roots = [values[self.place[r]] for r in arrays.roots]
        return scale + sum(map(math.log, roots)) if all(roots) else -math.inf

    def downward(self) -> torch.Tensor:
        """Eta (num_terms,), after :meth:`upward`."""
        program, values = self.program, self.values.numpy()
        gradients = torch.empty(program.buffers[2], dtype=self.table.dtype)
        arrays, G, offsets = program.arrays, gradients.numpy(), self.place
        back, size, has_zeros = arrays.gradient, arrays.size, self.bounds[:, 2]
        # Adjoints of the roots, then of all steps in reverse.
        for r in arrays.roots:
            G[back[r]] = 1.0 / values[offsets[r]]
        for begin, end, is_large in reversed(list(self._ranges())):
            if not is_large:
                self.kernels.downward(values, G, arrays, offsets, self.bounds, self.factor, self.sums, begin, end)
                continue
            step = [int(node) for node in arrays.steps[begin]]
            z = step[2]
            if self.factor[z] != 1.0:
                G[back[z] : back[z] + size[z]] *= self.factor[z]
            if has_zeros[z]:
                self.kernels.silence(values, int(offsets[z]), G, int(back[z]), int(size[z]))
            for r in (1, 2):
                node, other = step[r - 1], step[2 - r]
                if node:
                    x, y = (G, int(back[z])), (values, int(offsets[other]))
                    self._contract(3 * begin + r, x, y, (G, int(back[node])), int(size[node]))
        terms = slice(1, 1 + program.num_terms)
        eta = self.values[terms] * gradients[terms]
        return eta.masked_fill_(self.values[terms] == 0, 0.0) if has_zeros.any() else eta


def _run(plan: BucketPlan, tables: torch.Tensor, want_eta: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Log Z (B,) in float64 and eta (B, terms) of one slice; NaN in log Z where the range does not suffice."""
    program = compiled(plan)
    if max(program.buffers) <= _LARGE_BUFFER:
        values, eta = _run_small(program, tables.numpy(), want_eta)
        return torch.from_numpy(values), torch.from_numpy(eta)
    logs: list[float] = []
    etas: list[torch.Tensor] = []
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        for row in tables:
            run = _LargeRun(pool, program, row, want_eta)
            logs.append(run.upward())
            if want_eta:
                etas.append(run.downward() if math.isfinite(logs[-1]) else torch.zeros_like(row))
    return torch.tensor(logs, dtype=torch.float64), torch.stack(etas) if want_eta and etas else tables


def values_of(plan: BucketPlan, table: torch.Tensor) -> tuple[float, np.ndarray]:
    """Log Z of one slice, NaN where the range does not suffice, and the scaled values of all nodes."""
    with ThreadPoolExecutor(torch.get_num_threads()) as pool:
        run = _LargeRun(pool, compiled(plan), table, True)
        return run.upward(), run.values.numpy()


def evaluate(
    plan: BucketPlan, tables: torch.Tensor, want_eta: bool, is_checked: bool = False
) -> tuple[torch.Tensor, torch.Tensor]:
    """Log Z (B,) and, if wanted, eta (B, num_terms), without a graph; log space takes over where it must.

    Without a possible state eta are zeros, or an error when ``is_checked``.
    """
    tables = tables.detach().contiguous()
    # One slice, or all of them weighted by their share of Z.
    if not plan.slices:
        values, eta = _run(plan, tables, want_eta)
    else:
        pieces = [terms for _, terms in plan.each_slice()]
        runs = [_run(plan, tables[:, piece].contiguous(), want_eta) for piece in pieces]
        logs = torch.stack([log for log, _ in runs], -1)
        values = torch.logsumexp(logs, -1)
        eta = torch.zeros_like(tables)
        if want_eta:
            weights = torch.softmax(logs, -1).nan_to_num_(nan=0.0).to(tables.dtype)  # zero where nothing is possible
            for number, (piece, (_, part)) in enumerate(zip(pieces, runs, strict=True)):
                eta[:, piece] += weights[:, number : number + 1] * part
    # Where the range of the numbers does not suffice.
    total = float(values.sum())
    if math.isnan(total):
        failed = torch.isnan(values)
        rows = tables[failed]
        values[failed] = log_space.log_z(plan, rows).double()
        if want_eta:
            eta[failed] = differentiable_expectations(plan, rows)
        total = float(values.sum())
    if is_checked and total == -math.inf:
        raise no_state()
    return values.to(tables.dtype), eta


def _gradients(
    plan: BucketPlan,
    tables: torch.Tensor,
    value: Callable[[torch.Tensor, torch.Tensor], torch.Tensor],
    weights: torch.Tensor,
) -> torch.Tensor:
    """Gradient of values (b,) of tables and weights, with a graph if one is being recorded; else chunk by chunk."""
    keep_graph = torch.is_grad_enabled() and tables.requires_grad
    chunks = (tables,) if keep_graph else log_space.split(plan, tables, True)
    parts: list[torch.Tensor] = []
    with torch.inference_mode(False), torch.enable_grad():
        for chunk, weight in zip(chunks, weights.split([len(chunk) for chunk in chunks]), strict=True):
            plain = chunk.clone() if chunk.is_inference() else chunk
            leaf = plain if keep_graph else plain.detach().requires_grad_()
            total = value(leaf, weight).sum()
            if total.requires_grad:
                parts.extend(torch.autograd.grad(total, leaf, create_graph=keep_graph, materialize_grads=True))
            else:
                parts.append(torch.zeros_like(chunk))
    return torch.cat(parts)


def differentiable_expectations(plan: BucketPlan, tables: torch.Tensor) -> torch.Tensor:
    """Eta as the gradient of log Z in log space, with a graph if one is being recorded."""
    return _gradients(plan, tables, lambda t, _: log_space.log_z(plan, t), tables)


class _Expectations(torch.autograd.Function):  # pyright: ignore[reportUntypedBaseClass]
    """Eta, whose derivatives go through log space."""

    @staticmethod
    def forward(ctx: Any, tables: torch.Tensor, plan: BucketPlan, is_checked: bool) -> torch.Tensor:
        ctx.plan = plan
        ctx.save_for_backward(tables)
        return evaluate(plan, tables, True, is_checked)[1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        (tables,), plan = ctx.saved_tensors, ctx.plan
        return _gradients(plan, tables, lambda t, w: differentiable_expectations(plan, t) * w, grads[0]), None, None


_apply_expectations: Callable[..., torch.Tensor] = _Expectations.apply


def log_z(plan: BucketPlan, tables: torch.Tensor) -> torch.Tensor:
    """Log Z (B,) of flat tables (B, num_terms); differentiable."""
    if is_recorded(tables):
        return log_z_with_gradient(
            tables, lambda t: evaluate(plan, t, True), lambda t: _apply_expectations(t, plan, False)
        )
    return evaluate(plan, tables, False)[0]


def expectations(plan: BucketPlan, tables: torch.Tensor) -> torch.Tensor:
    """Eta (B, num_terms) of flat tables (B, num_terms); differentiable."""
    if is_recorded(tables):
        return _apply_expectations(tables, plan, True)
    return evaluate(plan, tables, True, is_checked=True)[1]


# Perfect samples from the values of a compiled program, in scaled linear space on the CPU, against its order.

_LARGE = 2**20  # variables times draws from which on threads share the draws
_UNIFORMS = 2**22  # random numbers held at once
_FEW, _TINY = 8, 2**13  # models, and cells of one for which Python's overhead does not count


@lru_cache(maxsize=128)
def _lists(plan: BucketPlan) -> tuple[Ints, Ints]:
    """The visits and the outer variables that the compiled loop reads (see there)."""
    program = compiled(plan)
    # Against the order of elimination, so that what a variable depends on is drawn before it.
    visits: list[list[int]] = []
    outer: list[tuple[int, int]] = []
    for bucket, nodes in zip(reversed(plan.buckets), reversed(program.operands), strict=True):
        variable = bucket.variable
        if plan.cards[variable] == 1:
            continue
        row = [variable, plan.cards[variable]]
        first = [len(outer)]
        for node in nodes:
            stride, step = 0, 1
            for v in reversed(program.layouts[node]):
                if v == variable:
                    stride = step
                elif plan.cards[v] > 1:
                    outer.append((v, step))
                step *= plan.cards[v]
            row += [int(program.offset[node]), stride]
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
        if log_z == -math.inf:
            raise no_state()
        return None if math.isnan(log_z) else _draw(plan, values, num_draws, generator)
    slices = [(state, table[terms]) for state, terms in plan.each_slice()]
    logs: list[float] = []
    for _, piece in slices:
        logs.append(values_of(plan, piece)[0])
        if math.isnan(logs[-1]):
            return None
    if max(logs) == -math.inf:
        raise no_state()
    # The slice of every draw, then the draws slice by slice.
    law = torch.softmax(torch.tensor(logs, dtype=torch.float64), 0).cumsum(0)
    uniform = torch.rand(num_draws, dtype=torch.float64, generator=generator)
    picked = torch.searchsorted(law[:-1].contiguous(), uniform * law[-1], right=True)
    states = torch.zeros(num_draws, len(plan.cards), dtype=torch.long)
    for number, (state, piece) in enumerate(slices):
        mine = (picked == number).nonzero()[:, 0]
        if mine.numel():
            drawn = _draw(plan, values_of(plan, piece)[1], mine.numel(), generator)
            drawn[:, list(plan.slices)] = torch.tensor(state)
            states[mine] = drawn
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
