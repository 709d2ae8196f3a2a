from .origin import provenance as provenance
from .render import plain_text as plain_text, render_page as render_page, write_page as write_page
