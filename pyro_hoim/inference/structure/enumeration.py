"""Posteriors over collections by listing every one."""

from __future__ import annotations

import torch

from ...core.partition import PartitionBackend
from ...data.frames import DataLike, as_observations
from ...errors import check_type, out_of_reach
from .evidence import EvidenceMethod
from .posterior import StructurePosterior
from .prior import StructurePrior
from .scorer import StructureEvidence
from .space import MAX_LISTED
from .theta_prior import ThetaPrior

__all__ = ["enumerate_structures"]


def enumerate_structures(
    data: DataLike,
    prior: ThetaPrior = "unit",
    structure_prior: StructurePrior | None = None,
    *,
    method: EvidenceMethod = "auto",
    partition: PartitionBackend | None = None,
    seed: int = 0,
) -> StructurePosterior:
    r"""The posterior over all collections of a space, by the evidence of each.

    .. math:: p(\gamma \mid x) = \frac{p(\gamma)\, p(x \mid \gamma)}{\sum_{\gamma' \in \mathcal G} p(\gamma')\,
        p(x \mid \gamma')}

    For spaces of up to 2^16 collections: every hierarchical collection of five variables (6,894), every graph,
    decomposable graph or set of pairs of six. With priors by name and tables of up to 4,096 cells some ten thousand
    collections a second; decomposable ones with the conjugate prior are exact, all 18,154 of six variables in a second.

    Args:
        data: complete rows; weights are allowed, and no rows at all (the posterior is then the prior).
        prior: prior of theta given a collection, as in :func:`~pyro_hoim.inference.log_evidence`; a function makes one
            for every collection.
        structure_prior: prior over collections; every hierarchical one with the same probability when None.
        method: of the evidence, the same for all collections. ``auto`` is ``exact`` for the conjugate prior on
            decomposable ones, refused for this prior in other spaces, since closed forms and approximations do not
            compare, and ``laplace`` for other priors.
        partition: exact backend for tables that are not small; ``Auto()`` when None.
        seed: of ``bridge`` and ``path``.

    Raises:
        InputError: another domain, a flat prior, a distribution of one collection, a method that does not fit.
        InputTypeError: arguments of the wrong type.
        MissingDataError: missing cells.
        IntractableError: a space that is too large to be listed; its size is named.

    References:
        Adrian Raftery, Approximate Bayes factors and accounting for model uncertainty in generalised linear models,
        Biometrika 83, 1996, for averages over models.

    Example:
        >>> from pyro_hoim import load_table
        >>> table = load_table("czech_autoworkers")
        >>> decomposable = StructurePrior(table.domain, space="decomposable")
        >>> posterior = enumerate_structures(table, "conjugate:1", decomposable)
        >>> posterior.num_structures, posterior.status, round(posterior.inclusion["phys", "protein"], 3)
        (18154, 'exact', 0.743)
        >>> posterior.models(1)[0].hypergraph.maximal_edges
        (('family',), ('mental', 'phys'), ('systol', 'protein'), ('smoke', 'phys', 'protein'))
    """
    check_type(structure_prior, StructurePrior | None, "structure_prior")
    data = as_observations(data, domain=None if structure_prior is None else structure_prior.space.domain)
    structure_prior = StructurePrior(data.domain) if structure_prior is None else structure_prior
    space = structure_prior.space
    evidence = StructureEvidence(data, space, prior, method=method, partition=partition, seed=seed)
    members = space.members
    if members is None:
        problem = (
            f"the space {space.name!r} over {len(space.domain)} variables up to order {space.max_order} has "
            f"{space.size_text} collections, the limit of a list is {MAX_LISTED}"
        )
        raise out_of_reach("structure_prior", problem, "lower max_order, or draw collections by chains")
    log_evidence = torch.from_numpy(evidence.many(space.masks_of(members)))
    probabilities = torch.softmax(log_evidence + structure_prior.probs.log(), 0)
    status = "exact" if evidence.is_exact else "approximate"
    gamma = torch.from_numpy(members.copy())
    return StructurePosterior(
        evidence, structure_prior, gamma, log_evidence, probabilities, is_exact=evidence.is_exact, status=status
    )
