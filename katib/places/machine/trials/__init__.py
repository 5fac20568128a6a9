"""Trials on one machine: their jobs, monitors of their containers, their files, and access to their log.

Does not belong here: converting a job into pods (`jobs`), running a pod (`pods`).
"""
