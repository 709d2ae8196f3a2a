"""Log Z of log-linear models by annealed importance sampling."""
