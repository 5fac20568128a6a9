"""Slurm as the place of pods: each pod, or each gang of pods, is one job of Slurm.

Slurm chooses time and node of a job, keeps to its limits and ends it; nothing of that is done here. `commands` calls
its programs, `scheduler` is the one thread that does so, `steps` its counterpart inside an allocation, `script` writes
the scripts of jobs and gangs, `pod` follows it by files in the shared data directory and
by the answers of Slurm, `place` has them all, and `admission` asks Slurm when an experiment is submitted.
"""
