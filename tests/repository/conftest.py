"""Lets the tests here import `repository_layout`."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
