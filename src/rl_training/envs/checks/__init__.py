"""Checks of an environment: all of them for `env check`, and those of the first steps in every run."""
