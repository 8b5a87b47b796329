"""A Slurm controller of version 22.05: its state, its scheduling, and the words of its commands.

`Controller` holds nodes and jobs; `Shell` runs command lines against it. What the commands print was read
back from slurm-wlm 22.05.8 with the same nodes and jobs.
"""

from simulator.slurm.controller import Controller
from simulator.slurm.records import JobRequest, JobState, SlurmJob, SlurmNode
from simulator.slurm.shell import Reply, Shell

__all__ = ["Controller", "JobRequest", "JobState", "Reply", "Shell", "SlurmJob", "SlurmNode"]
