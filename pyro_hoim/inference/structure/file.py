"""Files of posteriors over structure: safetensors with a JSON header, as model files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, get_args

import torch

from ...data.observations import Observations
from ...errors import check_type, conflict
from ...log_linear.named_priors import Prior
from ...runs.container import STRUCTURE_POSTERIOR, plain, read_model, stored, write_container
from ...runs.rules import DOMAIN, FLAG, NAME, NUMBER, WHOLE, Either, Fields, Row, one_of, optional
from ...schema import Domain
from .evidence import EvidenceMethod
from .posterior import Status, StructurePosterior
from .prior import StructurePrior
from .scorer import StructureEvidence
from .space import SpaceName

__all__ = ["load_structure_posterior", "save_structure_posterior"]

_ROUNDING = 1e-9
_CONTENTS = {
    "domain": DOMAIN,
    "space": Fields({"space": one_of(*get_args(SpaceName)), "max_order": WHOLE, "heredity": NUMBER}),
    "inclusion": Either(NUMBER, Row(one_of("beta"), NUMBER, NUMBER)),
    "evidence": Fields({"prior": NAME, "method": one_of(*get_args(EvidenceMethod)), "seed": WHOLE}),
    "result": Fields({"num_effective": optional(NUMBER), "is_exact": FLAG, "status": one_of(*get_args(Status))}),
}


def save_structure_posterior(
    path: str | os.PathLike[str], posterior: StructurePosterior, info: Mapping[str, Any] | None = None
) -> None:
    """Write a posterior over structure, replacing an existing file in a single step.

    The file holds the collections with their log evidence and probabilities, the draws of chains, the distinct rows and
    the priors, so that everything that can be asked of the posterior can be asked again. Reading it executes nothing.

    Args:
        path: the file; its folder must exist.
        posterior: what to write; its prior of theta has a name (:class:`~pyro_hoim.log_linear.Prior`).
        info: further JSON values.

    Raises:
        InputError: a prior that is a function, which no file can hold.
        InputTypeError: ``posterior`` is none.
        ModelFileError: the folder does not exist, or the file cannot be written.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import Domain, Observations
        >>> from pyro_hoim.inference import enumerate_structures
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[9, 1], [1, 9]])
        >>> posterior = enumerate_structures(rows)
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_structure_posterior(f"{folder}/posterior.safetensors", posterior)
        ...     kept = load_structure_posterior(f"{folder}/posterior.safetensors")
        >>> kept.num_structures, kept.inclusion["a", "b"] == posterior.inclusion["a", "b"]
        (2, True)
    """
    check_type(posterior, StructurePosterior, "posterior")
    evidence, law = posterior.evidence, posterior.structure_prior
    if not isinstance(evidence.prior, Prior):
        raise conflict("posterior", "its prior is a function, which a file cannot hold", "name the prior by a text")
    contents = {
        "domain": law.space.domain.to_json(),
        "space": {"space": law.space.name, "max_order": law.space.max_order, "heredity": law.space.heredity},
        "inclusion": list(law.inclusion) if isinstance(law.inclusion, tuple) else law.inclusion,
        "evidence": {"prior": str(evidence.prior), "method": evidence.method, "seed": evidence.seed},
        "result": {name: getattr(posterior, name) for name in ("num_effective", "is_exact", "status")},
        "info": plain(info or {}, "info"),
    }
    tensors = {
        "gamma": posterior.gamma.to(torch.uint8),
        "log_evidence": posterior.log_evidence,
        "probabilities": posterior.probabilities,
        "codes": posterior.data.codes,
        "counts": posterior.data.counts,
        **({} if posterior.data.has_whole_counts else {"squares": posterior.data.squared_weights}),
        **{name: value for name in ("index", "theta") if (value := getattr(posterior, name)) is not None},
    }
    write_container(path, STRUCTURE_POSTERIOR, contents, {name: stored(value) for name, value in tensors.items()})


def load_structure_posterior(path: str | os.PathLike[str]) -> StructurePosterior:
    """Read a posterior over structure; numbers and draws come back exactly as they were written.

    Args:
        path: the file.

    Raises:
        ModelFileError: no such file, not a readable safetensors file (damaged or truncated), written by another
            program, of another format version, of another kind, or with contents that do not fit together.

    Example:
        >>> load_structure_posterior("missing.safetensors")
        Traceback (most recent call last):
            ...
        pyro_hoim.errors.ModelFileError: missing.safetensors: no such file
    """
    return read_model(path, STRUCTURE_POSTERIOR, _CONTENTS, _built)


def _built(header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> StructurePosterior:
    """What header and tensors stand for."""
    domain = Domain.from_json(header["domain"])
    inclusion = header["inclusion"]
    law = StructurePrior(
        domain, **header["space"], inclusion=tuple(inclusion) if isinstance(inclusion, list) else inclusion
    )
    rows = Observations(domain, tensors["codes"], tensors["counts"], "squares" in tensors, tensors.get("squares"))
    evidence = StructureEvidence(rows, law.space, **header["evidence"])
    _check_collections(law, tensors["gamma"], tensors["log_evidence"], tensors["probabilities"])
    index, theta = tensors.get("index"), tensors.get("theta")
    # Draws of chains that meet every collection as often as its share says, and finite theta for each
    shares = tensors["probabilities"]
    if index is not None:
        if index.dtype != torch.long or index.dim() != 2 or not bool(((index >= 0) & (index < len(shares))).all()):
            raise conflict("index", "it does not point at collections")
        counts = torch.bincount(index.flatten(), minlength=len(shares)).double()
        if not torch.allclose(counts / index.numel(), shares, rtol=0, atol=_ROUNDING):
            raise conflict("index", "the draws are not those of the probabilities")
    if theta is not None:
        shape = None if index is None else (*index.shape, law.largest.num_parameters)
        if theta.shape != shape or theta.dtype != torch.float64 or not bool(theta.isfinite().all()):
            raise conflict("theta", "there is not one finite value for every draw")
    result = header["result"]
    if result["num_effective"] is not None and result["num_effective"] <= 0:
        raise conflict("result", "no posterior has these values")
    listed = tensors["gamma"].bool(), tensors["log_evidence"], tensors["probabilities"]
    return StructurePosterior(evidence, law, *listed, index, theta, **result)


def _check_collections(law: StructurePrior, gamma: torch.Tensor, values: torch.Tensor, shares: torch.Tensor) -> None:
    """Distinct members of the space, each with its log evidence, and probabilities that sum to one."""
    if gamma.dtype != torch.uint8 or not bool((gamma <= 1).all()) or not bool(law.support.check(gamma.bool()).all()):
        raise conflict("gamma", "a collection lies outside the space")
    if not len(gamma) or len(gamma.unique(dim=0)) < len(gamma):
        raise conflict("gamma", "collections are repeated, or there are none")
    if any(value.dtype != torch.float64 or value.shape != gamma.shape[:1] for value in (values, shares)):
        raise conflict("gamma", "there is not one number for every collection")
    if bool(values.isnan().any()) or not (bool((shares >= 0).all()) and abs(float(shares.sum()) - 1) < _ROUNDING):
        raise conflict("probabilities", "they are not those of a law")
