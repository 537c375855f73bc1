"""The parts of bench_dtensor.py."""
