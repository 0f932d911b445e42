"""`python -m figures.masks masks.nc` prints the tables of a figure that was made."""

import sys
from pathlib import Path

from figures.files import read_data
from figures.masks.tables import table

if __name__ == "__main__":
    for path in sys.argv[1:]:
        for node in read_data(Path(path)).leaves:
            print(table(node.to_dataset()))
