"""Replaces pods of nodes whose storage is lost: on proof that the other side cannot write, and on nothing else."""
