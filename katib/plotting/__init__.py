"""Figures of experiments that a tuning service holds: what they are drawn from is read, and they are written to files.

Belongs here: what the page, `katib plot` and notebooks share beside the figures themselves.
Does not belong here: what a figure shows (`katib.figures`), finding the service (`katib.cli`, `katib.sdk`), pages.

`reading` gathers an experiment, its trials and the curves that a figure asks for; `files` writes figures as images and
JSON, `report` several of them as one HTML file.
"""
