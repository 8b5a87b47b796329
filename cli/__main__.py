"""`python -m cli` is `gpufleet`."""

from cli.main import main

main()
