"""Slurm as the place where pods run: each pod, or each gang of pods, is one job of Slurm.

Slurm decides when and where a job runs, keeps to its limits and ends it; nothing of that is done here. `commands` calls
its programs, `scheduler` is the one thread that does so, `steps` its counterpart inside an allocation, `script` writes
what a job or a gang of pods executes, `pod` follows it by files in the shared data directory and
by what Slurm says, `place` has them all, and `admission` asks Slurm when an experiment is submitted.
"""
