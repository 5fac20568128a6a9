"""Figures of experiments: pure functions from an experiment, its trials and their curves to Plotly figures.

Belongs here: what a picture shows, which trials are drawn when there are too many, what it says of itself; what the
page, `katib plot` and notebooks share: `reading` gathers an experiment, its trials and curves from a tuning service,
`files` writes figures as images and JSON, `pictures` are several of them, with the reason where one cannot be drawn.
Does not belong here: finding the service (`katib.doors.cli`, `katib.sdk`), pages, also those of one file
(`katib.doors.ui`).

`trials` keeps all trials as columns, `data` is what every figure is drawn from, `catalogue` lists the figures.
What is drawn is bounded, whatever the number of trials. Plotly is imported when a figure is drawn.
"""
