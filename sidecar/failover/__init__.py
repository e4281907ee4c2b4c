"""Replaces pods of nodes whose storage is lost: on proof that the other side cannot write, and on nothing else."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """What the flags say to this room."""

    node: str
    driver: str
    namespace: str  # where the Lease is
    acts: bool  # False: it is observed and told, and nothing is written but Events
