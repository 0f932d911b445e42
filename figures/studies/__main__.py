"""`python -m figures.studies RESULT.nc …`: saves results of studies with the package."""

import sys

from figures.studies import keep

print(*keep(sys.argv[1:]), sep="\n")
