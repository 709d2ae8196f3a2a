"""Model files of generalized root models: tensor entries as a tensor; family, domain, terms and information as JSON."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, Self, get_args

import torch
from typing_extensions import override

from ..checks import check_exact_shape
from ..errors import check_names, check_type, check_unique, refused
from ..runs.container import GENERALIZED_ROOT, ModelRecord, keep_contents, stored, take_parameters
from ..runs.rules import DOMAIN, NAME, NAMES, NUMBER, POSITIVE, WHOLE, Fields, Items, Leaf, MapOf, Rule, optional
from ..schema import Domain, NumberKind, Variable
from .energy import GeneralizedRootEnergy
from .frames import FRAME_RULE, RootColumns
from .nodes.columns import Families, NodeFamilies
from .nodes.families import IndicatorFamily, family_from_json, family_to_json, node_family
from .regress.errors import RootErrors, check_errors
from .structure import RootStructure

_DTYPES = (torch.float32, torch.float64)
_FROM_ONE = Leaf("a whole number from 1", (int,), lambda value: value >= 1)
_TERMS = Fields({"root": _FROM_ONE, "size": _FROM_ONE, "positions": Items(Items(WHOLE, 1), 1)})
_FAMILY = {"name": NAME, "maximum": optional(WHOLE)}
_MEMBER = Fields(_FAMILY, {"category": NAME})
_KIND = Leaf("a kind of numbers", (str,), lambda value: value in get_args(NumberKind))
_INFO = {
    "columns": NAMES,
    "fixed_columns": MapOf(NUMBER),
    "fixed_kinds": MapOf(_KIND),
    "fixed_families": MapOf(Fields(_FAMILY, {"category": NAME})),
    "scales": MapOf(POSITIVE),
    "frame": FRAME_RULE,
    "typical": MapOf(NUMBER),
    "dispersion": MapOf(POSITIVE),
    "no_errors": NAME,
}
"""Entries of the information that commands read."""


@dataclass(frozen=True, eq=False)
class RootFile(ModelRecord):
    """What the model file of a generalized root model holds; equal models give equal bytes.

    Args:
        structure: the terms with their domain.
        psi: tensor entries (*batch, num_terms); copied to the CPU, without gradient, as float32 or else float64.
        family: base family of all variables, or of every variable; those that
            :func:`~pyro_hoim.generalized_root.node_family` knows. As an attribute, the one family, or several as
            :class:`~pyro_hoim.generalized_root.NodeFamilies`.
        info: free-form JSON object of strings, finite numbers, booleans, None, lists and such objects.
        tensors: further tensors by name, stored as they are.

    Raises:
        InputError: wrong length of psi, NaN or infinite entries, variables of another kind than the family's, a family
            of somebody else's, a column of one value beside several families whose kind ``info`` does not state,
            information that is not JSON, or a further tensor named "psi".
        InputTypeError: an argument of another type.
    """

    model_kind: ClassVar[str] = GENERALIZED_ROOT
    parameters: ClassVar[str] = "psi"
    contents: ClassVar[Mapping[str, Rule]] = {
        "family": Fields(_FAMILY, {"each": Items(_MEMBER, 1)}),
        "domain": DOMAIN,
        "terms": Items(_TERMS),
    }

    structure: RootStructure
    psi: torch.Tensor
    family: Families
    info: dict[str, Any] = field(default_factory=dict[str, Any])
    tensors: dict[str, torch.Tensor] = field(default_factory=dict[str, torch.Tensor])

    def __post_init__(self) -> None:
        # Structure, entries and family that make a model, and that a file can name.
        families = GeneralizedRootEnergy(self.structure, self.psi, self.family).families
        object.__setattr__(self, "family", families.common or families)
        _describe(families)
        dtype = self.psi.dtype if self.psi.dtype in _DTYPES else torch.float64
        keep_contents(self, _INFO, psi=stored(self.psi).to(dtype))
        # Refuse columns, those of one value among them, that are not those of the model
        fixed, kinds = self.info.get("fixed_columns", {}), self.info.get("fixed_kinds", {})
        if families.common is None and not fixed.keys() <= kinds.keys():
            problem = "the kind of a column of one value is unknown where variables have several families"
            raise refused("info['fixed_columns']", problem, "state it in info['fixed_kinds']")
        check_names(kinds, list(fixed), "info['fixed_kinds']", noun="column")
        stated = self.info.get("fixed_families", {})
        check_names(stated, list(fixed), "info['fixed_families']", noun="column")
        for one in stated.values():
            family_from_json(one)  # refuses names of none
        names = self.info.get("columns", [*self.structure.domain.names, *fixed])
        check_unique(names, "info['columns']")
        if [name for name in names if name not in fixed] != list(
            self.structure.domain.names
        ) or not fixed.keys() <= set(names):
            raise refused("info['columns']", "they are not those of the model", code="other-domain")
        check_names(self.info.get("scales", {}), names, "info['scales']", noun="column")
        if (columns := self.columns) is not None:
            columns.check_domain(self.domain, "info['frame']")
            chosen = dict(zip(columns.domain.names, columns.families, strict=True))
            if any(chosen[name] != one for name, one in zip(self.structure.domain.names, families, strict=True)):
                raise refused("info['frame']", "its families are not those of the model", code="other-domain")
        # Further tensors that commands read.
        size = len(self.structure.domain) + len(self.info.get("fixed_columns", ()))
        for name in ("independent.first", "independent.second"):
            if name in self.tensors:
                check_exact_shape(self.tensors[name], (size,), f"tensors[{name!r}]")
        for name in ("typical", "dispersion"):
            check_names(self.info.get(name, {}), self.structure.domain.names, f"info['{name}']", noun="column")
        check_errors(self.tensors, self.structure.num_terms)
        scales = self.tensors.get("root_scales")
        if scales is not None:
            roots = max(
                2, self.structure.order, *scales.shape[1:2]
            )  # sets may be smaller than the roots that were searched
            check_exact_shape(scales, (size, roots), "tensors['root_scales']")

    @property
    def scales(self) -> Mapping[str, float]:
        """Standard deviations of the columns of a Gaussian model, where they are known; else empty."""
        stored = self.info.get("scales", {})
        if stored or self.columns is None or not self.families.is_gaussian:
            return stored
        return {column.name: column.spread for column in self.columns.columns}

    def set_of(self, variables: Sequence[str]) -> tuple[str, ...]:
        """The columns of some variables of the model, a category as one."""
        if self.columns is not None:
            return self.columns.set_of(variables)
        each = [self.families[self.structure.domain.index(name)] for name in variables]
        pairs = zip(variables, each, strict=True)
        return tuple(dict.fromkeys(one.category if isinstance(one, IndicatorFamily) else n for n, one in pairs))

    @property
    def fixed(self) -> dict[str, float]:
        """Value of every column that took one value when the model was learned, and is not part of it."""
        return {str(name): float(value) for name, value in self.info.get("fixed_columns", {}).items()}

    @cached_property
    def columns(self) -> RootColumns | None:
        """How the columns of a data frame became the variables; None where each is one as it is."""
        entry = self.info.get("frame")
        return None if entry is None else RootColumns.from_json(entry)

    @property
    def domain(self) -> Domain:
        """All columns, those of one value among them."""
        names = self.info.get("columns", [*self.structure.domain.names, *self.fixed])
        one, kinds = self.families.common, dict(self.info.get("fixed_kinds", {}))
        kinds |= {name: family.kind for name, family in zip(self.structure.domain.names, self.families, strict=True)}
        return Domain(Variable(name, kind=one.kind if one and name not in kinds else kinds[name]) for name in names)

    @property
    def families(self) -> NodeFamilies:
        """The family of every variable."""
        return NodeFamilies.of(self.family, self.structure.domain)

    @property
    def column_families(self) -> NodeFamilies:
        """The family of every column, those of one value among them: as stated, or else one of their kind."""
        if self.columns is not None:
            return self.columns.families
        stated = self.info.get("fixed_families", {})
        each = dict(zip(self.structure.domain.names, self.families, strict=True))
        for variable in self.domain:
            if variable.name in each:
                continue
            if variable.name in stated:
                each[variable.name] = family_from_json(stated[variable.name])
            else:
                each[variable.name] = self.families.common or node_family(_BY_KIND[variable.kind])
        return NodeFamilies.of(each, self.domain)

    @cached_property
    def units(self) -> Domain:
        """What the interactions are of: every category in place of its indicators, and every other column."""
        families = self.column_families
        if not families.blocks:
            return self.domain
        pairs = zip(self.domain, families, strict=True)
        each = [Variable(f.category, kind=v.kind) if isinstance(f, IndicatorFamily) else v for v, f in pairs]
        return Domain({variable.name: variable for variable in each}.values())

    @property
    def errors(self) -> RootErrors:
        """Standard errors of the coefficients, where the file holds them."""
        reason = str(self.info.get("no_errors", "the model file holds none"))
        return RootErrors.from_tensors(self.tensors, self.structure.num_terms, reason)

    def with_errors(
        self, errors: RootErrors, typical: Mapping[str, float], dispersion: Mapping[str, float] | None = None
    ) -> RootFile:
        """The same with standard errors, or the reason why there are none, typical values and ratios of variances."""
        info = {**self.info, "typical": dict(typical)} | ({"no_errors": errors.reason} if errors.reason else {})
        info |= {"dispersion": dict(dispersion)} if dispersion else {}
        return replace(self, info=info, tensors={**self.tensors, **errors.tensors()})

    @override
    def packed(self) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
        contents = {"family": _describe(self.families), **self.structure.to_json()}
        return contents, {"psi": self.psi, **self.tensors}

    @classmethod
    @override
    def unpacked(cls, header: dict[str, Any], tensors: dict[str, torch.Tensor]) -> Self:
        psi = take_parameters(tensors, "psi", *_DTYPES)
        stated = header["family"]
        family: Families = (
            [family_from_json(one) for one in stated["each"]] if "each" in stated else family_from_json(stated)
        )
        return cls(RootStructure.from_json(header), psi, family, header["info"], tensors)

    def energy(self, dtype: torch.dtype | None = None) -> GeneralizedRootEnergy:
        """The model, in the precision of the file or another one."""
        return GeneralizedRootEnergy(self.structure, self.psi, self.family).to(dtype=dtype)


def save_roots(path: str | os.PathLike[str], file: RootFile) -> None:
    """Write the model file of a generalized root model, in a folder that exists, replacing an existing one in a step.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import node_family
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_roots(folder + "/roots.safetensors", RootFile(structure, torch.ones(1), node_family("poisson")))
        ...     load_roots(folder + "/roots.safetensors").psi
        tensor([1.])
    """
    check_type(file, RootFile, "file")
    file.save(path)


def load_roots(path: str | os.PathLike[str]) -> RootFile:
    """Read the model file of a generalized root model; everything comes back exactly as it was written.

    Reading never executes code from the file. Raises :class:`~pyro_hoim.errors.ModelFileError` for no such file, one
    that is damaged, of another program, format version or kind of model, or with contents that do not fit together.

    Example:
        >>> import tempfile
        >>> from pyro_hoim import Domain, Variable
        >>> from pyro_hoim.generalized_root import node_family
        >>> structure = RootStructure.independent(Domain([Variable("a", kind="count")]))
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     save_roots(folder + "/m", RootFile(structure, torch.ones(1), node_family("truncated-poisson", 5)))
        ...     load_roots(folder + "/m").family
        TruncatedPoissonFamily(maximum=5)
    """
    return RootFile.load(path)


_BY_KIND = {"count": "poisson", "positive": "exponential", "real": "gaussian"}
_SEVERAL = "several"
"""Name of the family in a file where every variable has its own; no family has it, which older programs say."""


def _describe(families: NodeFamilies) -> dict[str, Any]:
    """JSON of the families, of one as older programs read it."""
    if families.common is not None:
        return family_to_json(families.common)
    return {"name": _SEVERAL, "maximum": None, "each": [family_to_json(family) for family in families]}
