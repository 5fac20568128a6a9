"""Trials on one machine: their jobs, what follows their containers, their files, and access to their log.

Does not belong here: how a job becomes pods (`jobs`), how a pod runs (`pods`).
"""
