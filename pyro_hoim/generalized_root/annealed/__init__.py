"""Log Z of generalized root models by annealed importance sampling."""
