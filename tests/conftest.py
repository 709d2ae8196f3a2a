"""What every test shares: precision, threads, hypothesis profiles and the folder of data sets."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import torch

collect_ignore = ["benchmarks"]

_LOCAL_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
if "PYRO_HOIM_DATA" not in os.environ and _LOCAL_DATA.is_dir():
    os.environ["PYRO_HOIM_DATA"] = str(_LOCAL_DATA)
os.environ.setdefault("MPLBACKEND", "Agg")

torch.set_num_threads(1)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # a shell starts background jobs deaf to Ctrl-C; tests send it
    signal.signal(signal.SIGINT, signal.default_int_handler)

hypothesis.settings.register_profile("ci", derandomize=True, deadline=None, database=None, print_blob=True)
hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Folder of the public data sets; its absence is a failure where CI is set and a skip elsewhere."""
    folder = os.environ.get("PYRO_HOIM_DATA")
    if folder and Path(folder).is_dir():
        return Path(folder)
    message = "the data folder is absent; set PYRO_HOIM_DATA to a folder with the public data sets"
    if os.environ.get("CI", "").lower() == "true":
        pytest.fail(message)
    pytest.skip(message)


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
