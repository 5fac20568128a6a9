"""Pictures of experiments: pure functions from an experiment, its trials and their curves to Plotly figures.

Belongs here: what a picture shows, which trials are drawn when there are too many, what it says of itself.
Does not belong here: reading a service or a file (`katib.ui`, `katib.sdk.plots` and `katib.cli` do), pages.

`trials` keeps all trials as columns, `data` is what every figure is drawn from, `catalogue` lists the figures.
What is drawn is bounded, whatever the number of trials. Plotly is imported when a figure is drawn.
"""
