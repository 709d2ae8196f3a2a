"""The conditional law of one variable from a fitted classifier of another library."""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from typing import Any, Literal

import numpy as np
import torch

from ..errors import InputError, InputTypeError, check_names
from ..schema import Domain
from ._cells import check_codes
from .node_conditionals import check_reads, check_table, in_order, safe_log

__all__ = ["ClassifierConditional", "FeatureEncoding", "encode_features"]

FeatureEncoding = Literal["indicators", "codes"]


def encode_features(
    domain: Domain, x: torch.Tensor, reads: Iterable[str], encoding: FeatureEncoding = "indicators"
) -> np.ndarray:
    """States as the columns that a classifier is fitted on.

    Args:
        domain: the variables.
        x: codes; only the variables in ``reads`` are read.
        reads: names of the variables that become columns, in schema order whatever the order given.
        encoding: "indicators", one column of 0 and 1 per level, or "codes", one column per variable.

    Shape:
        x (*sample, d); result (number of states, number of columns), float64.

    Raises:
        UnknownNameError: an unknown name.
        InputError: a repeated name, another encoding, or a code that is read and is no level of its variable.

    Example:
        >>> domain = Domain.from_cardinalities({"a": 2, "b": 3})
        >>> encode_features(domain, torch.tensor([[0, 2], [1, 0]]), ["b"]).tolist()
        [[0.0, 0.0, 1.0], [1.0, 0.0, 0.0]]
    """
    if encoding not in ("indicators", "codes"):
        raise InputError(f"encoding: expected 'indicators' or 'codes', received {encoding!r}")
    positions = sorted(domain.indices(reads))
    codes = (
        check_codes(x, domain, columns=positions).reshape(x.shape[:-1].numel(), len(domain))[:, positions].cpu().numpy()
    )
    if encoding == "codes":
        return codes.astype(np.float64)
    columns = [np.eye(domain.cardinalities[i])[codes[:, k]] for k, i in enumerate(positions)]
    return np.concatenate([np.zeros((len(codes), 0)), *columns], axis=1)


