"""Exceptions, warnings and checks of names and numbers, shared by every layer; nothing here imports torch.

An exception names the argument, what was expected, what was received and, where there is one, the next step.
Everything a caller can get wrong is a subclass of :class:`ValueError` or :class:`TypeError`.
"""

from __future__ import annotations

import difflib
import math
import numbers
import re
import sys
from collections.abc import Collection, Iterable, Sequence
from functools import partial
from types import UnionType
from typing import Any, ClassVar, Literal, Self, TypeGuard, get_args

__all__ = [
    "ConvergenceWarning",
    "CostWarning",
    "DataWarning",
    "ErrorCode",
    "FamilyWarning",
    "HoimError",
    "InputError",
    "InputTypeError",
    "IntractableError",
    "MissingDataError",
    "ModelFileError",
    "NonexistentEstimateWarning",
    "UnknownNameError",
    "caller_level",
    "check_choice",
    "check_fraction",
    "check_names",
    "check_not_negative",
    "check_positive",
    "check_type",
    "check_unique",
    "check_whole",
    "conflict",
    "is_real",
    "is_whole",
    "none_received",
    "other_domain",
    "out_of_range",
    "out_of_reach",
    "refused",
    "rounded_power",
    "size_text",
    "unexpected",
    "visible",
    "wrong_shape",
    "wrong_type",
]

ErrorCode = Literal[
    "invalid-value",
    "wrong-type",
    "wrong-shape",
    "out-of-range",
    "not-finite",
    "unknown-choice",
    "unknown-name",
    "repeated-name",
    "empty",
    "missing-cells",
    "missing-part",
    "conflict",
    "other-domain",
    "other-run",
    "unknown-order",
    "impossible",
    "not-normalizable",
    "over-budget",
    "no-method",
    "no-file",
    "existing-file",
    "damaged-file",
    "file-version",
    "wrong-encoding",
]
"""What went wrong, for programs; ``docs/api/errors.md`` defines each."""


class HoimError(Exception):
    """Base class of every exception raised on purpose by this library.

    Its text is ``argument: problem; hint``, where the problem of most is ``expected ..., received ...``.

    Args:
        problem: what is wrong, where that is not a comparison of ``expected`` with ``received``.
        argument: what the problem is about, mostly the name of an argument, or a path.
        expected: what would have been accepted, in words.
        received: what was there instead, in words.
        hint: the next step, in words.
        code: what kind of problem; by default that of the class.

    Example:
        >>> error = HoimError(argument="level", expected="a number between 0 and 1", received="95", hint="write 0.95")
        >>> print(error)
        level: expected a number between 0 and 1, received 95; write 0.95
        >>> error.code, error.argument
        ('invalid-value', 'level')
    """

    default_code: ClassVar[ErrorCode] = "invalid-value"

    def __init__(
        self,
        problem: str | None = None,
        *,
        argument: object = None,
        expected: str | None = None,
        received: str | None = None,
        hint: str | None = None,
        code: ErrorCode | None = None,
    ) -> None:
        if problem is None and expected is not None:
            problem = f"expected {expected}" + ("" if received is None else f", received {received}")
        self.argument = None if argument is None else str(argument)
        super().__init__(_text(self.argument, problem, hint))
        self.problem = problem
        self.expected = expected
        self.received = received
        self.hint = hint
        self.code: ErrorCode = self.default_code if code is None else code

    def replace(self, **parts: Any) -> Self:
        """The same exception with other parts, such as another hint."""
        former = {name: getattr(self, name) for name in ("argument", "expected", "received", "hint", "code")}
        problem = None if self.expected is not None else self.problem
        return type(self)(parts.pop("problem", problem), **former | parts)


def _text(argument: str | None, problem: str | None, hint: str | None) -> str:
    shown = [visible(argument)] if argument is not None else []
    shown += ["\n".join(map(visible, problem.split("\n")))] if problem is not None else []
    text = ": ".join(map(_shortened, shown))
    return text if hint is None else f"{text}; {visible(hint)}"


