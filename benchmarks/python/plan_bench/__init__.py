"""The parts of bench_plans.py."""
