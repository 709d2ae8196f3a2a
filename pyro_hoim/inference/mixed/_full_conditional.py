"""Gibbs moves of the discrete sites of a program, from the log-probabilities of the program itself."""

import math
from collections.abc import Callable, Mapping
from typing import Any, Literal

import numpy as np
import torch
from pyro import poutine
from pyro.poutine.trace_struct import Trace

from ...errors import refused
from ...log_linear.chains.gibbs import GibbsChains
from ._sites import (
    Dependence,
    DiscreteSite,
    Visit,
    brief,
    check_support,
    has_estimate,
    is_same_law,
    log_prob_of,
    log_z_factors,
    needs_log_z,
    own_log_prob,
    sample_nodes,
    split_law,
    without_nan,
)

NEEDS_FIXED_LOG_Z = "MixedGibbs"
"""Read where an estimate of log Z is asked for: its noise would make these moves wrong."""

Mode = Literal["law alone", "rows together", "row by row", "one by one"]
Values = dict[str, torch.Tensor]

_CHECKED_RUNS = 2000
_MOST_CHECKED_ROWS = 32
_MOST_CHECKED_VISITS = 64

# What would be fast, by what is in the way.
_IN_TENSORS = "keep values in tensors: write choices with torch.where, by indexing or as masks"
_IN_SHAPE = (
    "let a new leftmost dimension of candidates pass through the program: index from the right (x[..., i]), keep "
    "summed dimensions (keepdim=True), and put independent rows and all that depends on them into one pyro.plate"
)
_EXACT = "an exact backend, or a larger budget for it, evaluates all values at once"


class _NotVectorised(Exception):  # noqa: N818  never leaves this module
    """A log-probability does not have the shape that candidates in a dimension of their own would give it."""


