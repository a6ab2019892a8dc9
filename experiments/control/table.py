"""The table of continuous control."""

from pathlib import Path

from experiments.lib.tables import ablation_table

TABLES = {"control": lambda: ablation_table(Path(__file__).parent)}
