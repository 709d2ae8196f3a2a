"""``tables``: what the embedded tables and the public data sets are, without importing what works on them."""

from typing import Any

import click

from ...core.words import plural
from ...datasets.embedded import tables as embedded_tables
from ...datasets.files import dataset_files
from ..options import JSON, Command
from ..output import echo_json


@click.command(cls=Command)
@JSON
def tables(as_json: bool) -> None:
    """List the published tables that come with the library, and the public data sets that it downloads."""
    keys = ("name", "title", "source", "licence", "note")
    embedded: list[dict[str, Any]] = [
        {
            **{key: getattr(info, key) for key in keys},
            "shape": [len(labels) for labels in info.labels.values()],
            "total": sum(info.counts),
        }
        for info in embedded_tables()
    ]
    public: list[dict[str, Any]] = [
        {
            **{key: getattr(info, key) for key in ("name", "source", "licence", "url", "sha256")},
            "columns": len(info.header),
            "total": info.num_rows,
        }
        for info in dataset_files()
    ]
    if as_json:
        echo_json({"tables": embedded, "public": public})
        return
    for info in embedded:
        shape = " x ".join(map(str, info["shape"]))
        click.echo(f"{info['name']:<20}{shape:<30}n = {info['total']:<7}{info['title']}")
    for info in public:
        shape = plural(info["columns"], "column")
        click.echo(f"{info['name']:<20}{shape:<30}n = {info['total']:<7}{info['source']} (downloaded when asked for)")
