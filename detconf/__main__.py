"""`python -m detconf`."""

import sys

from detconf.cli import main

if __name__ == "__main__":
    sys.exit(main())
