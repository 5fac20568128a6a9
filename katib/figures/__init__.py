"""Figures of experiments: pure functions from an experiment, its trials and their curves to Plotly figures.

Belongs here: the content of pictures, the selection of trials if there are too many, and notes on them; parts
shared by the page, `katib plot` and notebooks: `reading` gathers an experiment, its trials and curves from a tuning
service, `files` writes figures as images and JSON, `pictures` are several of them, with the reason if one cannot be
drawn.
Does not belong here: finding the service (`katib.doors.cli`, `katib.sdk`), pages, also those of one file
(`katib.doors.ui`).

`trials` keeps all trials as columns, `data` is the input of every figure, `catalogue` lists the figures. The size of a
figure is bounded for any number of trials. Plotly is imported when a figure is drawn.
"""
