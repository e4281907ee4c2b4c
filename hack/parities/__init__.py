"""Compares both programs: the same claims for each, and every field of the results side by side."""
