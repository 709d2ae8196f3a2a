"""What tests and benchmarks share: suites of engines and trainers, oracles, models with known log Z, strategies."""
