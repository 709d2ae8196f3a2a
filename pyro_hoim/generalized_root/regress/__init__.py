"""Learning of generalized root models: l1-penalised regressions of every node on all others."""
