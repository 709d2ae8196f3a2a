"""Files of posteriors over structure: safetensors with a JSON header, as model files."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from ...data.observations import Observations
from ...errors import check_type, conflict
from ...log_linear.named_priors import Prior
from ...runs.container import STRUCTURE_POSTERIOR, fitting, read_container, stored, write_container
from ...schema import Domain
from .posterior import StructurePosterior
from .prior import StructurePrior
from .scorer import StructureEvidence

__all__ = ["load_structure_posterior", "save_structure_posterior"]


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
        "info": dict(info or {}),
    }
    tensors = {
        "gamma": posterior.gamma.to(torch.uint8),
        "log_evidence": posterior.log_evidence,
        "probabilities": posterior.probabilities,
        "codes": posterior.data.codes,
        "counts": posterior.data.counts,
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
    """
    target = Path(path)
    header, tensors = read_container(target, STRUCTURE_POSTERIOR)
    with fitting(target):
        domain = Domain.from_json(header["domain"])
        inclusion = header["inclusion"]
        law = StructurePrior(
            domain, **header["space"], inclusion=tuple(inclusion) if isinstance(inclusion, list) else inclusion
        )
        rows = Observations(domain, tensors["codes"], tensors["counts"])
        evidence = StructureEvidence(rows, law.space, **header["evidence"])
        gamma = tensors["gamma"].bool()
        if not bool(law.support.check(gamma).all()):
            raise conflict("gamma", "a collection lies outside the space")
        evidences, shares = tensors["log_evidence"], tensors["probabilities"]
        index = tensors.get("index")
        if any(value.shape != gamma.shape[:1] for value in (evidences, shares)) or (
            index is not None and not bool(((index >= 0) & (index < len(gamma))).all())
        ):
            raise conflict("gamma", "there is not one number for every collection")
        return StructurePosterior(
            evidence, law, gamma, evidences, shares, index, tensors.get("theta"), **header["result"]
        )
