"""Comparisons that anyone can repeat; each is a module to run."""
