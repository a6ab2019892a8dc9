"""The table of PPO with and without an LSTM."""

from pathlib import Path

from experiments.lib.tables import ablation_table

TABLES = {"memory": lambda: ablation_table(Path(__file__).parent)}
