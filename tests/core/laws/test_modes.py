"""What is kept of tensors, first used under every mode of PyTorch, serves later uses as if that had been the first.

The oracle is an equal law on other names, which no mode has seen; laws themselves are tested by enumeration elsewhere.
"""

import ast
import copy
import gc
import itertools
import pickle
from collections import defaultdict
from functools import partial

import pytest
import torch
from every_law import MAKERS
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

from pyro_hoim.checks import is_transformed
from pyro_hoim.errors import InputError, InputTypeError
from pyro_hoim.testing import assert_close

from support import sources

pytestmark = [  # PyTorch's own, as it loads the rules of vmap, and as a fake mode looks at tensors
    pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:The .grad attribute:UserWarning"),
]


def _transformed(transform, *more):
    def run(use):
        transform(lambda x: (use(), x.square().sum())[1])(torch.ones(2, dtype=torch.float64), *more)

    return run


def _within(mode):
    def run(use):
        with mode():
            use()

    return run


def _with_default(setter, value, former):
    def run(use):
        setter(value)
        try:
            use()
        finally:
            setter(former)

    return run


MODES = {
    "inference": _within(torch.inference_mode),
    "no_grad": _within(torch.no_grad),
    "grad": _transformed(torch.func.grad),
    "hessian": _transformed(torch.func.hessian),
    "vmap": _transformed(torch.func.vmap),
    "functionalize": _transformed(torch.func.functionalize),
    "autocast": _within(lambda: torch.autocast("cpu", dtype=torch.bfloat16)),
    "default dtype": _with_default(torch.set_default_dtype, torch.float64, torch.float32),
    "fake": _within(lambda: FakeTensorMode(allow_non_fake_inputs=True)),
    "meta": _within(lambda: torch.device("meta")),
    "default device": _with_default(torch.set_default_device, "meta", None),
}
REFUSED = {"poisson": "pseudo", "truncated poisson": "pseudo", "gaussian": "pseudo", "structures": "log_prob"}
REFUSED |= {"category, count, number": "pseudo", "0/1, number": "pseudo"}
REFUSED |= {"annealed": "condition", "bounds": "condition", "buckets": "condition"}
"""What torch.func cannot go through, whatever it transforms. Under a fake mode, without values, any use may fail."""


def _succeeds(mode, use):
    """Whether the use under a mode ends without an error; what an error refers to is let go."""
    try:
        MODES[mode](use)
    except (InputError, InputTypeError, RuntimeError, NotImplementedError, TypeError):
        return False
    return True


@pytest.fixture
def of_a_mode():
    """A function that lists the tensors alive that belong to a mode, those from before left out, which saves time."""
    gc.freeze()
    return _of_a_mode


def _of_a_mode():
    gc.collect()
    tensors = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor)]
    return [t for t in tensors if _is_of_a_mode(t)]


def _is_of_a_mode(tensor):
    if isinstance(tensor, FakeTensor) or tensor.is_meta or is_transformed(tensor):
        return True
    return tensor.is_inference() or tensor.dtype is torch.bfloat16 or torch._is_functional_tensor(tensor)


def _checked(made):
    """Values of the quantities with their gradients, None where there is none."""
    found = {}
    for name, use in made.quantities.items():
        value = use(made.law)
        gradients = (None,) * len(made.parameters)
        if value.requires_grad:
            gradients = torch.autograd.grad(value.sum(), made.parameters, allow_unused=True)
        found[name] = (value.detach(), *gradients)
    return found


@pytest.fixture(scope="module")
def expected():
    """What laws give that no mode has seen."""
    return {(name, grad): _checked(make("fresh", grad)) for name, make in MAKERS.items() for grad in (False, True)}