class Program:
    """A program with fixed arguments that is run with all its latent values given."""

    def __init__(self, model: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.model, self.args, self.kwargs = model, args, kwargs
        self._names: frozenset[str] | None = None

    def run(self, values: Mapping[str, torch.Tensor]) -> Trace:
        """Trace with the given values."""
        with poutine.block():
            given = poutine.condition(self.model, data=dict(values))
            trace = poutine.trace(given).get_trace(*self.args, **self.kwargs)
        nodes = sample_nodes(trace)
        names = frozenset(nodes)
        self._names = self._names or names
        changed = sorted(names ^ self._names) or sorted(n for n, node in nodes.items() if not node["is_observed"])
        if changed:
            problem = (
                f"expected the same sites at every run, but whether {changed[0]!r} is there depends on the values of "
                "other sites"
            )
            raise refused("model", problem, "write the choice with torch.where or poutine.mask", code="no-method")
        return trace


class DiscreteMoves:
    r"""Draws every discrete site of a program from its full conditionals, one block after the other.

    .. math:: p(x_B \mid \text{rest}) \propto q(x_B \mid x_{-B}) \prod_{j} p_j(\cdot \mid x_B, \text{rest})

    where q is the law of the site, without its normalising constant, and j runs over the sites that depend on it.
    A normalising constant of another log-linear law is computed only if its theta, its mask or its scale changes with
    :math:`x_B`.

    How a site is evaluated is decided at its first move, by comparison with the evaluation of one row and one candidate
    at a time, at the present state and at a random one:

    * "law alone": no site depends on it; the compiled chains of its own law move it.
    * "rows together": all candidates of all rows in one run of the program, where plates declare the rows independent.
    * "row by row": all candidates of one row in one run.
    * "one by one": always right.
    """

    def __init__(
        self,
        program: Program,
        sites: tuple[DiscreteSite, ...],
        values: Values,
        dependence: Dependence | str,
        *,
        is_parallel: bool,
        seed: int,
    ) -> None:
        self._program, self._sites = program, sites
        self._seeds = {
            site.name: int(np.random.SeedSequence([seed, position]).generate_state(1, np.uint64)[0] >> np.uint64(1))
            for position, site in enumerate(sites)
        }
        self._dependence, self._is_parallel = dependence, is_parallel
        # Batch dimensions that the program uses, plates or not
        dims = [0]
        for node in sample_nodes(program.run(values)).values():
            dims.append(len(node["fn"].batch_shape))
            dims += [-frame.dim for frame in node["cond_indep_stack"] if frame.vectorized]
        self._num_dims = max(dims)
        self._relevant: dict[str, frozenset[str]] = {}
        self._chains: dict[str, GibbsChains] = {}
        self._num_sweeps = 0
        self.modes: dict[str, Mode] = {}
        self.reasons: dict[str, str] = {}

    def sweep(self, values: Values) -> Values:
        """New values of all sites after one sweep; the others are as they were."""
        values = dict(values)
        with torch.no_grad():
            for site in self._sites:
                if site.name not in self.modes:
                    self.modes[site.name] = self._choose(site, values)
                if self.modes[site.name] == "law alone":
                    values[site.name] = self._sweep_law(site, values)
                else:
                    for visit in self._scan(site):
                        self._draw(site, visit, values)
        self._num_sweeps += 1
        return values

    def _scan(self, site: DiscreteSite) -> list[Visit]:
        """The visits of this sweep in their order; those with one candidate are left out."""
        order = range(len(site.visits))
        if site.law is not None and site.schedule is not None:
            blocks = tuple(visit.columns for visit in site.visits)
            order = site.schedule.order(site.law.hypergraph, blocks, self._num_sweeps, 1, self._seeds[site.name])[
                0
            ].tolist()
        return [site.visits[i] for i in order if len(site.visits[i].candidates) > 1]

    # The law alone

    def _sweep_law(self, site: DiscreteSite, values: Values) -> torch.Tensor:
        law, _ = split_law(self._run(values)[site.name]["fn"])
        assert law is not None
        model, codes = law.energy_model, values[site.name].long().unsqueeze(-2)
        chains = self._chains.get(site.name)
        if chains is None:
            chains = GibbsChains(model, 1, schedule=site.schedule, init=codes, seed=self._seeds[site.name])
            self._chains[site.name] = chains
        else:
            chains.set_model(model)
            chains.set_states(codes)
        chains.sweep(1)
        return chains.states.squeeze(-2).to(values[site.name])

    # One visit

    def _draw(self, site: DiscreteSite, visit: Visit, values: Values) -> None:
        """Draw the entries of a visit in every row."""
        mode = self.modes[site.name]
        rows: list[int | None] = [None] if mode == "rows together" else list(range(site.num_rows))
        for row in rows:
            if mode == "one by one":
                assert row is not None
                logits = self._one_by_one(site, visit, values, row)[0]
            else:
                logits = self._together(site, visit, values, row)
            # Logits as weights, the largest one made 1.
            logits = without_nan(logits)
            top = logits.max(-1, keepdim=True).values
            if not bool(torch.isfinite(top).all()):
                problem = "no value has a finite, positive probability given the rest of the program"
                hint = "look for observations outside the support, or start from other values with initial_params"
                raise refused(f"site {site.name!r}", problem, hint, code="impossible")
            chosen = torch.multinomial((logits - top).exp(), 1).squeeze(-1)
            entries = site.rows(values[site.name]).clone()
            where = slice(None) if row is None else slice(row, row + 1)
            entries[where, list(visit.columns)] = visit.candidates[chosen]
            values[site.name] = entries.reshape(site.shape)

    def _run(self, values: Values) -> dict[str, dict[str, Any]]:
        """Sites of the program at given values; the lists of values made at the start must still be right."""
        nodes = sample_nodes(self._program.run(values))
        for site in self._sites:
            if isinstance(self._dependence, str) or site.name in self._dependence.loose:
                check_support(site, nodes[site.name]["fn"])
        return nodes

    def _together(self, site: DiscreteSite, visit: Visit, values: Values, row: int | None) -> torch.Tensor:
        """Logits (rows, candidates) from one run with the candidates in a new leftmost dimension."""
        count = len(visit.candidates)
        # Candidates in a dimension of their own, left of all batch dimensions of the program.
        entries = site.rows(values[site.name]).expand(count, -1, -1).clone()
        where = slice(None) if row is None else slice(row, row + 1)
        entries[:, where, list(visit.columns)] = visit.candidates[:, None]
        padding = (1,) * (self._num_dims - len(site.batch_shape))
        proposed = entries.reshape(count, *padding, *site.shape)
        nodes = self._run({**values, site.name: proposed})
        # The law of the site itself by its conditional, all others by what they say of each candidate.
        total = torch.zeros(count, site.num_rows if row is None else 1, dtype=torch.float64, device=entries.device)
        for name in self._relevant[site.name]:
            node = nodes[name]
            law, _ = split_law(node["fn"])
            if name == site.name and law is not None:
                of_site = own_log_prob(node, visit, values[name], site)
                total = total + (of_site if row is None else of_site[:, row : row + 1])
                continue
            is_changed = [self._is_changed(part, event_dim, count) for part, event_dim in log_z_factors(node)]
            total = total + self._split(log_prob_of(node, any(is_changed)), count, site, row, name)
        return total.T

    def _is_changed(self, part: Any, event_dim: int, count: int) -> bool:
        """Whether a part of a term differs between candidates, which have a dimension of their own if it does."""
        if not isinstance(part, torch.Tensor):
            return False
        lead = math.prod(part.shape[: max(part.dim() - event_dim - self._num_dims, 0)])
        if lead == 1:
            return False
        if lead != count:
            raise _NotVectorised(f"a part of a log-linear law has the shape {tuple(part.shape)}")
        part = part.reshape(count, -1)
        return bool((part != part[:1]).any())

    def _split(self, term: torch.Tensor, count: int, site: DiscreteSite, row: int | None, name: str) -> torch.Tensor:
        """Sum of a term over everything but candidates and rows, (candidates, rows)."""
        # A term without a dimension of candidates does not depend on them.
        first = max(term.dim() - self._num_dims, 0)
        lead = math.prod(term.shape[:first])
        if lead == 1:
            return term.new_zeros(count, 1, dtype=torch.float64)
        shape = f"the log-probability of {name!r} has the shape {tuple(term.shape)}"
        if lead != count:
            raise _NotVectorised(shape)
        term = term.double().reshape(count, *term.shape[first:])
        if row is not None:
            return term.reshape(count, -1).sum(1, keepdim=True)
        wanted = (1,) * (self._num_dims - len(site.batch_shape)) + tuple(site.batch_shape)
        extra = [i + 1 for i, size in enumerate(wanted) if size == 1]
        term = term.sum(extra, keepdim=True) if extra else term
        if term.shape[1:] != wanted:
            raise _NotVectorised(shape)
        return term.reshape(count, site.num_rows)

    def _one_by_one(self, site: DiscreteSite, visit: Visit, values: Values, row: int) -> tuple[torch.Tensor, float]:
        """Logits (1, candidates) of one row from one run per candidate, and the rounding error they may have."""
        # One run a candidate.
        traces: list[dict[str, Any]] = []
        for candidate in visit.candidates:
            entries = site.rows(values[site.name]).clone()
            entries[row, list(visit.columns)] = candidate
            nodes = self._run({**values, site.name: entries.reshape(site.shape)})
            traces.append({name: nodes[name] for name in self._relevant[site.name]})
        # What no candidate moves cancels, and is left out before rounding can tell it apart.
        total = torch.zeros(len(traces), dtype=torch.float64, device=visit.candidates.device)
        error = 0.0
        for name, node in traces[0].items():
            law, _ = split_law(node["fn"])
            if name == site.name and law is not None:
                total = total + own_log_prob(node, visit, values[name], site)[:, row]
                continue
            others = [trace[name] for trace in traces]
            with_log_z = needs_log_z(others)
            terms = [log_prob_of(other, with_log_z) for other in others]
            stacked = torch.stack([term.double().reshape(-1) for term in terms])
            is_moved = (stacked != stacked[:1]).any(0)
            stacked = torch.where(is_moved, stacked, 0.0)
            total = total + stacked.sum(1)
            size = stacked.abs().nan_to_num(posinf=0.0).sum(1).max()
            error += 32 * torch.finfo(terms[0].dtype).eps * float(size)
        return total.unsqueeze(0), error

    # The choice of the evaluation

    def _choose(self, site: DiscreteSite, values: Values) -> Mode:
        nodes = sample_nodes(self._program.run(values))
        if isinstance(self._dependence, str):
            # A value decides what the program does, which may differ in other states: nothing seen now is certain.
            self._relevant[site.name] = frozenset(nodes)
            return self._slow(site, "one by one", self._dependence, _IN_TENSORS)
        # Sites that depend on this one enter its full conditional.
        followers = self._dependence.followers[site.name]
        self._relevant[site.name] = followers | {site.name}
        node = nodes[site.name]
        law, mask = split_law(node["fn"])
        is_plain = mask is True and node["mask"] is None and bool(torch.as_tensor(node["scale"]).eq(1).all())
        if law is not None and is_plain and not followers:
            return "law alone"
        if not self._is_parallel:
            return self._slow(site, "one by one", "parallel is False", "leave parallel at True")
        if (estimated := self._estimated(site, nodes)) is not None:
            why = f"the log Z of {estimated!r}, which depends on it, is an estimate with a seed"
            return self._slow(site, "one by one", why, _EXACT)
        # The fastest mode that gives what one by one gives, at this state and at a random one.
        generator = torch.Generator().manual_seed(0)
        random_state = {**values, **{s.name: s.random_value(generator).to(values[s.name]) for s in self._sites}}
        why = self._undeclared(site, nodes)
        modes: list[Mode] = ["rows together"] if why is None else []
        if site.num_rows > 1:
            modes.append("row by row")
        for mode in modes:
            fault = None
            for state in (values, random_state):
                fault = fault or self._disagreement(site, mode, state, generator)
            if fault is None:
                return mode if why is None else self._slow(site, mode, why, _IN_SHAPE)
            why = fault if why is None else f"{why}; and row by row {fault}"
        assert why is not None
        return self._slow(site, "one by one", why, _IN_SHAPE)

    def _slow(self, site: DiscreteSite, mode: Mode, reason: str, advice: str) -> Mode:
        """A mode that is not the fastest, with one sentence on why and on what would be."""
        self.reasons[site.name] = f"{mode}, because {reason}; {advice}"
        return mode

    def _estimated(self, site: DiscreteSite, nodes: Mapping[str, Any]) -> str | None:
        """A site whose estimated log Z depends on the given one: rows of a batch have their own random numbers."""
        assert not isinstance(self._dependence, str)
        for name in sorted(self._relevant[site.name]):
            is_law = split_law(nodes[name]["fn"])[0] is not None
            is_constant = is_law and (name == site.name or site.name not in self._dependence.log_z[name])
            if not is_constant and has_estimate(nodes[name]["fn"]):
                return name
        return None

    def _undeclared(self, site: DiscreteSite, nodes: Mapping[str, Any]) -> str | None:
        """What is not in the plates that make the rows independent, in a clause; None if everything is."""
        plates = {dim: name for name, dim in site.plates}
        long = [i - len(site.batch_shape) for i, size in enumerate(site.batch_shape) if size > 1]
        if bare := [dim for dim in long if dim not in plates]:
            return f"its batch dimension {bare[0]} is not that of a pyro.plate"
        needed = {(plates[dim], dim) for dim in long}
        for name in sorted(self._relevant[site.name]):
            frames = {(frame.name, frame.dim) for frame in nodes[name]["cond_indep_stack"]}
            if outside := sorted(needed - frames):
                return f"site {name!r} depends on it and is outside the plate {outside[0][0]!r}"
        return None

    def _disagreement(self, site: DiscreteSite, mode: Mode, values: Values, generator: torch.Generator) -> str | None:
        """What keeps a mode from giving what candidates one by one give, on all or many visits; or None."""
        visits = [visit for visit in site.visits if len(visit.candidates) > 1]
        if len(visits) > _MOST_CHECKED_VISITS:
            chosen = torch.randperm(len(visits), generator=generator)[:_MOST_CHECKED_VISITS]
            visits = [visits[int(i)] for i in chosen]
        # So many rows that the comparison stays short, the first and the last among them.
        runs = sum(len(visit.candidates) for visit in visits)
        most = max(2, min(_MOST_CHECKED_ROWS, _CHECKED_RUNS // max(runs, 1)))
        rows = list(range(site.num_rows))
        if len(rows) > most:
            others = 1 + torch.randperm(len(rows) - 2, generator=generator)[: most - 2]
            rows = [0, len(rows) - 1, *others.tolist()]
        # Every visit, both ways.
        for visit in visits:
            try:
                together = self._together(site, visit, values, None) if mode == "rows together" else None
                for row in rows:
                    logits = self._together(site, visit, values, row) if together is None else together[row : row + 1]
                    if not is_same_law(logits, *self._one_by_one(site, visit, values, row)):
                        return "candidates side by side get other log-probabilities than each by itself"
            except _NotVectorised as error:
                return f"{error} for candidates side by side"
            except (RuntimeError, IndexError, ValueError, TypeError) as error:
                # Whatever is wrong with the program itself shows again one by one.
                return f"the program raises {brief(error)} for candidates side by side"
        return None
