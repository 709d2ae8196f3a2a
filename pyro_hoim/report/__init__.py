"""Reports: an analysis as one self-contained HTML page, as plain text and as files."""

from .blocks import num_states_text
from .page import render_report, write_report
from .plain import plain_report

__all__ = ["num_states_text", "plain_report", "render_report", "write_report"]
