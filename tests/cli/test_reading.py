"""Reading rows of counts for a fitted model: every file is read once, and what is said of bad ones stays."""

import numpy as np
import pytest
from scipy import sparse

import pyro_hoim.cli.reading as module
from pyro_hoim.cli.reading import read_counts
from pyro_hoim.errors import InputError, MissingDataError, UnknownNameError
from pyro_hoim.generalized_root import PoissonFamily
from pyro_hoim.generalized_root.command import check_support
from pyro_hoim.schema import Domain, Variable


def counts(*names):
    return Domain(Variable(name, kind="count") for name in names)


AB = counts("a", "b")
ROWS = [[0, 3, 1], [2, 0, 4]]
CSV = "c,b,a\n1,3,0\n4,0,2\n"


@pytest.fixture
def files(tmp_path):
    """The same rows in both kinds of file, with a column that no model asks for."""
    (tmp_path / "rows.csv").write_text(CSV)
    sparse.save_npz(tmp_path / "rows.npz", sparse.csr_matrix(np.array(ROWS)[:, [2, 1, 0]]))
    (tmp_path / "rows_vocab.txt").write_text("c\nb\na\n")
    return {"csv": tmp_path / "rows.csv", "npz": tmp_path / "rows.npz"}


@pytest.fixture
def readings(monkeypatch):
    """Files that were read so far."""
    found = []

    def counted(name):
        original = getattr(module, name)

        def read(path, *arguments, **options):
            found.append(str(path))
            return original(path, *arguments, **options)

        monkeypatch.setattr(module, name, read)

    counted("read_cells")
    counted("read_matrix")
    monkeypatch.setattr("pyro_hoim.data.counts.read_matrix", module.read_matrix)
    monkeypatch.setattr("pyro_hoim.data.counts.read_table_file", module.read_cells)
    return found


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_files_are_read_once(kind, files, readings):
    table, _ = read_counts(AB, files[kind], None)
    assert (table.domain.names, table.to_array().tolist()) == (AB.names, [row[:2] for row in ROWS])
    assert readings == [str(files[kind])]


@pytest.mark.parametrize("kind", ["csv", "npz"])
def test_a_missing_target_is_zero_and_other_missing_columns_are_named(kind, files, readings):
    table, absent = read_counts(counts("a", "hat", "b"), files[kind], None, ["hat"])
    assert absent == {"hat"}
    assert table.to_array().tolist() == [[0, 0, 3], [2, 0, 0]]
    _, absent = read_counts(AB, files[kind], None, ["b"])
    assert absent == set()
    table, _ = read_counts(counts("hat"), files[kind], None, ["hat"])
    assert table.num_rows == 0
    assert len(readings) == 3
    for optional in ((), ("b",)):
        with pytest.raises(UnknownNameError, match=rf"rows\.{kind}: the table lacks column 'hat'"):
            read_counts(counts("a", "hat"), files[kind], None, optional)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ("a,b\n1,2\n3,-1\n", InputError, r"rows\.csv line 3, column 'b': expected a whole number from 0"),
        ("a,b\n1,x\n", InputError, r"rows\.csv line 2"),
        ("a,b\n1,\n", MissingDataError, "empty"),
        ("a,b\n", InputError, r"rows\.csv: expected rows below the header"),
        ("a,b,count\n1,2,-3\n", InputError, r"rows\.csv line 2.*'count'"),
    ],
)
def test_messages_name_line_and_column(content, error, message, tmp_path):
    (tmp_path / "rows.csv").write_text(content)
    with pytest.raises(error, match=message):
        check_support(read_counts(AB, tmp_path / "rows.csv", None)[0], PoissonFamily())


def test_vocabularies_belong_to_matrices(files):
    with pytest.raises(InputError, match=r"--vocab: belongs to a \.npz file"):
        read_counts(AB, files["csv"], files["npz"])
    with pytest.raises(InputError, match="no such file"):
        read_counts(AB, files["csv"].with_name("none.csv"), None)
