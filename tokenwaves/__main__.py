"""`python -m tokenwaves`."""

import sys

from tokenwaves import main

sys.exit(main())
