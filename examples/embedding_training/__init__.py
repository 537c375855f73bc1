"""The parts of train_embedding.py."""
