"""What every fitted and every loaded model of any family can do: tables, predictions, comparisons, pictures, pages."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
