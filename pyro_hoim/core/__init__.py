"""What all model families share: protocols of models, backends and trainers, laws, rows, predictions and scores."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
