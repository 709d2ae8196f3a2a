"""Pictures of the bias and variance experiment show the table of means."""

import matplotlib.pyplot as plt
import numpy as np
import pytest

from studies.bias_variance_figures import (
    against_complexity,
    against_parameters,
    against_rows,
    drawings,
    grids,
    read_table,
)


@pytest.fixture
def figures():
    """Figures 1 to 9."""
    table = read_table()
    made = drawings() | grids(table) | against_rows(table) | against_complexity(table) | against_parameters(table)
    yield made
    for figure in made.values():
        plt.close(figure)


def test_nine_pictures_with_the_numbers_of_the_table(figures):
    assert sorted(figures) == [f"figure_{number}" for number in range(1, 10)]
    table = read_table().set_index(["kind", "num_rows"])
    for column, size in enumerate((50, 500, 5000, 50_000)):  # figure 9, its upper row
        shown = [line for line in figures["figure_9"].axes[column].lines if len(line.get_xdata()) > 2]
        for line, kind in zip(shown, ("rbm", "hbm"), strict=True):
            rows = table.loc[(kind, size)].sort_values("num_parameters")
            assert np.array_equal(line.get_xdata(), rows["num_parameters"])
            assert np.array_equal(line.get_ydata(), rows["total"])
    image = figures["figure_4"].axes[0].images[0].get_array()  # log10 of the total error, orders by sizes
    errors = read_table().query("kind == 'hbm'").pivot_table(index="complexity", columns="num_rows", values="total")
    assert np.allclose(image, np.log10(errors))
