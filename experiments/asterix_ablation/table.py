"""The table of the ablation of Asterix."""

from pathlib import Path

from experiments.lib.tables import ablation_table

TABLES = {"asterix_ablation": lambda: ablation_table(Path(__file__).parent)}
