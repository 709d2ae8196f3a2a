"""Chains of generalized root models for ArviZ: R-hat and effective sample sizes of every variable and of log q."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch

from ..errors import check_names, check_type, out_of_range, refused
from ..generalized_root.chains.run import RootRun
from .arviz import to_arviz
from .backend import BackendName
from .discrete_chains import MIN_DRAWS, ChainDiagnostics, Groups, checked_values, diagnose

__all__ = ["diagnose_root_chains", "root_chains_to_arviz"]


def diagnose_root_chains(
    run: RootRun,
    *,
    variables: Sequence[str] | None = None,
    functions: Mapping[str, Callable[[torch.Tensor], Any]] | None = None,
    backend: BackendName | None = None,
) -> ChainDiagnostics:
    r"""R-hat, effective sample sizes and Monte Carlo errors of variables and of log q, computed by ArviZ.

    Statistics that never change, such as given variables, are reported as constant with their value.

    Args:
        run: of :func:`~pyro_hoim.generalized_root.sample_root_chains`.
        variables: names of the variables to look at, all when None.
        functions: further statistics by name; each gets the draws (chains, draws, d) and returns a number per state.
        backend: see :func:`pyro_hoim.interop.choose_backend`.

    Shape:
        values of functions (chains, draws).

    Raises:
        InputError: fewer than 4 draws, values that are not finite, or a function called "log_q" or like a variable.
        InputTypeError: something else than such a run.
        UnknownNameError: a variable that is not in the domain.

    References:
        Vehtari et al., Rank-normalization, folding, and localization: an improved R-hat for assessing convergence of
        MCMC, Bayesian Analysis 16, 2021, equations (13) and (14) and section 4.3.

    Example:
        >>> from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootStructure
        >>> from pyro_hoim.generalized_root import sample_root_chains
        >>> from pyro_hoim.schema import Domain, Variable
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> model = GeneralizedRootEnergy(structure, torch.tensor([1.0]), PoissonFamily())
        >>> run = sample_root_chains(model, 200, generator=torch.Generator().manual_seed(0))
        >>> report = diagnose_root_chains(run)
        >>> [row.name for row in report], report.max_r_hat < 1.1
        (['log_q', 'a'], True)
    """
    check_type(run, RootRun, "run", "a run of sample_root_chains")
    if run.num_draws < MIN_DRAWS:
        raise out_of_range("run", f"at least {MIN_DRAWS} draws per chain", received=run.num_draws)
    names = list(run.domain.names if variables is None else variables)
    check_names(names, run.domain.names, "variables")
    lead = (run.num_chains, run.num_draws)
    groups: Groups = {"log_q": (["log_q"], checked_values(run.log_q, lead, "log_q")[..., None])}
    if names:
        draws = run.draws[..., list(run.domain.indices(names))]
        groups["variable"] = (names, draws.cpu().numpy())
    if functions:
        if taken := {"log_q", *names} & set(functions):
            raise refused("functions", f"the names {sorted(taken)} are taken", "choose others", code="repeated-name")
        values = [checked_values(f(run.draws), lead, f"functions[{name!r}]") for name, f in functions.items()]
        groups["function"] = (list(functions), np.stack(values, axis=-1))
    return diagnose(groups, backend)


def root_chains_to_arviz(run: RootRun, *, name: str = "x", backend: BackendName | None = None) -> Any:
    """Draws of a run as ArviZ data: ``InferenceData`` or, from ArviZ 1.0, ``DataTree``.

    The group ``posterior`` has one variable with the dimension ``variable``, whose coordinates are the names of the
    schema; ``sample_stats`` has log q as ``lp``.

    Args:
        run: of :func:`~pyro_hoim.generalized_root.sample_root_chains`.
        name: what the states are called.
        backend: see :func:`pyro_hoim.interop.choose_backend`.

    Raises:
        InputTypeError: something else than such a run.

    Example:
        >>> from pyro_hoim.generalized_root import GeneralizedRootEnergy, PoissonFamily, RootStructure
        >>> from pyro_hoim.generalized_root import sample_root_chains
        >>> from pyro_hoim.schema import Domain, Variable
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> model = GeneralizedRootEnergy(structure, torch.tensor([1.0]), PoissonFamily())
        >>> data = root_chains_to_arviz(sample_root_chains(model, 10, num_chains=2))
        >>> data.posterior["x"].dims, data.posterior["variable"].values.tolist()
        (('chain', 'draw', 'variable'), ['a'])
    """
    check_type(run, RootRun, "run", "a run of sample_root_chains")
    return to_arviz(
        {name: run.draws},
        sample_stats={"lp": run.log_q},
        coords={"variable": list(run.domain.names)},
        dims={name: ["variable"]},
        integer_sites=(),
        backend=backend,
    )
