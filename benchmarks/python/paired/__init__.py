"""What the benchmark programs share: pairs of calls on several ranks, timed, judged and printed."""
