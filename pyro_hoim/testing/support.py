"""Conformance of models, laws and results with impossible states, which every method must give probability zero.

A family that can have zeros makes a ``SupportCase`` with the probabilities of all its states, found in another way:
``pytest.mark.parametrize`` over ``SUPPORT_CHECKS``, or in one call ``check_support``, which reports every check that
failed.
"""

from __future__ import annotations

import itertools
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.distributions import kl_divergence

from ..core.operations import save, stored_model
from ..data.frames import as_observations
from ..data.observations import Observations
from ..errors import DataWarning, InputError
from ..log_linear.auto import Auto
from ..log_linear.energy import LogLinearEnergy
from ..results.fitted import LoadedModel
from ..schema import Domain
from .assertions import assert_close, assert_equal, assert_exact_law, required_draws
from .conformance import run_cases
from .oracles import as_array, count_states, enumerate_codes

Evidence = Mapping[str, int]


@dataclass(frozen=True)
class SupportCase:
    r"""What can be asked of a model with impossible states, and the probabilities that the answers must agree with.

    :meth:`of` makes the case of an energy, of a law, and of the result of a fit or a loaded model. Of others give the
    questions that they answer; those left out are not checked.

    Args:
        domain: the variables.
        log_probs: exact log-probabilities (\*cardinalities), nats, minus infinity where a state is impossible.
        log_prob: log-probabilities (n,) of states (n, d).
        draw: states (n, d) by their number, a seed and what they are given, codes by name.
        marginal: probabilities (\*cardinalities) of some variables by name.
        conditional: probabilities of the levels of one variable given codes of others; an InputError of the code
            "impossible", or NaN, where these are impossible together.
        mode: a most probable state, (d,).
        entropy: in nats.
        divergence: from this model to that of another case, in nats.
        copied: the case of what comes back from a pickle or a file; one that has a copy itself is followed further.
        parameters: a tensor that requires a gradient, on which ``log_prob`` (and ``entropy``) depend.
        draws_exactly: whether draws are independent and follow the very law.
        smaller: the case of a model of the same kind whose support is a part of this one's.
        subject: the model itself, where there is one.

    Example:
        >>> from pyro_hoim import HierarchicalLogLinear, InteractionHypergraph
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = HierarchicalLogLinear(graph, torch.zeros(2), impossible=np.array([[False, False], [False, True]]))
        >>> with np.errstate(divide="ignore"):
        ...     case = SupportCase.of(law, np.log([[1 / 3, 1 / 3], [1 / 3, 0.0]]))
        >>> case.possible.tolist()
        [[True, True], [True, False]]
    """

    domain: Domain
    log_probs: np.ndarray
    log_prob: Callable[[torch.Tensor], Any]
    draw: Callable[[int, int, Evidence], torch.Tensor] | None = None
    marginal: Callable[[Sequence[str]], Any] | None = None
    conditional: Callable[[str, Evidence], Any] | None = None
    mode: Callable[[], torch.Tensor] | None = None
    entropy: Callable[[], Any] | None = None
    divergence: Callable[[SupportCase], Any] | None = None
    copied: Callable[[], SupportCase] | None = None
    parameters: torch.Tensor | None = None
    draws_exactly: bool = True
    smaller: SupportCase | None = None
    subject: Any = None

    @classmethod
    def of(cls, subject: Any, log_probs: Any, **options: Any) -> SupportCase:
        """The case of an energy, a law without a batch, or a result; ``options`` replace what is found in it.

        Of an energy ``backend`` is asked, ``Auto()`` if it is not given.
        """
        table = as_array(log_probs)
        if isinstance(subject, LogLinearEnergy):
            return cls(**{**_of_energy(subject, table, options.pop("backend", Auto())), **options})
        make = _of_law if isinstance(subject, torch.distributions.Distribution) else _of_result
        return cls(**{**make(subject, table), **options})

    @property
    def possible(self) -> np.ndarray:
        r"""Which states are possible, (\*cardinalities)."""
        return self.log_probs > -np.inf

    @property
    def states(self) -> torch.Tensor:
        """All states (num_states, d), long."""
        return torch.as_tensor(enumerate_codes(self.domain.cardinalities))

    def expected(self, names: Sequence[str], evidence: Evidence) -> np.ndarray:
        r"""Probabilities (\*cardinalities) of variables given evidence, by sums; NaN where that is impossible."""
        index = tuple(evidence.get(name, slice(None)) for name in self.domain.names)
        rest = [name for name in self.domain.names if name not in evidence]
        probs = np.exp(self.log_probs[index])
        summed = probs.sum(axis=tuple(i for i, name in enumerate(rest) if name not in names))
        order = [name for name in rest if name in names]
        with np.errstate(invalid="ignore"):
            return summed.transpose([order.index(name) for name in names]) / probs.sum()

    def evidences(self) -> list[dict[str, int]]:
        """Every level of every variable, every pair of levels of the first two, and all but one of some states."""
        names = self.domain.names
        known: list[dict[str, int]] = [{v.name: k} for v in self.domain for k in range(v.cardinality)]
        known += [
            dict(zip(names, pair, strict=False)) for pair in enumerate_codes(self.domain.cardinalities[:2]).tolist()
        ]
        some = enumerate_codes(self.domain.cardinalities)[:: max(1, self.log_probs.size // 6)].tolist()
        for number, state in enumerate(some):
            evidence = dict(zip(names, state, strict=True))
            del evidence[names[number % len(names)]]
            known.append(evidence)
        return [evidence for evidence in known if len(evidence) < len(names)]


def _of_energy(model: LogLinearEnergy, log_probs: np.ndarray, backend: Any) -> dict[str, Any]:
    """The questions that an energy and a backend answer."""

    def conditional(name: str, evidence: Evidence) -> torch.Tensor:
        rest, constant = model.condition(evidence)
        probs = backend.marginal(rest, [name])
        return torch.where(constant == -torch.inf, torch.nan, probs)

    def draw(number: int, seed: int, evidence: Evidence) -> torch.Tensor:
        rest, _ = model.condition(evidence)
        drawn = backend.sample(rest, (number,), torch.Generator().manual_seed(seed))
        return _with_evidence(model.domain, drawn, evidence)

    def again() -> SupportCase:
        model_again = pickle.loads(pickle.dumps(model))  # noqa: S301 (our own bytes)
        return SupportCase.of(model_again, log_probs, backend=backend, copied=_file_of(model, log_probs))

    return {
        "domain": model.domain,
        "log_probs": log_probs,
        "log_prob": lambda states: -model.energy(states) - backend.log_partition(model).value,
        "draw": draw,
        "marginal": lambda names: backend.marginal(model, names),
        "conditional": conditional,
        "mode": lambda: backend.mode(model)[0],
        "copied": again,
        "parameters": model.tables if model.tables.requires_grad else None,
        "draws_exactly": backend.is_exact,
        "subject": model,
    }


def _of_law(law: Any, log_probs: np.ndarray) -> dict[str, Any]:
    """The questions that a distribution answers."""

    def draw(number: int, seed: int, evidence: Evidence) -> torch.Tensor:
        rest = law.condition(evidence) if evidence else law
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return _with_evidence(law.domain, rest.sample((number,)), evidence)

    def again() -> SupportCase:
        law_again = pickle.loads(pickle.dumps(law))  # noqa: S301 (our own bytes)
        return SupportCase.of(law_again, log_probs, copied=_file_of(law, log_probs))

    try:
        has_divergence = kl_divergence(law, law) is not None
    except NotImplementedError:
        has_divergence = False
    parameters = getattr(law, "theta", None)
    is_leaf = isinstance(parameters, torch.Tensor) and parameters.is_leaf and parameters.requires_grad
    return {
        "domain": law.domain,
        "log_probs": log_probs,
        "log_prob": law.log_prob,
        "draw": draw,
        "marginal": lambda names: _ordered(law.marginal(names).probs, law.domain, names),
        "conditional": lambda name, evidence: law.condition(evidence).marginal([name]).probs,
        "mode": lambda: law.mode,
        "entropy": law.entropy,
        "divergence": (lambda other: kl_divergence(law, other.subject)) if has_divergence else None,
        "copied": _file_of(law, log_probs) if is_leaf else again,
        "parameters": parameters if is_leaf else None,
        "draws_exactly": law.sample_is_exact,
        "subject": law,
    }


def _of_result(result: Any, log_probs: np.ndarray) -> dict[str, Any]:
    """The questions that a result of a fit, or a loaded model, answers by data frames."""
    _, stored = stored_model(result)
    domain: Domain = stored.domain

    def frame(codes: torch.Tensor) -> Any:
        return Observations.from_tensor(codes, domain).to_pandas(count=None)

    def draw(number: int, seed: int, evidence: Evidence) -> torch.Tensor:
        given = {name: domain[name].labels[code] for name, code in evidence.items()}
        return as_observations(result.sample(number, seed=seed, given=given or None), domain=domain).codes

    def conditional(name: str, evidence: Evidence) -> np.ndarray:
        codes = torch.tensor([[evidence.get(n, -1) for n in domain.names]])
        with warnings.catch_warnings():  # of rows without a prediction, whose numbers are looked at
            warnings.simplefilter("ignore", DataWarning)
            predicted = result.predict(frame(codes), name)
        return predicted[[f"p({label})" for label in domain[name].labels]].to_numpy(dtype=float)[0]

    return {
        "domain": domain,
        "log_probs": log_probs,
        "log_prob": lambda states: result.row_log_likelihood(frame(states)).to_numpy(),
        "draw": draw,
        "conditional": conditional,
        "copied": _file_of(result, log_probs),
        "subject": result,
    }


def _file_of(model: Any, log_probs: np.ndarray) -> Callable[[], SupportCase] | None:
    """What makes the case of the file of a model; None where its family has no files."""
    if getattr(type(model), "model_kind", None) is None and not hasattr(model, "kind"):
        return None

    def loaded() -> SupportCase:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "model.safetensors"
            save(model, path)
            stored = stored_model(model)[0].read(path)
            again = LoadedModel(stored.kind, stored.model, stored.domain, stored.info)
            return SupportCase.of(again, log_probs, copied=None)

    return loaded


def _with_evidence(domain: Domain, drawn: torch.Tensor, evidence: Evidence) -> torch.Tensor:
    """States (n, d) of those of the other variables."""
    states = drawn.new_zeros(len(drawn), len(domain))
    free = [i for i, name in enumerate(domain.names) if name not in evidence]
    states[:, free] = drawn
    for name, code in evidence.items():
        states[:, domain.index(name)] = code
    return states


def _ordered(probs: torch.Tensor, domain: Domain, names: Sequence[str]) -> torch.Tensor:
    """A table whose axes are in schema order, in the order of the names."""
    there = sorted(names, key=domain.index)
    return probs.permute([there.index(name) for name in names])


# The checks.


def check_support_log_prob(case: SupportCase) -> None:
    """Log-probabilities of all states: minus infinity exactly where they are impossible, without NaN."""
    assert_close(case.log_prob(case.states), case.log_probs.ravel(), relative=1e-8, what="log_prob")


def check_support_total(case: SupportCase) -> None:
    """Probabilities of the possible states sum to one; an enumerated support has these alone."""
    values = as_array(case.log_prob(case.states))
    assert_close(np.exp(values[case.possible.ravel()]).sum(), 1.0, relative=1e-8, what="total of the possible states")
    if hasattr(case.subject, "enumerate_support"):
        listed = case.subject.enumerate_support(expand=False).reshape(-1, len(case.domain))
        total = as_array(case.log_prob(listed))
        assert_close(np.exp(total).sum(), 1.0, relative=1e-8, what="total of the enumerated support")


def check_support_draws(case: SupportCase) -> None:
    """Draws are possible, given evidence too, and follow the law where they are exact (seed 7)."""
    if case.draw is None:
        return
    probs = np.exp(case.log_probs).ravel()
    number = required_draws(max(2, int(case.possible.sum())), 0.05) if case.draws_exactly else 500
    counts = _check_inside(case, case.draw(number, 7, {}), "draws")
    if case.draws_exactly:
        assert_exact_law(counts[probs > 0], probs[probs > 0] / probs.sum(), what="draws")
    for evidence in case.evidences():
        if not np.isnan(case.expected((), evidence)):
            _check_inside(case, case.draw(50, 8, evidence), f"draws given {evidence}")


def _check_inside(case: SupportCase, states: torch.Tensor, what: str) -> np.ndarray:
    """Number of draws (num_states,) in every state, none of which is impossible."""
    counts = count_states(states, case.domain.cardinalities)
    assert_equal(int(counts[~case.possible.ravel()].sum()), 0, f"impossible states among {what}")
    return counts


def check_support_mode(case: SupportCase) -> None:
    """The mode is possible, and no state is more probable."""
    if case.mode is not None:
        value = case.log_probs[tuple(int(code) for code in case.mode())]
        assert_close(value, case.log_probs.max(), what="log-probability of the mode")


def check_support_marginals(case: SupportCase) -> None:
    """Marginals of every variable, of pairs and of all in another order, zero exactly where nothing is possible."""
    if case.marginal is None:
        return
    names = case.domain.names
    for wanted in [*((name,) for name in names), *itertools.pairwise(names), tuple(reversed(names))]:
        probs = as_array(case.marginal(wanted))
        expected = case.expected(wanted, {})
        assert_close(probs, expected, relative=1e-8, what=f"marginal {wanted}")
        assert_equal((probs > 0).tolist(), (expected > 0).tolist(), f"where the marginal {wanted} is not zero")


def check_support_conditioning(case: SupportCase) -> None:
    """Conditional probabilities given possible evidence; of impossible evidence one error, or NaN."""
    if case.conditional is None:
        return
    for evidence in case.evidences():
        name = next(n for n in case.domain.names if n not in evidence)
        expected = case.expected((name,), evidence)
        try:
            probs = as_array(case.conditional(name, evidence))
        except InputError as error:
            refused = error.code == "impossible" and bool(np.isnan(expected).all())
            assert_equal(refused, True, f"a refusal of impossible evidence alone, {evidence}: {error}")
            continue
        assert_equal(np.isnan(probs).tolist(), np.isnan(expected).tolist(), f"where {name} given {evidence} is NaN")
        assert_close(np.nan_to_num(probs), np.nan_to_num(expected), relative=1e-8, what=f"{name} given {evidence}")


def check_support_entropy(case: SupportCase) -> None:
    """Entropy, to which impossible states add nothing."""
    if case.entropy is not None:
        logs = case.log_probs[case.possible]
        assert_close(case.entropy(), -(np.exp(logs) * logs).sum(), relative=1e-8, what="entropy")


def check_support_divergence(case: SupportCase) -> None:
    """Divergence zero from itself, infinite to a law of a smaller support, and from that one finite."""
    if case.divergence is None:
        return
    assert_close(case.divergence(case), 0.0, relative=1e-8, what="divergence from itself")
    if case.smaller is not None and case.smaller.divergence is not None:
        assert_equal(float(as_array(case.divergence(case.smaller))), np.inf, "divergence to a smaller support")
        logs, others = (each.log_probs[case.smaller.possible] for each in (case.smaller, case))
        expected = (np.exp(logs) * (logs - others)).sum()
        assert_close(case.smaller.divergence(case), expected, relative=1e-8, what="divergence from a smaller support")


def check_support_gradients(case: SupportCase) -> None:
    """Gradients are finite, also of impossible states, and the mean of the score is zero."""
    parameters = case.parameters
    if parameters is None:
        return
    gradient = partial(
        torch.autograd.grad, inputs=parameters, retain_graph=True, allow_unused=True, materialize_grads=True
    )
    possible = torch.from_numpy(case.possible.ravel())
    values = case.log_prob(case.states)
    (score,) = gradient((values.detach().exp() * values)[possible].sum())
    assert_close(score, torch.zeros_like(score), absolute=1e-8, what="mean score")
    for states in (case.states, case.states[~possible]):
        (slope,) = gradient(case.log_prob(states).sum())
        assert_equal(bool(torch.isfinite(slope).all()), True, "a finite gradient of log_prob")
    numbers = [case.entropy()] if case.entropy is not None else []
    if case.divergence is not None and case.smaller is not None and case.smaller.divergence is not None:
        numbers += [case.divergence(case.smaller), case.smaller.divergence(case)]
    for number in numbers:
        (slope,) = gradient(number.sum())
        assert_equal(bool(torch.isfinite(slope).all()), True, "a finite gradient of entropy and divergence")


def check_support_copies(case: SupportCase) -> None:
    """What comes back from a pickle or a file gives the same probabilities and draws possible states."""
    copy = case
    while copy.copied is not None:
        copy = copy.copied()
        check_support_log_prob(copy)
        if copy.draw is not None:
            _check_inside(case, copy.draw(200, 9, {}), "draws of a copy")


SUPPORT_CHECKS: tuple[Callable[[SupportCase], None], ...] = (
    check_support_log_prob,
    check_support_total,
    check_support_mode,
    check_support_marginals,
    check_support_conditioning,
    check_support_entropy,
    check_support_divergence,
    check_support_gradients,
    check_support_draws,
    check_support_copies,
)
"""Every check of impossible states, called with a ``SupportCase``."""


def check_support(case: SupportCase, skip: Iterable[str] = ()) -> None:
    """Run every check of impossible states and report all that fail; ``skip`` names checks not to run.

    Example:
        >>> from pyro_hoim import HierarchicalLogLinear, InteractionHypergraph
        >>> graph = InteractionHypergraph.from_order(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> theta = torch.zeros(2, dtype=torch.float64)
        >>> law = HierarchicalLogLinear(graph, theta, impossible=np.array([[False, False], [False, True]]))
        >>> with np.errstate(divide="ignore"):
        ...     log_probs = np.log([[1 / 3, 1 / 3], [1 / 3, 0.0]])
        >>> check_support(SupportCase.of(law, log_probs))
        >>> check_support(SupportCase.of(HierarchicalLogLinear(graph, theta), log_probs))  # it forgets the zero
        Traceback (most recent call last):
        AssertionError: ... checks failed:
        support: check_support_log_prob: AssertionError: log_prob: 4 of 4 entries out of tolerance ...
    """
    run_cases(SUPPORT_CHECKS, [("support", case)], skip)
