"""`katib convert`: an experiment file from the file of another tool."""

from __future__ import annotations

import click

from katib.cli import options


@click.command(
    epilog=options.examples(
        "katib convert sweep.yaml > experiment.yaml",
        "katib convert - < sweep.yaml",
    ),
)
@click.argument("source")
def convert(source: str) -> None:
    """Print the experiment file of a sweep of Weights & Biases.

    Its parameters, method, metric, run_cap, early_terminate and command are kept. The program has to print its metric,
    or to report it: trials know nothing of wandb.log.
    """
    from katib.api.yaml_text import dump_yaml
    from katib.tuning.sweeps import experiment_of_sweep

    text, name = options.read_file(source)
    click.echo(dump_yaml(experiment_of_sweep(text, name)), nl=False)
