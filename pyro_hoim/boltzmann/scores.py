"""Rows under a machine, some of whose cells may be missing: likelihoods, predictions, completions."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch

from ..core.partition import LogPartition
from ..core.prediction import Imputation, Prediction
from ..core.rows import row_patterns
from ..data.frames import DataLike, as_observations
from ..data.observations import Observations
from ..errors import check_names, check_whole, other_domain
from .law import BoltzmannMachine

__all__ = ["impute_machine", "log_likelihoods", "predict_machine", "row_log_pseudo_scores", "row_log_scores"]


def _evidence(data: Observations, rows: torch.Tensor, missing: tuple[str, ...]) -> Mapping[str, torch.Tensor]:
    codes = data.codes[rows]
    return {name: codes[:, i] for i, name in enumerate(data.domain.names) if name not in missing}


def _checked(law: BoltzmannMachine, data: DataLike, absent: Collection[str] = ()) -> Observations:
    data = as_observations(data, domain=law.domain, absent=absent)
    if data.domain != law.domain:
        raise other_domain("data", f"the variables {', '.join(map(repr, law.domain.names[:6]))} of the machine")
    return data


@torch.no_grad()
def row_log_scores(law: BoltzmannMachine, data: DataLike) -> torch.Tensor:
    r"""Log of :math:`\sum_{v_M} e^{-F(v)}` of every row with missing cells M, (N,), nats; without log Z.

    Complete rows cost a free energy; others log Z of the machine given what is known, exact or refused.

    Raises:
        InputError: rows of another domain.
        IntractableError: too many cells of a row are missing, and too many units hidden.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, torch.zeros(5))
        >>> rows = Observations.from_tensor(torch.tensor([[0, 1], [0, -1]]), structure.domain)
        >>> row_log_scores(law, rows).exp().round(decimals=4).tolist()  # states of the hidden unit, and of b with it
        [2.0, 4.0]
    """
    data = _checked(law, data)
    found = law.theta.new_zeros(len(data.codes))
    for missing, rows in row_patterns(data):
        if not missing:
            found[rows] = -law.free_energy(data.codes[rows])
            continue
        rest = law.condition(_evidence(data, rows, missing))
        known = torch.where(data.codes[rows] < 0, 0, data.codes[rows])
        # what is known alone: the free energy with the missing cells at 0, less the same of the rest
        zero = rest.free_energy(torch.zeros(len(missing), device=rest.theta.device))
        found[rows] = zero - law.free_energy(known) + rest.log_partition.value
    return found


@torch.no_grad()
def row_log_pseudo_scores(law: BoltzmannMachine, data: Observations) -> torch.Tensor:
    """Log pseudo-likelihood of every row, (N,); a missing cell is summed over and adds no factor of its own."""
    if not data.has_missing:
        return law.log_pseudo_prob(data.codes).double()
    found = torch.zeros(len(data.codes), dtype=torch.float64)
    for column, name in enumerate(data.domain.names):
        truth = data.codes[:, column]
        chosen = predict_machine(law, data, name).log_probs.gather(1, truth.clamp(min=0)[:, None]).squeeze(1)
        found += torch.where(truth < 0, 0.0, chosen)
    return found


@torch.no_grad()
def predict_machine(law: BoltzmannMachine, data: DataLike, target: str) -> Prediction:
    """Probabilities of one variable in every row given its other known cells, exact or refused.

    Args:
        law: one machine.
        data: rows over its variables; what they say of the target is not used.
        target: the variable.

    Raises:
        UnknownNameError, InputError, IntractableError: no such variable, or as of :func:`row_log_scores`.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, torch.tensor([0.0, 0.0, 0.0, 2.0, 2.0], dtype=torch.float64))
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), structure.domain)
        >>> predict_machine(law, rows, "b").log_probs.exp().round(decimals=3).tolist()  # of 1, then 1 + exp(2)
        [[0.193, 0.807], [0.131, 0.869]]
    """
    check_names([target], law.domain.names, "target")
    data = _checked(law, data, (target,))
    column, both = law.domain.index(target), []
    for level in (0, 1):
        codes = data.codes.clone()
        codes[:, column] = level
        both.append(row_log_scores(law, data.replaced(codes=codes)))
    log_probs = torch.stack(both, 1).log_softmax(1)
    exact, truth = torch.ones(len(data.codes), dtype=torch.bool), data.codes[:, column]
    labels = law.domain[target].labels
    error, squares = torch.zeros_like(log_probs), data.squared_weights
    return Prediction(target, labels, log_probs, error, exact, truth, data.counts, squares)


@torch.no_grad()
def impute_machine(law: BoltzmannMachine, data: DataLike, number: int = 1) -> Imputation:
    """Rows with their missing cells drawn given the known ones, ``number`` times: perfect draws, or refused.

    Randomness:
        PyTorch's global generator.

    Example:
        >>> from pyro_hoim import Domain
        >>> from pyro_hoim.boltzmann import MachineStructure
        >>> structure = MachineStructure.restricted(Domain.from_cardinalities({"a": 2, "b": 2}), 1)
        >>> law = BoltzmannMachine(structure, torch.tensor([0.0, -20.0, -60.0, 100.0, 40.0]))  # b follows a
        >>> rows = Observations.from_tensor(torch.tensor([[0, -1], [1, -1]]), structure.domain)
        >>> impute_machine(law, rows).codes.tolist()
        [[[0, 0], [1, 1]]]
    """
    data = _checked(law, data)
    check_whole(number, "number")
    codes = data.codes.expand(number, *data.codes.shape).clone()
    for missing, rows in row_patterns(data):
        if missing:
            rest = law.condition(_evidence(data, rows, missing))
            columns = torch.tensor(law.domain.indices(missing))
            codes[:, rows[:, None], columns] = rest.expand((len(rows),)).sample((number,))
    return Imputation(data, codes, torch.ones(len(data.codes), dtype=torch.bool), "draws")


def log_likelihoods(law: BoltzmannMachine, data: Observations, log_z: LogPartition) -> torch.Tensor:
    """Log-likelihood of every row, (N,), with a log Z that is known or estimated already."""
    return row_log_scores(law, data) - log_z.value.double()
