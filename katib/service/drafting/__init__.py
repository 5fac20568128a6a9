"""Experiments drafted from a command line, a job, a batch script or another tool's file, and names of other tools.

Other rooms import only from this package. The module of a name is imported on first use, since most programs need one
or two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from katib.model.loadable import lazy_names

if TYPE_CHECKING:
    from katib.service.drafting.argument_words import in_arguments, in_options, option_for, python_words
    from katib.service.drafting.batch_scripts import SET_BY_US
    from katib.service.drafting.experiments import (
        Metrics,
        Search,
        draft,
        few_combinations,
        for_file,
        latest,
        next_name,
        parse_metrics,
        parse_parameter,
        slug,
    )
    from katib.service.drafting.foreign_words import missing_attribute, same_here, takes_its_arguments
    from katib.service.drafting.old_experiments import experiments_of_v1alpha3
    from katib.service.drafting.programs import Program, found_command, program_of, typed_command
    from katib.service.drafting.script_options import direction_of, metrics_of_output
    from katib.service.drafting.sweeps import experiment_of_sweep

if not TYPE_CHECKING:  # which knows all names
    __getattr__ = lazy_names(
        __name__,
        {
            "argument_words": "in_arguments in_options option_for python_words",
            "batch_scripts": "SET_BY_US",
            "experiments": "Metrics Search draft few_combinations for_file latest next_name parse_metrics "
            "parse_parameter slug",
            "foreign_words": "missing_attribute same_here takes_its_arguments",
            "old_experiments": "experiments_of_v1alpha3",
            "programs": "Program found_command program_of typed_command",
            "script_options": "direction_of metrics_of_output",
            "sweeps": "experiment_of_sweep",
        },
    )
