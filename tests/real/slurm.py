"""The real Slurm of the tests: the one that the simulator can leave the scheduler to."""

from simulator.real_slurm import RealSlurm, missing_parts

__all__ = ["RealSlurm", "missing_parts"]