def _shortened(text: str) -> str:
    """A text of at most 800 characters, of a longer one the ends; what was received may be of any length."""
    return text if len(text) <= 800 else f"{text[:390]} ... {text[-390:]}"


_UNSEEN = re.compile(
    "[\x00-\x1f\x7f-\x9f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ud800-\udfff\U000e0000-\U000e007f]"
)


def visible(text: str) -> str:
    r"""Text in one line that shows what it holds: controls of terminals and of writing directions as Python does."""
    return _UNSEEN.sub(lambda found: ascii(found[0])[1:-1], text)


class InputError(HoimError, ValueError):
    """An argument has a value that cannot be used; nothing was computed.

    Example:
        >>> from pyro_hoim import Variable
        >>> try:
        ...     Variable("size", ["small", "small"])
        ... except ValueError as error:
        ...     print(type(error).__name__, error.code)
        InputError repeated-name
    """


class InputTypeError(HoimError, TypeError):
    """An argument has a type that cannot be used; nothing was computed."""

    default_code = "wrong-type"


class UnknownNameError(InputError):
    """A variable or level name is not in the domain; the closest known names are listed."""

    default_code = "unknown-name"


class MissingDataError(InputError):
    """Observations hold missing cells and the operation was not told what to do with them."""

    default_code = "missing-cells"


class IntractableError(HoimError, ValueError):
    """An exact computation would exceed its budget, the quantity does not exist, or an estimate of it is contradicted.

    The message states the required cells, the budget and the option that raises it.

    Example:
        >>> error = out_of_reach("log_partition", f"needs {size_text(2**100, 'cells')}", hint="raise max_cells")
        >>> print(error.code, "-", error)
        over-budget - log_partition: needs about 1.27e+30 cells; raise max_cells
    """

    default_code = "over-budget"


class ModelFileError(InputError):
    """A model file is unreadable, damaged, of another program or of another format version."""

    default_code = "damaged-file"


class ConvergenceWarning(UserWarning):
    """An iterative method stopped before its criterion was met; the result carries the status.

    ``argument`` is the method, where the problem does not name it, and ``hint`` the next step.

    Example:
        >>> print(ConvergenceWarning("10 steps were not enough", argument="ipf", hint="raise max_iterations"))
        ipf: 10 steps were not enough; raise max_iterations
    """

    def __init__(self, problem: str, *, argument: str | None = None, hint: str | None = None) -> None:
        super().__init__(_text(argument, problem, hint))
        self.problem = problem
        self.argument = argument
        self.hint = hint


class NonexistentEstimateWarning(UserWarning):
    """The maximum-likelihood estimate has infinite components; the result names the combinations.

    Example:
        >>> import warnings
        >>> from pyro_hoim import Domain, InteractionHypergraph, Observations, fit
        >>> rows = Observations.from_table(Domain.from_cardinalities({"a": 2, "b": 2}), [[9, 0], [1, 9]])
        >>> with warnings.catch_warnings(record=True) as told:
        ...     warnings.simplefilter("always")
        ...     result = fit(InteractionHypergraph.saturated(rows.domain), rows)
        >>> [warning.category.__name__ for warning in told]
        ['NonexistentEstimateWarning']
    """


class DataWarning(UserWarning):
    """Rows say less than a fit may make a reader believe: constant columns, more parameters than rows."""


class CostWarning(UserWarning):
    """Work that takes long: how long very roughly, and what would take less."""


class FamilyWarning(UserWarning):
    """A family of an installed package cannot be used; the others can."""


class _Absent:
    """The value of an argument where only words say what was received."""


def unexpected(
    argument: object,
    expected: str,
    value: object = _Absent,
    hint: str | None = None,
    *,
    received: object = _Absent,
    code: ErrorCode | None = None,
) -> InputError:
    """An :class:`InputError` about a value that is not what was expected; it is shown as Python writes it.

    ``received`` are words in the place of ``value``, ``hint`` is the next step, ``code`` the kind of problem.
    """
    shown = _shown(value, received)
    return InputError(argument=argument, expected=expected, received=shown, hint=hint, code=code)


