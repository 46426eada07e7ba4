"""Set-up on a developer's machine: environment, demo model, demo. No part of the installed program."""
