"""What the tests of the Python package share: the pool of ranks, one-process truth, strategies and checks."""