class ClassifierConditional:
    r"""The conditional law of one variable as a fitted classifier predicts it.

    Anything with ``predict_proba`` and ``classes_`` serves, such as the classifiers of scikit-learn. Fit it on
    ``encode_features(domain, codes, reads, encoding)`` with the codes, or the labels, of the variable as the target.
    Levels that the classifier never saw have probability ``floor``.

    Args:
        domain: the variables.
        variable: the variable whose law this is.
        classifier: the fitted classifier; it is not copied.
        reads: names of the variables that it was fitted on; all others when None.
        encoding: "indicators" (default) or "codes", as in :func:`encode_features`.
        floor: least probability of a level, below 1 / cardinality; p becomes floor + (1 - cardinality * floor) p, so 0
            (default) changes nothing.

    Raises:
        InputTypeError: no fitted classifier of one target.
        UnknownNameError: an unknown variable, or a class that is no label of the variable.
        InputError: classes that are no codes of the variable, a classifier fitted on another number of columns, no
            variable to read, or a floor out of range. :meth:`log_probs` raises it when the classifier returns
            something that is no law.

    Example:
        >>> import numpy as np
        >>> class Copy:
        ...     classes_ = np.array([0, 1])
        ...     def predict_proba(self, features):
        ...         return 0.1 + 0.8 * features
        >>> node = ClassifierConditional(Domain.from_cardinalities({"a": 2, "b": 2}), "a", Copy())
        >>> node.log_probs(torch.tensor([-1, 1])).exp()
        tensor([0.1000, 0.9000], dtype=torch.float64)
    """

    def __init__(
        self,
        domain: Domain,
        variable: str,
        classifier: Any,
        *,
        reads: Iterable[str] | None = None,
        encoding: FeatureEncoding = "indicators",
        floor: float = 0.0,
    ) -> None:
        if not isinstance(domain, Domain):
            raise InputTypeError(f"domain: expected a Domain, received {type(domain).__name__}")
        target = domain[variable]
        others = [name for name in domain.names if name != variable]
        self._reads = in_order(domain, check_reads(domain, variable, others if reads is None else reads, "reads"))
        if not self._reads:
            raise InputError("reads: expected at least one variable, received none; use a table without parents")
        if not 0 <= floor < 1 / target.cardinality:
            raise InputError(f"floor: expected a number from 0 to below 1/{target.cardinality}, received {floor!r}")
        if encoding not in ("indicators", "codes"):
            raise InputError(f"encoding: expected 'indicators' or 'codes', received {encoding!r}")
        for attribute in ("predict_proba", "classes_"):
            if not hasattr(classifier, attribute):
                raise InputTypeError(
                    f"classifier: expected a fitted classifier with {attribute!r}, received {type(classifier).__name__}"
                )
        self._domain = domain
        self._variable = variable
        self.classifier = classifier
        self.encoding: FeatureEncoding = encoding
        self.floor = float(floor)
        self._dtype = torch.float64
        self._levels = _levels_of(domain, variable, classifier.classes_)
        width = sum(domain[name].cardinality for name in self._reads) if encoding == "indicators" else len(self._reads)
        fitted = getattr(classifier, "n_features_in_", width)
        if fitted != width:
            raise InputError(
                f"classifier: expected one fitted on the {width} columns of encode_features, received one fitted on "
                f"{fitted}"
            )

    def __repr__(self) -> str:
        return f"ClassifierConditional({self._variable!r}, {type(self.classifier).__name__}, reads={self._reads})"

    @property
    def domain(self) -> Domain:
        """The variables, in the order of the last dimension of a state."""
        return self._domain

    @property
    def variable(self) -> str:
        """Name of the variable whose law this is."""
        return self._variable

    @property
    def reads(self) -> tuple[str, ...]:
        """Names of the variables that the classifier was fitted on, in schema order."""
        return self._reads

    @property
    def has_zeros(self) -> bool:
        """Whether a probability may be zero: where no floor was given."""
        return self.floor == 0

    def log_probs(self, x: torch.Tensor) -> torch.Tensor:
        """Log-probabilities of the levels given the others, in nats, float64 unless :meth:`to` says otherwise.

        Shape:
            x (*sample, d) codes; result (*sample, cardinality).

        Raises:
            InputError: a wrong shape, a code that is read and is no level of its variable, or a classifier that
                returns another shape or rows that do not sum to one (to 1e-6).
        """
        features = encode_features(self._domain, x, self._reads, self.encoding)
        size = self._domain[self._variable].cardinality
        probs = np.zeros((len(features), size))
        if len(features):
            found = np.asarray(self.classifier.predict_proba(features), dtype=np.float64)
            if found.shape != (len(features), len(self._levels)):
                raise InputError(
                    f"classifier of {self._variable!r}: expected probabilities of shape "
                    f"{(len(features), len(self._levels))}, received {found.shape}"
                )
            probs[:, self._levels] = found
            # Classifiers work in single precision inside.
            check_table(torch.from_numpy(probs), "row", f"classifier of {self._variable!r}", tolerance=1e-6)
            probs /= probs.sum(-1, keepdims=True)
        probs = self.floor + (1 - size * self.floor) * probs
        return safe_log(torch.from_numpy(probs)).to(x.device, self._dtype).reshape(*x.shape[:-1], size)

    def to(
        self, *, dtype: torch.dtype | None = None, device: torch.device | str | None = None
    ) -> ClassifierConditional:
        """The conditional with results in another precision; they are on the device of the states anyway."""
        del device
        moved = copy(self)
        moved._dtype = dtype or self._dtype
        return moved


def _levels_of(domain: Domain, variable: str, classes: Any) -> np.ndarray:
    """Code of every class, int64."""
    target = domain[variable]
    values = classes if isinstance(classes, (list, tuple)) else np.asarray(classes).tolist()
    if not isinstance(values, (list, tuple)) or not values or any(isinstance(v, (list, np.ndarray)) for v in values):
        raise InputTypeError(f"classifier: expected a classifier of one target, received classes {classes!r}")
    if all(isinstance(value, str) for value in values):
        check_names(values, target.labels, f"classifier of {variable!r}", noun="label")
        return np.array([target.code(str(value)) for value in values], dtype=np.int64)
    for value in values:
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
        if not is_number or not 0 <= value < target.cardinality or value != int(value):
            raise InputError(
                f"classifier of {variable!r}: expected classes that are labels, or codes from 0 to "
                f"{target.cardinality - 1}, received {value!r}"
            )
    return np.array(values, dtype=np.int64)