out_of_range = partial(unexpected, code="out-of-range")
"""As :func:`unexpected`, about a number outside its bounds."""

other_domain = partial(unexpected, code="other-domain")
"""As :func:`unexpected`, about other variables, interactions or rows than those of the model or run."""


def none_received(argument: object, expected: str, hint: str | None = None) -> InputError:
    """As :func:`unexpected`, about nothing where at least one is needed."""
    return unexpected(argument, expected, hint=hint, received="none", code="empty")


def wrong_shape(argument: object, expected: object, value: Any = _Absent, hint: str | None = None) -> InputError:
    """As :func:`unexpected`, about the shape of an array or tensor, or about a shape."""
    shape = _Absent if value is _Absent else tuple(getattr(value, "shape", value))
    return unexpected(argument, f"shape {expected}", hint=hint, received=shape, code="wrong-shape")


def wrong_type(
    argument: object, expected: str, value: object = _Absent, hint: str | None = None, *, received: object = _Absent
) -> InputTypeError:
    """An :class:`InputTypeError` that shows the name of the type."""
    shown = _shown(_Absent, received) if value is _Absent else type(value).__name__
    return InputTypeError(argument=argument, expected=expected, received=shown, hint=hint)


def refused(argument: object, problem: str, hint: str | None = None, code: ErrorCode | None = None) -> InputError:
    """An :class:`InputError` about something else than a value that was not expected."""
    return InputError(problem, argument=argument, hint=hint, code=code)


conflict = partial(refused, code="conflict")
"""As :func:`refused`, about arguments that exclude or need one another."""


def out_of_reach(
    argument: object, problem: str, hint: str | None = None, code: ErrorCode | None = None
) -> IntractableError:
    """An :class:`IntractableError` about a computation that is too large, or has no method."""
    return IntractableError(problem, argument=argument, hint=hint, code=code)


def _shown(value: object, received: object) -> str | None:
    if received is not _Absent:
        return str(received)
    return None if value is _Absent else repr(value)


def check_type(value: object, kind: type | UnionType | tuple[Any, ...], argument: str, expected: str = "") -> None:
    """Raise :class:`InputTypeError` unless a value is of a type; ``expected`` says it in words, by default its name.

    A class has what a protocol asks of its instances, and is none of them.
    """
    if isinstance(value, type) or not isinstance(value, kind):
        names = [_name_of(part) for part in get_args(kind) or (kind if isinstance(kind, tuple) else (kind,))]
        raise wrong_type(argument, expected or " or ".join(names), value)


def _name_of(kind: Any) -> str:
    """The name of a class with its article, by its sound; None as such, and names in the plural without one."""
    name = kind.__name__
    if kind is type(None):
        return "None"
    is_spelled = name[0].isupper() and not name[1:2].islower()  # "an L1Rule", "an MDL"
    article = "an" if name[0] in ("AEFHILMNORSX" if is_spelled else "AEIOaeio") else "a"
    return name if name.endswith("s") else f"{article} {name}"


def check_choice(value: object, choices: Collection[object], argument: str) -> None:
    """Raise :class:`InputError` unless a value is one of some."""
    if value not in choices:
        *others, last = map(repr, choices)
        raise unexpected(argument, f"{', '.join(others)} or {last}", value, code="unknown-choice")


def check_whole(value: object, argument: str, least: int = 1, most: int | None = None) -> int:
    """The value, or :class:`InputError` unless it is a whole number within bounds, which are included."""
    if not is_whole(value) or value < least or (most is not None and value > most):
        bounds = f"from {least}" if most is None else f"from {least} to {most}"
        raise out_of_range(argument, f"a whole number {bounds}", value)
    return int(value)


def check_positive(value: object, argument: str) -> None:
    """Raise :class:`InputError` unless a value is a finite number above 0."""
    if not (is_real(value) and 0 < value < math.inf):
        raise out_of_range(argument, "a positive finite number", value)


def check_not_negative(value: object, argument: str) -> None:
    """Raise :class:`InputError` unless a value is a finite number from 0."""
    if not (is_real(value) and 0 <= value < math.inf):
        raise out_of_range(argument, "a finite number from 0", value)


