"""What every test and doctest shares: no network, public data where it lies, seeds, precision, threads, profiles."""

from __future__ import annotations

import gc
import hashlib
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

_HERE = Path(__file__).resolve().parent

gc.disable()  # until all is collected: what is imported and collected stays, and was looked through again and again
# Of the second come the studies, of the third what tests share, the package `support`; of the others what the tests of
# a folder share.
sys.path += [str(_HERE / folder) for folder in ("tests/guard", "tutorials", "tests")]
_SHARING = ("cli", "core/laws", "dependency_network", "fuzz", "inference/structure")
_SHARING += tuple(f"log_linear/{folder}" for folder in ("constrained", "goodness", "laws"))
sys.path += [str(_HERE / "tests" / folder) for folder in _SHARING]

import offline  # noqa: E402
import seed_shift  # noqa: E402

offline.install()
seed_shift.install()  # before anything of the library is imported
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before PyTorch is: its threads sleep where they have to wait

import hypothesis  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

collect_ignore = ["tests/benchmarks", "tests/guard"]

os.environ.setdefault("MPLBACKEND", "Agg")
os.fsync = lambda _: None  # no test switches the machine off, and every file would wait for the disk

torch.set_num_threads(1)
for _device in (torch.cuda, torch.xpu, torch.mtia):
    if not _device.is_available():  # else every seed keeps a stack trace for each, which costs a millisecond
        _device.manual_seed_all = lambda _: None

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background jobs deaf to Ctrl-C; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile(
    "ci", derandomize=True, deadline=None, database=None, max_examples=50, print_blob=True
)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


# Public data


def _data_folder() -> Path | None:
    """The folder of PYRO_HOIM_DATA, else one beside the project; none where a run hides the data on purpose."""
    if os.environ.get("PYRO_HOIM_TEST_DATA") == "hidden":
        return None
    folder = Path(os.environ.get("PYRO_HOIM_DATA") or _HERE.parent / "shared" / "data")
    return folder if folder.is_dir() and any(folder.iterdir()) else None


_DATA = _data_folder()
_NO_DATA = str(_HERE / "tests" / "no_data_without_the_fixture_shared_data")  # a folder that is not there


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the public data sets, which loaders find in tests with this fixture and in no others.

    Where it is absent the test is skipped; where CI is set it fails, unless PYRO_HOIM_TEST_DATA=hidden.
    """
    if _DATA is not None:
        return _DATA
    message = "the public data is absent; set PYRO_HOIM_DATA to a folder that holds it"
    if os.environ.get("PYRO_HOIM_TEST_DATA") == "hidden":
        pytest.skip("the public data is hidden from this run (PYRO_HOIM_TEST_DATA)")
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message)
    pytest.skip(message)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs a CUDA device where there is none; ``-rs``, a default of this project, shows it."""
    if item.get_closest_marker("cuda") and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device, and there is none")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Leave what was imported and collected out of every later search for garbage, in workers as in one process."""
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(100_000, *gc.get_threshold()[1:])  # tests make many objects that live short
        gc.enable()


@pytest.hookimpl(tryfirst=True)
def pytest_unconfigure() -> None:
    """Leave out the last search for garbage among all that torch and Numba made, which takes a second."""
    gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests of public data and of printed numbers, and move the seeds of hypothesis where a shift is asked for."""
    for item in items:
        if "shared_data" in getattr(item, "fixturenames", ()):
            item.add_marker("public_data")
        if isinstance(item, pytest.DoctestItem):
            item.add_marker("fixed_seed")  # the numbers printed
        test = getattr(item, "obj", None)
        if seed_shift.shift() and getattr(test, "is_hypothesis_test", False):
            digest = hashlib.sha256(f"{item.nodeid} {seed_shift.shift()}".encode()).digest()
            hypothesis.seed(int.from_bytes(digest[:8]))(getattr(test, "__func__", test))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Show the public data to tests of it alone; leave the seeds of ``fixed_seed`` where they are."""
    is_shown = _DATA is not None and item.get_closest_marker("public_data") is not None
    os.environ["PYRO_HOIM_DATA"] = str(_DATA) if is_shown else _NO_DATA
    if item.get_closest_marker("fixed_seed") is None:
        return (yield)
    with seed_shift.unshifted():
        return (yield)


# Fixtures


@pytest.fixture
def float64() -> Iterator[torch.dtype]:
    """Make float64 the default precision of one test."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield torch.float64
    torch.set_default_dtype(before)


@pytest.fixture
def generator() -> torch.Generator:
    """A seeded generator of random numbers, fresh for each test."""
    return torch.Generator().manual_seed(20_260_101)


@pytest.fixture
def words_alone() -> Iterator[None]:
    """Leave out the pictures of a page, half of its time, where its words are tested."""
    from support.figures import no_figures

    with no_figures():
        yield
