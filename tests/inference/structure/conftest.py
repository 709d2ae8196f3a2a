"""The Czech table with letters, and published numbers on it."""

import json
from pathlib import Path

import pytest

from pyro_hoim import InteractionHypergraph, load_table

GOLDEN = json.loads((Path(__file__).parents[2] / "golden" / "structure_posteriors.json").read_text(encoding="utf-8"))


class Lettered:
    """A table whose variables are called a, b, c, ... in schema order."""

    def __init__(self, table):
        self.table = table
        self.names = dict(zip("abcdefgh", table.domain.names, strict=False))

    def edge(self, letters):
        return tuple(self.names[letter] for letter in letters)

    def model(self, text):
        return InteractionHypergraph(self.table.domain, map(self.edge, text.split(",")), closure=True)


@pytest.fixture(scope="session")
def czech():
    return Lettered(load_table("czech_autoworkers"))


@pytest.fixture(scope="session")
def rochdale():
    return Lettered(load_table("rochdale"))


@pytest.fixture(scope="session")
def golden():
    return GOLDEN