@pytest.mark.parametrize("mode", MODES)
def test_the_first_use_under_a_mode_leaves_nothing_of_it(mode, expected, of_a_mode):
    used = {}
    for (name, make), grad in itertools.product(MAKERS.items(), (False, True)):
        prefix = f"{mode} {grad} "
        made = used[name, grad, prefix] = make(prefix, grad)
        for quantity, use in made.quantities.items():
            succeeded = _succeeds(mode, partial(use, made.law))
            assert succeeded or mode == "fake" or REFUSED.get(name) == quantity, (name, quantity)
    assert of_a_mode() == []
    for (name, grad, prefix), made in used.items():
        for later in (made, MAKERS[name](prefix, grad)):  # the same object, and another one on the same names
            for quantity, tensors in _checked(later).items():
                for found, wanted in zip(tensors, expected[name, grad][quantity], strict=True):
                    assert (found is None) == (wanted is None), (name, quantity)
                    if wanted is not None:
                        assert found.dtype == wanted.dtype, (name, quantity)
                        assert_close(found, wanted, relative=1e-12, absolute=1e-12)
        weight = torch.ones((), requires_grad=True)
        use = next(iter(made.quantities.values()))
        (use(made.law).detach() * weight).sum().backward()  # a tensor of inference mode cannot be saved for this
        for double in () if grad else (copy.deepcopy(made.law), pickle.loads(pickle.dumps(made.law))):
            assert torch.equal(use(double), use(made.law))


@pytest.mark.parametrize("mode", sorted(set(MODES) - {"no_grad", "vmap", "default dtype"}))
def test_control_a_plain_cache_keeps_tensors_of_the_mode(mode, of_a_mode):
    kept = []

    def use():
        kept.append(torch.ones(2, 2) @ torch.ones(2, 2))

    MODES[mode](use)
    assert any(t is kept[0] for t in of_a_mode())


# Every cache is filled outside the modes


def _words(node):
    return {getattr(part, "id", getattr(part, "attr", None)) for part in ast.walk(node)}


def _fields(node):
    """Annotations of a class: of its fields, and of arguments and attributes of its constructor."""
    for part in node.body:
        if isinstance(part, ast.AnnAssign):
            yield part.annotation
        elif isinstance(part, ast.FunctionDef) and part.name == "__init__":
            yield from (argument.annotation for argument in part.args.args if argument.annotation is not None)
            yield from (line.annotation for line in part.body if isinstance(line, ast.AnnAssign))


def _definitions(node):
    """Classes and functions in a module, without a look into expressions, where none is."""
    for part in ast.iter_child_nodes(node):
        if isinstance(part, ast.ClassDef | ast.FunctionDef):
            yield part
        if isinstance(part, ast.stmt):
            yield from _definitions(part)


def _unguarded(modules):
    """Cached functions of the modules, as "function -> type", that return tensors or what holds them, without a guard.

    A type holds tensors if a field of it, or an argument of its constructor, is a tensor or a type that does.
    """
    fields, cached = defaultdict(set), []
    for tree in modules:
        targets = [target for node in tree.body if isinstance(node, ast.Assign) for target in node.targets]
        aliases = {target.id for target in targets if isinstance(target, ast.Name)}
        for node in _definitions(tree):
            if isinstance(node, ast.ClassDef):
                fields[node.name] |= set().union(*map(_words, [*_fields(node), *node.bases])) - aliases
            elif isinstance(node, ast.FunctionDef) and node.decorator_list and node.returns is not None:
                decorators = set().union(*map(_words, node.decorator_list))
                blocks = [part.items[0] for part in ast.walk(node) if isinstance(part, ast.With)]
                is_guarded = "plain_mode" in decorators.union(*map(_words, blocks))
                if decorators & {"cache", "lru_cache", "cached_property"} and not is_guarded:
                    cached.append((node, _words(node.returns) - aliases))
    holders, more = {"Tensor"}, {"Tensor"}
    while more:
        more = {name for name, words in fields.items() if words & holders} - holders
        holders |= more
    return [f"{node.name} -> {ast.unparse(node.returns)}" for node, words in cached if words & holders]


def test_every_cache_of_tensors_is_filled_outside_the_modes():
    modules = sources.trees().values()
    imports = [{alias.name for node in tree.body if isinstance(node, ast.ImportFrom) for alias in node.names}
               for tree in modules]  # fmt: skip
    assert sum("plain_mode" in names for names in imports) > 20
    assert _unguarded(modules) == []


def test_control_caches_without_a_guard_are_found():
    module = """
class Energy:
    def __init__(self, tables: torch.Tensor) -> None: ...
class Fit:
    energy: Energy | None
    @cached_property
    def best(self) -> list[Energy]: ...
@lru_cache(maxsize=8)
def fit() -> Fit: ...
@plain_mode()
def uncached() -> Fit: ...
@cache
@plain_mode()
def guarded() -> Fit: ...
@cache
def number() -> int: ...
"""
    assert set(_unguarded([ast.parse(module)])) == {"best -> list[Energy]", "fit -> Fit"}