def check_fraction(value: object, argument: str) -> None:
    """Raise :class:`InputError` unless a value is a number between 0 and 1, which are excluded."""
    if not (is_real(value) and 0 < value < 1):
        raise out_of_range(argument, "a number between 0 and 1", value)


def is_real(value: object) -> TypeGuard[float]:
    """Whether a value is a real number, of Python or of NumPy, and no boolean."""
    return isinstance(value, numbers.Real) and not isinstance(value, bool)


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an integer, of Python or of NumPy, and no boolean."""
    return isinstance(value, (int, numbers.Integral)) and not isinstance(value, bool)  # the abstract class is slow


def size_text(number: int, unit: str = "") -> str:
    """A whole number from 0 in words for a message, of any size; from 10^18 on with three digits."""
    suffix = f" {unit}" if unit else ""
    if number < 10**6:
        return f"{number}{suffix}"
    if number < 10**18:
        return f"{number}{suffix} (about {number:.3g})"
    mantissa, exponent = rounded_power(number, 2)
    return f"about {mantissa}e+{exponent}{suffix}"


def rounded_power(number: int, digits: int) -> tuple[str, int]:
    """Mantissa with some digits after the point, and power of ten, of a whole number from 1 of any size.

    Python prints no integer of more than 4,300 digits and turns none above 10^308 into a float; this does without.

    Example:
        >>> rounded_power(2**20_000, 2), rounded_power(9_999, 1)
        (('3.98', 6020), ('1.0', 4))
    """
    logarithm = math.log10(number)
    exponent = math.floor(logarithm)
    mantissa = f"{10 ** (logarithm - exponent):.{digits}f}"
    return (mantissa, exponent) if float(mantissa) < 10 else (f"{1:.{digits}f}", exponent + 1)


def check_unique(names: Sequence[str], argument: str, hint: str | None = None) -> None:
    """Raise :class:`InputError` if a name occurs twice."""
    if len({*names}) == len(names):
        return
    seen: set[str] = set()
    repeated = sorted({str(n) for n in names if n in seen or seen.add(n)})
    shown = ", ".join(map(repr, repeated))
    raise refused(argument, f"names must be unique, but {shown} is repeated", hint, code="repeated-name")


def caller_level() -> int:
    """The ``stacklevel`` at which a warning points at the line, outside of the package, that called it."""
    frame, level = sys._getframe(1), 1
    passed = ("pyro_hoim.", "torch.utils._contextlib")  # the latter stands between functions without gradients
    while frame.f_back is not None and str(frame.f_globals.get("__name__")).startswith(passed):
        frame, level = frame.f_back, level + 1
    return level


_ALIKE = 0.65  # of two words, of which one may be the other misspelled: share of letters in common


def check_names(
    names: Iterable[str], known: Sequence[str], argument: str, noun: str = "variable", problem: str = "unknown"
) -> None:
    """Raise :class:`UnknownNameError` for the first name that is not known, listing the closest ones."""
    present = set(known)
    for name in names:
        if name not in present:
            folded: dict[str, list[str]] = {}
            for one in map(str, known):
                folded.setdefault(one.casefold(), []).append(one)
            # Digits say which number it is, so that no other number is a misspelling.
            is_number = str(name).strip().lstrip("+-").replace(".", "", 1).isdecimal()
            matches = [] if is_number else difflib.get_close_matches(str(name).casefold(), folded, 3, _ALIKE)
            close = [one for key in matches for one in folded[key]][:3]
            shown = close or [str(k) for k in known[:6]]
            hint = ("did you mean " if close else "known: ") + ", ".join(map(repr, shown))
            if not close and len(known) > len(shown):
                hint += ", ..."
            if noun == "option" and name == "structural_zeros":  # which a model in which everything is possible lacks
                hint = "pyro_hoim.fit takes them"
            raise UnknownNameError(f"{problem} {noun} {name!r}", argument=argument, received=repr(name), hint=hint)
