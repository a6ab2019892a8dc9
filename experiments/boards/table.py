"""The table of judged moves, from results/judgement."""

from experiments.boards.judgement import committed, table

TABLES = {"judgement": lambda: table(committed())}
