"""`python -m leasehold` is the command `leasehold`."""

import sys

from leasehold.cli import main

sys.exit(main())
