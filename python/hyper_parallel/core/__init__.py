"""The import paths of the specification: each module re-exports names of the package."""
